"""The option table: one field of `Config` is one option, with everything that is known about it."""

# ruff: noqa: RUF009 - option() makes a dataclass field

from dataclasses import dataclass, field, fields
from functools import partial
from typing import Final, Literal

from llmdsim.config.option import (
    Document,
    Duration,
    DurationInSeconds,
    Json,
    JsonTexts,
    LoraModule,
    Option,
    option,
    row,
)

FailureType = Literal[
    "rate_limit", "invalid_api_key", "context_length", "server_error", "invalid_request", "model_not_found"
]

_UNUSED = "Accepted and shown; means nothing here"


@dataclass(frozen=True, slots=True, repr=False)  # a repr would show secrets
class Config:
    """The configuration of one daemon, checked. Durations are seconds; an option left unset is `None`.

    Names, defaults and ranges are those of llm-d-inference-sim, which most users come from, and of vLLM for
    the options it does not have.
    """

    # -- Server ----------------------------------------------------------------------------------------------
    config: str = option("", "YAML file with any of these options as keys", group="Server", effective=True)
    port: int = option(8000, "Port to listen on", low=1, high=65535, group="Server", effective=True)
    host: str = option(
        "", "Address to listen on; empty is every address, IPv4 and IPv6", group="Server", effective=True
    )
    listen: tuple[str, ...] = option(
        (),
        "Twisted endpoint strings to listen on (tcp:8000, unix:/run/llmdsim.sock), in place of --port unless "
        "--port is given too",
        group="Server",
        effective=True,
    )
    grpc_port: int = option(
        0,
        "A further port to listen on, for clients that expect gRPC apart from HTTP; all serve both. 0: none",
        low=0,
        high=65535,
        group="Server",
        effective=True,
    )
    admin_listen: tuple[str, ...] = option(
        (),
        "Endpoint strings, as for --listen, that alone serve administration and development routes (/admin, "
        "/sleep, /fake_metrics, ...), besides probes and metrics; none is with everything else",
        group="Server",
        effective=True,
    )
    root_path: str = option(
        "",
        "Path below which a proxy serves this server; taken off requests that still have it",
        group="Server",
        effective=True,
    )
    keep_alive_timeout: DurationInSeconds = option(
        75.0,
        "How long an idle connection is kept open; a bare number is seconds",
        low=0.0,
        high=86400.0,
        group="Server",
        effective=True,
    )
    sse_keep_alive_interval: DurationInSeconds = option(
        0.0,
        "After how long without a byte a stream of chat or text completions is sent a comment; 0 is never",
        low=0.0,
        group="Server",
        effective=True,
    )
    half_close: Literal["abort", "serve"] = option(
        "abort",
        "What a client means by closing only its sending side while it waits: abort its request, or go on "
        "serving it",
        group="Server",
        effective=True,
    )
    max_header_size: int = option(
        65536,
        "Upper bound of a request's header, in bytes",
        low=1024,
        high=16777216,
        group="Server",
        effective=True,
    )
    max_request_body_size_mb: int = option(
        64, "Upper bound of a request's body, in megabytes", low=1, high=512, group="Server", effective=True
    )
    http2_max_concurrent_streams: int = option(
        4096,
        "Requests that one connection over HTTP/2 may have under way, calls of gRPC included",
        low=1,
        high=1_000_000,
        group="Server",
        effective=True,
    )
    shutdown_timeout: DurationInSeconds = option(
        25.0,
        "How long running requests may go on after SIGTERM or SIGINT; a bare number is seconds",
        low=0.0,
        high=86400.0,
        group="Server",
        effective=True,
    )
    startup_duration: Duration = option(
        0.0,
        "How long everything but /health and /ping answers 503 after the start, as if weights were loading",
        group="Server",
        effective=True,
    )
    startup_serves: bool = option(
        False,
        "Serve meanwhile, as llm-d-inference-sim does: only /ready and /health/ready answer 503",
        group="Server",
        effective=True,
    )
    keep_alive_on_engine_death: bool = option(
        False,
        "Go on answering, with errors, once the engine has died, rather than exit",
        env="VLLM_KEEP_ALIVE_ON_ENGINE_DEATH",
        group="Server",
        effective=True,
    )
    enable_tokenizer_info_endpoint: bool = option(
        False, "Serve /tokenizer_info", group="Server", effective=True
    )
    enable_request_id_headers: bool = option(
        False, "Send X-Request-Id back in responses", group="Server", effective=True
    )
    api_key: tuple[str, ...] = option(
        (),
        "Keys of which a client must send one, as Authorization: Bearer KEY or x-api-key: KEY; probes and "
        "metrics need none",
        env="VLLM_API_KEY",
        secret=True,
        group="Server",
        effective=True,
    )
    allowed_origins: JsonTexts = option(
        (),
        'Origins whose pages browsers may let call this server (CORS); ["*"] is all, none is allowed unless '
        "given",
        group="Server",
        effective=True,
    )
    allowed_methods: JsonTexts = option(
        ("*",), "Methods that such pages may use", group="Server", effective=True
    )
    allowed_headers: JsonTexts = option(
        ("*",), "Request headers that such pages may set", group="Server", effective=True
    )
    allow_credentials: bool = option(
        False, "Let such pages send cookies and the like", group="Server", effective=True
    )
    disable_fastapi_docs: bool = option(
        False, "Serve neither /openapi.json nor /docs", group="Server", effective=True
    )
    ssl_certfile: str = option(
        "",
        "Certificate file for TLS (PEM), with those that lead to its root; read again when it changes",
        group="Server",
        effective=True,
    )
    ssl_keyfile: str = option(
        "", "File of its private key (PEM, not encrypted)", group="Server", effective=True
    )
    self_signed_certs: bool = option(
        False, "Serve TLS with a certificate made at start", group="Server", effective=True
    )
    ssl_ca_certs: str = option(
        "",
        "File of the CA certificates (PEM) that client certificates must come from; --ssl-cert-reqs says "
        "whether clients are asked for one",
        group="Server",
        effective=True,
    )
    ssl_cert_reqs: Literal[0, 1, 2] = option(
        0,
        "Client certificates: 0 none is asked for, 1 one that is sent must be good, 2 one must be sent",
        group="Server",
        effective=True,
    )
    ssl_ciphers: str = option(
        "",
        "Ciphers for TLS 1.2, as OpenSSL lists them; unless given, those with forward secrecy and "
        "authenticated encryption",
        group="Server",
        effective=True,
    )
    enable_ssl_refresh: bool = option(
        False,
        "For vLLM's sake: certificates are read again when they change, with it or without",
        group="Server",
        effective=True,
    )

    # -- Model -----------------------------------------------------------------------------------------------
    model: str = option("", "Model to serve; required", env="SIM_MODEL", group="Model", effective=True)
    served_model_name: tuple[str, ...] = option(
        (),
        "Names that requests may use for the model, in place of its own; the first is used in responses and "
        "metrics",
        group="Model",
        effective=True,
    )
    max_model_len: int = option(
        1024,
        "Context window: tokens of one prompt and its reply",
        low=1,
        group="Model",
        effective=True,
        hint="give a number, there is no model to take it from",
    )
    enable_lora: bool = option(
        False,
        "Show LoRA metrics before there is an adapter; adapters are served without it too",
        group="Model",
        effective=True,
    )
    max_loras: int = option(1, "LoRA adapters in one batch", low=1, group="Model", effective=True)
    max_cpu_loras: int = option(
        0, "LoRA adapters kept in CPU memory; 0 is --max-loras", low=0, group="Model", effective=True
    )
    lora_modules: tuple[LoraModule, ...] = option(
        (),
        "LoRA adapters known from the start, each as JSON with name and path, or as name=path",
        group="Model",
        effective=True,
    )
    lora_load_time: Duration = option(
        0.0,
        "How long it takes to load a LoRA adapter into CPU memory",
        runtime=True,
        group="Model",
        effective=True,
    )
    lora_info: Literal["auto", "always", "vllm", "off"] = option(
        "auto",
        "LoRA metrics: once there are adapters (or with --enable-lora), always, as vLLM 0.33 has them "
        "(running and waiting alike, old series stay), or never",
        group="Model",
        effective=True,
    )
    runtime_lora: bool = option(
        True,
        "Serve /v1/load_lora_adapter and /v1/unload_lora_adapter",
        env="VLLM_ALLOW_RUNTIME_LORA_UPDATING",
        group="Model",
        effective=True,
    )
    enable_sleep_mode: bool = option(
        False, "Let /sleep have effect, in development mode", group="Model", effective=True
    )
    sleep_serves: bool = option(
        False,
        "Go on serving while asleep, as llm-d-inference-sim does, rather than refuse generation with 503",
        group="Model",
        effective=True,
    )
    mm_encoder_only: bool = option(
        False, "Serve the multi-modal encoder without the language model", group="Model", effective=True
    )
    omni: bool = option(
        False, "Answer with an image when a request asks for one", group="Model", effective=True
    )
    image_emission_rate: int = option(
        0,
        "Percentage of omni chats answered with an image",
        low=0,
        high=100,
        runtime=True,
        group="Model",
        effective=True,
    )
    default_embedding_dimensions: int = option(
        384,
        "Length of an embedding when the request does not say",
        low=1,
        high=65536,
        group="Model",
        effective=True,
    )
    max_embedding_dimensions: int = option(
        8192,
        "Longest embedding that a request may ask for; --default-embedding-dimensions, if that is more",
        low=1,
        high=65536,
        group="Model",
        effective=True,
    )

    # -- Scheduling ------------------------------------------------------------------------------------------
    max_num_seqs: int = option(
        5, "Sequences that run at the same time", low=1, group="Scheduling", effective=True
    )
    max_waiting_queue_length: int = option(
        1000, "Sequences that may wait; more are refused with 429", low=0, group="Scheduling", effective=True
    )
    lora_max_overtakes: int = option(
        64,
        "Sequences of other LoRA adapters that may be started before one whose adapter has to wait for a "
        "place in the batch; -1 is any number, as in vLLM",
        low=-1,
        group="Scheduling",
        effective=True,
    )
    max_num_queued_reqs: int | None = option(
        None,
        "Sequences, running and waiting, beyond which requests are refused with 503; unset is no limit",
        low=0,
        group="Scheduling",
        effective=True,
    )
    max_num_queued_tokens: int | None = option(
        None,
        "Prompt tokens, of requests without a first token, at which others are refused with 503; unset is no "
        "limit",
        low=0,
        group="Scheduling",
        effective=True,
    )
    scheduling_policy: Literal["fcfs", "priority"] = option(
        "fcfs",
        "Which request gets a free slot: the one that came first, or among those of the least priority",
        group="Scheduling",
        effective=True,
    )
    stream_interval: int = option(
        1,
        "Tokens that a delta of a stream takes together, after the first, which goes at once",
        low=1,
        group="Scheduling",
        effective=True,
    )
    data_parallel_size: int = option(
        1,
        "Data-parallel ranks, on consecutive ports, each an engine of its own",
        low=1,
        high=8,
        group="Scheduling",
        effective=True,
    )
    data_parallel_rank: int = option(
        -1,
        "The rank that this server is, where each is started on its own; -1 is unset",
        low=-1,
        high=7,
        group="Scheduling",
        effective=True,
    )
    data_parallel_mode: Literal["process", "inline"] | None = option(
        None,
        "Whether each rank has a process, or all share one; unset, it goes by whether there are cores",
        group="Scheduling",
        effective=True,
    )

    # -- Replies ---------------------------------------------------------------------------------------------
    mode: Literal["random", "echo"] = option(
        "random",
        "What is said: random sentences, or the prompt (the last message) again",
        group="Replies",
        effective=True,
    )
    seed: int | None = option(
        None,
        "Seed of everything random; unset, each start differs",
        group="Replies",
        effective=True,
    )
    length_histogram: Literal["readme", "peer"] = option(
        "readme",
        "How random replies spread below max_tokens: six buckets as the README of llm-d-inference-sim has "
        "them, or as its code does",
        group="Replies",
        effective=True,
    )
    echo_ignores_max_tokens: bool = option(
        False, "Echo the whole text even where max_tokens is smaller", group="Replies", effective=True
    )
    strict_context: bool = option(
        False,
        "Refuse a prompt and max_tokens that together exceed the context window, rather than clamp one",
        group="Replies",
        effective=True,
    )
    max_logprobs: int = option(
        20, "Upper bound of logprobs and top_logprobs; -1 is none", low=-1, group="Replies", effective=True
    )
    max_n: int = option(
        128,
        "Upper bound of n, the choices of one request",
        low=1,
        high=16384,
        group="Replies",
        effective=True,
    )
    max_prompts: int = option(
        1024, "Upper bound of prompts in one request", low=1, high=65536, group="Replies", effective=True
    )
    max_stored_responses: int = option(
        1000,
        "Responses (/v1/responses) kept to be asked for, and gone on from, later; 0 is none",
        low=0,
        high=1000000,
        group="Replies",
        effective=True,
    )
    response_role: str = option("assistant", "Role of chat replies", group="Replies", effective=True)
    reasoning_parser: str = option(
        "",
        "Whatever is given, chats think before they answer, and their reasoning is told apart",
        group="Replies",
        effective=True,
    )
    return_tokens_as_token_ids: bool = option(
        False, "Write tokens in logprobs as token_id:N", group="Replies", effective=True
    )
    enable_force_include_usage: bool = option(
        False, "Report usage in every stream, asked for or not", group="Replies", effective=True
    )
    enable_prompt_tokens_details: bool = option(
        True, "Tell cached tokens in usage; without it, null as in vLLM", group="Replies", effective=True
    )

    # -- Latency ---------------------------------------------------------------------------------------------
    latency_calculator: Literal["", "constant", "per-token"] = option(
        "",
        "Which latency options count: the constant ones, those per prompt token, or (empty) the constant "
        "ones where they are set",
        runtime=True,
        group="Latency",
        effective=True,
    )
    time_to_first_token: Duration = option(
        0.0, "Time to the first token", runtime=True, group="Latency", effective=True
    )
    time_to_first_token_std_dev: Duration = option(
        0.0,
        "Its standard deviation, at most 30 % of it; a draw stays within 70 %",
        runtime=True,
        group="Latency",
        effective=True,
    )
    inter_token_latency: Duration = option(
        0.0, "Time between two tokens", runtime=True, group="Latency", effective=True
    )
    inter_token_latency_std_dev: Duration = option(
        0.0,
        "Its standard deviation, at most 30 % of it; a draw stays within 70 %",
        runtime=True,
        group="Latency",
        effective=True,
    )
    prefill_overhead: Duration = option(
        0.0,
        "Fixed part of a prefill by tokens; --latency-calculator says when that counts",
        runtime=True,
        group="Latency",
        effective=True,
    )
    prefill_time_per_token: Duration = option(
        0.0,
        "Part of a prefill by tokens, for each one of the prompt that is not cached",
        runtime=True,
        group="Latency",
        effective=True,
    )
    prefill_time_std_dev: Duration = option(
        0.0, "Standard deviation of a prefill by tokens", runtime=True, group="Latency", effective=True
    )
    kv_cache_transfer_latency: Duration = option(
        0.0,
        "Time to the first token when another server did the prefill",
        runtime=True,
        group="Latency",
        effective=True,
    )
    kv_cache_transfer_latency_std_dev: Duration = option(
        0.0,
        "Its standard deviation, at most 30 % of it; a draw stays within 70 %",
        runtime=True,
        group="Latency",
        effective=True,
    )
    kv_cache_transfer_time_per_token: Duration = option(
        0.0,
        "The same for each prompt token; --latency-calculator says when that counts",
        runtime=True,
        group="Latency",
        effective=True,
    )
    kv_cache_transfer_time_std_dev: Duration = option(
        0.0, "Standard deviation of a transfer by tokens", runtime=True, group="Latency", effective=True
    )
    kv_offloading_time_per_token: Duration = option(
        0.0,
        "Time for each prompt token whose blocks come back from CPU memory, before the rest is prefilled",
        runtime=True,
        group="Latency",
        effective=True,
    )
    time_to_generate_image: Duration = option(
        0.0, "Time an image takes (omni)", runtime=True, group="Latency", effective=True
    )
    time_to_generate_image_std_dev: Duration = option(
        0.0,
        "Its standard deviation, at most 30 % of it; a draw stays within 70 %",
        runtime=True,
        group="Latency",
        effective=True,
    )
    time_factor_under_load: float = option(
        1.0,
        "How much slower everything is with --max-num-seqs sequences than with one; linear between",
        low=1.0,
        high=1e6,
        runtime=True,
        group="Latency",
        effective=True,
    )
    speed: float = option(
        1.0,
        "How many times faster than real time every latency runs, for tests that cannot wait",
        low=1e-3,
        high=1e3,
        runtime=True,
        group="Latency",
        effective=True,
    )

    # -- Tool calls ------------------------------------------------------------------------------------------
    max_tool_call_integer_param: int = option(
        100, "Largest integer argument", group="Tool calls", effective=True
    )
    min_tool_call_integer_param: int = option(
        0, "Smallest integer argument", group="Tool calls", effective=True
    )
    max_tool_call_number_param: float = option(
        100.0, "Largest number argument", group="Tool calls", effective=True
    )
    min_tool_call_number_param: float = option(
        0.0, "Smallest number argument", group="Tool calls", effective=True
    )
    max_tool_call_array_param_length: int = option(
        5, "Longest array argument", low=0, group="Tool calls", effective=True
    )
    min_tool_call_array_param_length: int = option(
        1, "Shortest array argument", low=0, group="Tool calls", effective=True
    )
    tool_call_not_required_param_probability: int = option(
        50,
        "Percentage of optional arguments that are given",
        low=0,
        high=100,
        group="Tool calls",
        effective=True,
    )
    object_tool_call_not_required_field_probability: int = option(
        50,
        "Percentage of optional fields that are given in objects",
        low=0,
        high=100,
        group="Tool calls",
        effective=True,
    )
    tool_call_extra_call_probability: int = option(
        45, "Percentage of going on to one more call", low=0, high=100, group="Tool calls", effective=True
    )
    strict_tool_validation: bool = option(
        False,
        "Refuse tools whose schemas use more than what llm-d-inference-sim knows",
        group="Tool calls",
        effective=True,
    )
    skip_tool_validation: bool = option(
        False,
        "Take tool schemas as they come: the default here, and beats the strict check",
        group="Tool calls",
        effective=True,
    )

    # -- KV cache --------------------------------------------------------------------------------------------
    enable_kvcache: bool = option(
        False,
        "Simulate the KV cache and publish its events",
        group="KV cache",
        effective=True,
    )
    kv_cache_size: int = option(
        1024,
        "Blocks in the cache that sequences can have; vLLM's --num-gpu-blocks-override is one more",
        low=0,
        group="KV cache",
        effective=True,
    )
    num_gpu_blocks_override: int | None = option(
        None,
        "Blocks in the cache as vLLM counts them: one of them is never used",
        low=2,
        group="KV cache",
        effective=True,
    )
    block_size: Literal[8, 16, 32, 64, 128] = option(
        16, "Tokens in a block", group="KV cache", effective=True
    )
    enable_prefix_caching: bool = option(
        False,
        "Find blocks again that were filled before; with --enable-kvcache it is on unless switched off, and "
        "given alone it switches that on",
        group="KV cache",
        effective=True,
    )
    kv_offloading_size: float | None = option(
        None,
        "GiB of CPU memory for copies of KV blocks; none by default",
        low=0.0,
        group="KV cache",
        effective=True,
    )
    kv_offloading_backend: Literal["native", "lmcache"] = option(
        "native", "Told in metrics; changes nothing else", group="KV cache", effective=True
    )
    global_cache_hit_threshold: float = option(
        0.0,
        "Part of a prompt that must be cached, else the request ends at once",
        low=0.0,
        high=1.0,
        runtime=True,
        group="KV cache",
        effective=True,
    )
    dummy_transfer_params: bool = option(
        False,
        "Answer prefills for remote decoding with the fixed values of llm-d-inference-sim",
        group="KV cache",
        effective=True,
    )
    remote_decode_finish_reason: bool = option(
        False,
        "End such prefills with finish_reason remote_decode, as llm-d-inference-sim does",
        group="KV cache",
        effective=True,
    )
    kv_transfer_config: Json | None = option(
        None,
        "vLLM's; its kv_load_failure_policy counts: fail a request whose transfer failed, or recompute; and "
        "its engine_id, by which those that decode know this server",
        group="KV cache",
        effective=True,
    )
    prefix_caching_hash_algo: Literal[
        "sha256", "sha256_cbor", "sha256_cbor_64bit", "xxhash", "xxhash_cbor", "fnv_cbor", "cbor-fnv"
    ] = option(
        "sha256",
        "How blocks are hashed: in one of vLLM's ways, or as llm-d-inference-sim: fnv_cbor, or cbor-fnv",
        group="KV cache",
        effective=True,
    )
    hash_seed: str = option(
        "", "Seed of block hashes", env="PYTHONHASHSEED", group="KV cache", effective=True
    )
    zmq_endpoint: str = option(
        "tcp://127.0.0.1:5557",
        "ZeroMQ address that events are published to; empty is none",
        group="KV cache",
        effective=True,
    )
    zmq_socket: Literal["auto", "bind", "connect"] = option(
        "auto",
        "Wait at the ZeroMQ address for subscribers, or connect to it; auto is vLLM's rule, by which *, ::, "
        "ipc and inproc are waited at",
        group="KV cache",
        effective=True,
    )
    zmq_max_connect_attempts: int = option(
        0,
        "Attempts in a row to connect to the ZeroMQ address, after which it is left alone; 0 is no limit",
        low=0,
        high=10,
        group="KV cache",
        effective=True,
    )
    zmq_hwm: int = option(
        100_000,
        "Batches of events that may wait for one subscriber, who misses more",
        low=1,
        high=10_000_000,
        group="KV cache",
        effective=True,
    )
    event_batch_size: int = option(
        16, "Events sent in one message at most", low=1, group="KV cache", effective=True
    )
    event_flush_interval: Duration = option(
        0.0,
        "How long events may wait for more to fill a message; 0 is until the end of the engine's pass",
        low=0.0,
        high=60.0,
        group="KV cache",
        effective=True,
    )
    kv_event_format: Literal["map", "array"] = option(
        "map",
        "How events are encoded: as maps, or as arrays, like vLLM before June 2026 and llm-d-inference-sim",
        group="KV cache",
        effective=True,
    )
    use_vllm_map_event_format: bool = option(
        True,
        "The same in llm-d-inference-sim's words: off is array; --kv-event-format wins where it is given",
        group="KV cache",
        effective=True,
    )
    kv_event_hashes: Literal["int", "bytes", "1", "0"] = option(
        "int",
        "Hashes in events: integers of 64 bits, or bytes; 1 and 0 are how vLLM's variable puts it",
        env="VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES",
        group="KV cache",
        effective=True,
    )
    kv_event_lora_keys: bool = option(
        False,
        "Have extra_keys name the adapter, too, as in vLLM; llm-d-router does not find such blocks",
        group="KV cache",
        effective=True,
    )
    kv_events_replay_endpoint: str = option(
        "", "ZeroMQ address that answers replay requests; empty is none", group="KV cache", effective=True
    )
    kv_events_replay_queue_size: int = option(
        1024, "Event batches kept for replay", low=1, high=10_000_000, group="KV cache", effective=True
    )
    kv_events_topic: str = option(
        "",
        "Topic of events; empty is kv@IP:PORT@MODEL, as routers expect it",
        group="KV cache",
        effective=True,
    )
    kv_events_config: Json | None = option(
        None,
        "vLLM's; enable_kv_cache_events in it has the KV cache simulated too; what it leaves out is as in "
        "vLLM, unless a flag says it",
        group="KV cache",
        effective=True,
    )
    kv_event_fault_rate: float = option(
        0.0,
        "Percentage of event batches that meet one of --kv-event-faults",
        low=0.0,
        high=100.0,
        runtime=True,
        group="KV cache",
        effective=True,
    )
    kv_event_faults: tuple[str, ...] = option(
        (),
        "Faults of the publisher to choose from, as in 'drop' or 'delay; for=200ms'; docs/kv-events.md has "
        "the kinds",
        runtime=True,
        group="KV cache",
        effective=True,
    )

    # -- Failures --------------------------------------------------------------------------------------------
    failure_injection_rate: int = option(
        0,
        "Percentage of requests that get an error in place of a reply",
        low=0,
        high=100,
        runtime=True,
        group="Failures",
        effective=True,
    )
    failure_types: tuple[FailureType, ...] = option(
        (),
        "Errors to choose from; none given is all of them",
        runtime=True,
        group="Failures",
        effective=True,
    )
    faults: tuple[str, ...] = option(
        (),
        "Faults to choose from, each as in 'stall; after=3; for=2s'; docs/failures.md has the kinds",
        runtime=True,
        group="Failures",
        effective=True,
    )
    fault_rate: float = option(
        100.0,
        "Percentage of requests that meet one of --faults",
        low=0.0,
        high=100.0,
        runtime=True,
        group="Failures",
        effective=True,
    )
    kv_transfer_failure_rate: float = option(
        0.0,
        "Percentage of transfers of KV blocks from another server's prefill that fail",
        low=0.0,
        high=100.0,
        runtime=True,
        group="Failures",
        effective=True,
    )
    fault_headers: bool = option(
        True,
        "Let requests ask to fail, with the headers X-Fault and X-Return-Error",
        group="Failures",
        effective=True,
    )

    # -- Metrics ---------------------------------------------------------------------------------------------
    disable_log_stats: bool = option(
        False, "Leave out the vllm: metrics and the periodic log line", group="Metrics", effective=True
    )
    kv_cache_metrics: bool = option(
        False,
        "Measure how long KV blocks live, lie idle and are not hit, on some of them",
        group="Metrics",
        effective=True,
    )
    kv_cache_metrics_sample: float = option(
        0.01,
        "The part of KV blocks that --kv-cache-metrics measures, above 0 to 1",
        low=1e-6,
        high=1.0,
        group="Metrics",
        effective=True,
    )
    fake_metrics: Document | None = option(
        None,
        "Values and functions to report in place of measured metrics (docs/scripted-metrics.md)",
        runtime=True,
        group="Metrics",
        effective=True,
    )
    fake_metrics_refresh_interval: Duration = option(
        0.1,
        "How often functions in --fake-metrics are computed; at most a thousand times a second",
        low=1e-6,
        group="Metrics",
        effective=True,
    )

    # -- Dataset and tokenizer -------------------------------------------------------------------------------
    dataset_path: str = option(
        "",
        "SQLite file with replies, by prompt; preset text where it is in use by another process",
        group="Dataset and tokenizer",
        effective=True,
    )
    dataset_url: str = option(
        "",
        "Where --dataset-path is downloaded from when it is missing",
        group="Dataset and tokenizer",
        effective=True,
    )
    dataset_in_memory: bool = option(
        False, "Load the whole dataset at start", group="Dataset and tokenizer", effective=True
    )
    dataset_table_name: str = option(
        "llmd", "Table of the dataset", group="Dataset and tokenizer", effective=True
    )
    tokenizer: str = option(
        "",
        "Folder with a tokenizer.json, or model of the Hugging Face hub, whose tokenizer is used; default: "
        "--model",
        group="Dataset and tokenizer",
        effective=True,
    )
    tokenizer_revision: str = option(
        "",
        "Branch, tag or commit of the tokenizer on the hub; default: main",
        group="Dataset and tokenizer",
        effective=True,
    )
    tokenizer_mode: str = option(
        "auto",
        "No matter: in every mode a tokenizer is read from its tokenizer.json",
        group="Dataset and tokenizer",
        effective=True,
    )
    skip_tokenizer_init: bool = option(
        False, "As --force-dummy-tokenizer", group="Dataset and tokenizer", effective=True
    )
    force_dummy_tokenizer: bool = option(
        False,
        "Use the built-in tokenizer whatever the model, and look for no other",
        group="Dataset and tokenizer",
        effective=True,
    )
    tokenizers_cache_dir: str = option(
        "",
        "Cache of downloaded tokenizers in place of the one that HF_HUB_CACHE or HF_HOME names",
        group="Dataset and tokenizer",
        effective=True,
    )
    chat_template: str = option(
        "",
        "Chat template in Jinja, or a file of one, in place of the model's own",
        group="Dataset and tokenizer",
        effective=True,
    )
    chat_template_content_format: Literal["auto", "string", "openai"] = option(
        "auto",
        "What templates get as a message's content: a text, a list of parts, or what they seem to want",
        group="Dataset and tokenizer",
        effective=True,
    )
    default_chat_template_kwargs: Json | None = option(
        None,
        "What templates are given besides, where a request says nothing else",
        group="Dataset and tokenizer",
        effective=True,
    )
    exclude_tools_when_tool_choice_none: bool = option(
        False,
        "Show templates no tools where tool_choice is none",
        group="Dataset and tokenizer",
        effective=True,
    )
    trust_request_chat_template: bool = option(
        False,
        "Let requests bring a chat template of their own",
        group="Dataset and tokenizer",
        effective=True,
    )
    render_url: str = option(
        "http://localhost:8082",
        "Server whose /v1/.../render routes find the tokens of prompts; asked only if this is given",
        group="Dataset and tokenizer",
        effective=True,
    )
    render_timeout: Duration = option(
        30.0,
        "How long it may take to answer",
        low=1e-3,
        group="Dataset and tokenizer",
        effective=True,
    )
    mm_render_timeout: Duration = option(
        60.0,
        "The same for conversations with images",
        low=1e-3,
        group="Dataset and tokenizer",
        effective=True,
    )

    # -- Logging ---------------------------------------------------------------------------------------------
    log_format: Literal["text", "json"] = option(
        "text", "Form of log lines: for people, or a JSON object each", group="Logging", effective=True
    )
    access_log: bool = option(
        False, "Log one line for each request that ended", group="Logging", effective=True
    )
    disable_uvicorn_access_log: bool = option(
        False, "vLLM's switch for access lines; where it is given, it counts", group="Logging", effective=True
    )
    disable_access_log_for_endpoints: str = option(
        "/health,/health/ready,/ready,/ping,/metrics,/metrics/",
        "Paths without access lines, separated by commas; empty logs all",
        group="Logging",
        effective=True,
    )
    log_http: bool = option(
        False,
        "Log requests and responses in full: secrets masked, 512 KiB of a body, no streams",
        group="Logging",
        effective=True,
    )
    log_stats_interval: DurationInSeconds = option(
        10.0,
        "How often a busy engine logs its throughput; a bare number is seconds",
        low=0.1,
        high=86400.0,
        env="VLLM_LOG_STATS_INTERVAL",
        group="Logging",
        effective=True,
    )
    v: int = option(
        2,
        "Verbosity: 0 errors, 1 warnings, 2 info, 4 debug, 5 trace",
        aliases=("-v",),
        low=0,
        group="Logging",
        effective=True,
    )
    vmodule: str = option(
        "", "Verbosity by module, as pattern=N,... (drain=4, web.*=5)", group="Logging", effective=True
    )
    logtostderr: bool = option(
        True,
        "Log to stderr rather than to files; without a file that is so anyway",
        group="Logging",
        effective=True,
    )
    alsologtostderr: bool = option(
        False, "Log to stderr as well as to files", group="Logging", effective=True
    )
    alsologtostderrthreshold: str = option(
        "0", "Severity from which --alsologtostderr applies", group="Logging", effective=True
    )
    stderrthreshold: str = option(
        "2",
        "Severity from which lines in files go to stderr too: 0 INFO, 1 WARNING, 2 ERROR, 3 FATAL",
        group="Logging",
        effective=True,
    )
    legacy_stderr_threshold_behavior: bool = option(
        True, "Ignore --stderrthreshold under --logtostderr", group="Logging", effective=True
    )
    log_file: str = option("", "Log to this file", group="Logging", effective=True)
    log_dir: str = option(
        "",
        "Log to llmdsim.INFO, .WARNING and .ERROR in this directory, unless --log-file is given",
        group="Logging",
        effective=True,
    )
    log_file_max_size: int = option(
        1800,
        "Megabytes at which a log file is put aside as .1 and a new one begun; 0 is unlimited",
        low=0,
        group="Logging",
        effective=True,
    )
    one_output: bool = option(
        False, "Write a line only to the file of its own severity", group="Logging", effective=True
    )
    skip_headers: bool = option(
        False, "Leave time, level and name of lines for people out", group="Logging", effective=True
    )
    skip_log_headers: bool = option(
        False, "Leave the heading of log files out", group="Logging", effective=True
    )
    add_dir_header: bool = option(
        False, "Add a module's package to its name", group="Logging", effective=True
    )
    log_backtrace_at: str = option(":0", _UNUSED, group="Logging", effective=True)

    # -- Pod -------------------------------------------------------------------------------------------------
    pod_name: str = option(
        "", "Sent as x-inference-pod, with x-inference-port", env="POD_NAME", group="Pod", effective=True
    )
    pod_namespace: str = option(
        "", "Sent as x-inference-namespace", env="POD_NAMESPACE", group="Pod", effective=True
    )
    pod_ip: str = option(
        "",
        "Told to whoever reads our KV blocks; part of the topic of KV-cache events",
        env="POD_IP",
        group="Pod",
        effective=True,
    )
    vllm_server_dev_mode: bool = option(
        False,
        "Development mode, without which /sleep has no effect and /admin/crash and /admin/kv are refused; "
        "all routes are there anyway",
        env="VLLM_SERVER_DEV_MODE",
        group="Pod",
        effective=True,
    )

    # -- For vLLM's sake -------------------------------------------------------------------------------------
    enforce_eager: bool = option(False, _UNUSED, group="For vLLM's sake", effective=True)
    tensor_parallel_size: int = option(
        0,
        "Told to whoever reads our KV blocks (tp_size); changes nothing else",
        low=0,
        group="For vLLM's sake",
        effective=True,
    )
    mm_processor_kwargs: Json | None = option(None, _UNUSED, group="For vLLM's sake", effective=True)
    ec_transfer_config: Json | None = option(None, _UNUSED, group="For vLLM's sake", effective=True)

    ignored_flags: tuple[str, ...] = field(default=())
    """Not an option: the vLLM flags that were given and mean nothing here, for one warning at start."""

    asked_max_model_len: int = field(default=0, compare=False)
    """Not an option: the context that was asked for, where the KV cache cannot hold one so long."""

    given: frozenset[str] = field(default=frozenset(), compare=False)
    """Not an option: the fields that some source gave, as opposed to those left at their default."""

    def __post_init__(self) -> None:
        """Resolve the defaults that follow another option, so that no reader has to."""
        if not self.served_model_name and self.model:
            object.__setattr__(self, "served_model_name", (self.model,))
        if not self.max_cpu_loras:
            object.__setattr__(self, "max_cpu_loras", self.max_loras)
        self._resolve_cache()

    def _resolve_cache(self) -> None:
        resolve = partial(object.__setattr__, self)
        if self.num_gpu_blocks_override is not None and "kv_cache_size" not in self.given:
            resolve("kv_cache_size", self.num_gpu_blocks_override - 1)
        events = self.kv_events_config or {}
        if events.get("enable_kv_cache_events") is True and "enable_kvcache" not in self.given:
            # vLLM's users have a cache without asking for it.
            resolve("enable_kvcache", True)
        if self.enable_prefix_caching and "enable_kvcache" not in self.given:
            resolve("enable_kvcache", True)
        if self.enable_kvcache and "enable_prefix_caching" not in self.given:
            resolve("enable_prefix_caching", True)
        if not self.asked_max_model_len:
            resolve("asked_max_model_len", self.max_model_len)
        if self.enable_kvcache:
            most = self.kv_cache_size * self.block_size
            resolve("max_model_len", min(self.asked_max_model_len, most))


OPTIONS: Final[dict[str, Option]] = {
    known.name: known
    for known in (
        row(column.name, column.type, column.metadata["option"])
        for column in fields(Config)
        if "option" in column.metadata
    )
}
"""Every option by its name, in the order of the table."""
