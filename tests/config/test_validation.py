"""Rules between options."""

import pytest

from llmdsim.config import Config, ConfigError, LoraModule, parse, validate


@pytest.mark.parametrize(
    "settings",
    [
        {"time_to_first_token": 0.1, "time_to_first_token_std_dev": 0.03},
        {"inter_token_latency": 0.01, "inter_token_latency_std_dev": 0.003},
        {"inter_token_latency": 0.7, "inter_token_latency_std_dev": 0.21},
        {"prefill_time_std_dev": 5.0},
        {"kv_cache_transfer_time_std_dev": 5.0},
        {"kv_transfer_config": {}},
        {"kv_transfer_config": {"kv_connector": "NixlConnector", "kv_role": "kv_both", "more": [1]}},
        {"kv_transfer_config": {"kv_role": None, "kv_load_failure_policy": "recompute"}},
        {"max_loras": 4},
        {"max_loras": 4, "max_cpu_loras": 4},
        {"lora_modules": (LoraModule("a"), LoraModule("b", "", ""), LoraModule("c", "", "m"))},
        {"served_model_name": ("s",), "lora_modules": (LoraModule("a", "", "s"),)},
        {"ssl_certfile": "c", "ssl_keyfile": "k"},
        {"ssl_certfile": "c", "ssl_keyfile": "k", "ssl_ca_certs": "a", "ssl_cert_reqs": 2},
        {"self_signed_certs": True, "ssl_ca_certs": "a"},
        {"dataset_path": "d"},
        {"dataset_path": "d", "dataset_url": "https://h/u"},
        {"port": 65535},
        {"port": 65528, "data_parallel_size": 8},
        {"port": 65535, "data_parallel_size": 8, "data_parallel_rank": 3},
        {"grpc_port": 8001},
        {"grpc_port": 65528, "data_parallel_size": 8},
        {"grpc_port": 8001, "data_parallel_size": 8, "data_parallel_rank": 3},
        {"grpc_port": 8000, "listen": ("unix:a",)},
        {"kv_events_replay_endpoint": "tcp://*:5558"},
        {"kv_events_replay_endpoint": "tcp://*:5565", "data_parallel_size": 8},
        {"kv_events_replay_endpoint": "tcp://*:5558", "data_parallel_size": 8, "data_parallel_rank": 1},
        {"kv_events_replay_endpoint": "tcp://*:5557", "zmq_endpoint": ""},
        {"kv_events_replay_endpoint": "ipc:///tmp/x", "zmq_endpoint": "ipc:///tmp/y"},
        {"max_tool_call_integer_param": 5, "min_tool_call_integer_param": 5},
    ],
)
def test_allows(settings: dict[str, object]) -> None:
    validate(Config(model="m", **settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": ""}, "--model: a model is required (or SIM_MODEL, or model in the --config file)"),
        (
            {"time_to_first_token": 0.1, "time_to_first_token_std_dev": 0.031},
            "--time-to-first-token-std-dev: 31ms is more than 30 % of --time-to-first-token, which is 100ms",
        ),
        (
            {"inter_token_latency_std_dev": 0.001},
            "--inter-token-latency-std-dev: 1ms is more than 30 % of --inter-token-latency, which is 0s",
        ),
        (
            {"kv_cache_transfer_latency": 0.001, "kv_cache_transfer_latency_std_dev": 0.0005},
            "--kv-cache-transfer-latency-std-dev: 500\u00b5s is more than 30 % of "
            "--kv-cache-transfer-latency, which is 1ms",
        ),
        (
            {"time_to_generate_image": 1.0, "time_to_generate_image_std_dev": 0.4},
            "--time-to-generate-image-std-dev: 400ms is more than 30 % of "
            "--time-to-generate-image, which is 1s",
        ),
        (
            {"kv_transfer_config": {"kv_load_failure_policy": "retry"}},
            "--kv-transfer-config: kv_load_failure_policy: 'retry' is not one of fail, recompute",
        ),
        (
            {"kv_transfer_config": {"kv_role": ["kv_both"]}},
            "--kv-transfer-config: kv_role: ['kv_both'] is not one of kv_producer, kv_consumer, kv_both",
        ),
        ({"max_loras": 4, "max_cpu_loras": 2}, "--max-cpu-loras: 2 is less than --max-loras, which is 4"),
        (
            {"max_tool_call_integer_param": -1},
            "--max-tool-call-integer-param: -1 is less than --min-tool-call-integer-param, which is 0",
        ),
        (
            {"min_tool_call_number_param": 100.5},
            "--max-tool-call-number-param: 100.0 is less than --min-tool-call-number-param, which is 100.5",
        ),
        (
            {"max_tool_call_array_param_length": 0},
            "--max-tool-call-array-param-length: 0 is less than "
            "--min-tool-call-array-param-length, which is 1",
        ),
        (
            {"lora_modules": (LoraModule("a", "", "other"),)},
            "--lora-modules: the base model of 'a' is 'other', which is not served here",
        ),
        (
            {"served_model_name": ("s", "t"), "lora_modules": (LoraModule("t", "/t"),)},
            "--lora-modules: 't' is the name of the model itself",
        ),
        (
            {"lora_modules": (LoraModule("a", "/a"), LoraModule("b", "/b"), LoraModule("a", "/c"))},
            "--lora-modules: there are two of the name 'a'",
        ),
        ({"ssl_certfile": "c"}, "--ssl-certfile and --ssl-keyfile: one is given without the other"),
        ({"ssl_keyfile": "k"}, "--ssl-certfile and --ssl-keyfile: one is given without the other"),
        (
            {"self_signed_certs": True, "ssl_certfile": "c", "ssl_keyfile": "k"},
            "--self-signed-certs: cannot be used together with --ssl-certfile and --ssl-keyfile",
        ),
        (
            {"ssl_ca_certs": "c"},
            "--ssl-ca-certs: needs --ssl-certfile and --ssl-keyfile, or --self-signed-certs",
        ),
        *(
            (
                {"self_signed_certs": True, "ssl_cert_reqs": reqs},
                "--ssl-cert-reqs: needs --ssl-ca-certs, the CAs of the certificates that clients are "
                "asked for",
            )
            for reqs in (1, 2)
        ),
        (
            {"dataset_path": "d", "dataset_url": "https://user:secret@h/u"},
            "--dataset-url: a user or a password in the URL cannot be used",
        ),
        ({"dataset_url": "u"}, "--dataset-url: needs --dataset-path, the file to download to"),
        *(
            (
                {"dataset_path": "d", "dataset_url": url},
                f"--dataset-url: {url!r} is not a URL of http or https",
            )
            for url in ("u", "ftp://h/u", "http:///u", "http://[", "https://h/é")
        ),
        (
            {"dataset_path": "d", "mode": "echo"},
            "--dataset-path and --dataset-url: cannot be used with --mode echo",
        ),
        (
            {"dataset_table_name": "a; drop table b"},
            "--dataset-table-name: 'a; drop table b' is not a plain name (letters, digits, _)",
        ),
        (
            {"data_parallel_size": 2, "data_parallel_rank": 2},
            "--data-parallel-rank: 2 is none of the 2 ranks of --data-parallel-size, which begin with 0",
        ),
        (
            {"port": 65529, "data_parallel_size": 8},
            "--data-parallel-size: 8 ports from --port 65529 on end beyond 65535",
        ),
        (
            {"grpc_port": 65529, "data_parallel_size": 8},
            "--data-parallel-size: 8 ports from --grpc-port 65529 on end beyond 65535",
        ),
        ({"grpc_port": 8000}, "--grpc-port: 8000 is one of the ports from --port 8000 on"),
        (
            {"grpc_port": 8007, "data_parallel_size": 8},
            "--grpc-port: 8007 is one of the ports from --port 8000 on",
        ),
        (
            {"grpc_port": 7993, "data_parallel_size": 8},
            "--grpc-port: 7993 is one of the ports from --port 8000 on",
        ),
        (
            {"grpc_port": 8000, "listen": ("unix:a",), "given": frozenset({"port"})},
            "--grpc-port: 8000 is one of the ports from --port 8000 on",
        ),
        (
            {"grpc_port": 50051, "ignored_flags": ("grpc",)},
            "--grpc-port: cannot be used together with --grpc, as in vLLM",
        ),
        (
            {"kv_events_replay_endpoint": "tcp://*:5557"},
            "--kv-events-replay-endpoint: 'tcp://*:5557' uses a port of --zmq-endpoint "
            "'tcp://127.0.0.1:5557' "
            "(1 each)",
        ),
        (
            {"kv_events_replay_endpoint": "tcp://*:5558", "data_parallel_size": 2},
            "--kv-events-replay-endpoint: 'tcp://*:5558' uses a port of --zmq-endpoint "
            "'tcp://127.0.0.1:5557' "
            "(2 each)",
        ),
    ],
)
def test_refuses(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate(Config(**{"model": "m", **settings}))  # type: ignore[arg-type]
    assert str(caught.value) == message


def test_parsing_validates() -> None:
    with pytest.raises(ConfigError, match=r"more than 30 %"):
        parse(["m", "--time-to-first-token", "100ms", "--time-to-first-token-std-dev", "40ms"], {})
