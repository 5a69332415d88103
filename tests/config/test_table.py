"""The table holds every option, with the defaults its users know, and each row fits its field."""

import dataclasses
import itertools
import json
import typing

import pytest

from llmdsim.config import OPTIONS, Config, Option
from llmdsim.config.values import read

# Name, default. Those of llm-d-inference-sim as its users know them; then those of vLLM and our own.
DEFAULTS: dict[str, object] = {
    "config": "",
    "port": 8000,
    "max-request-body-size-mb": 64,
    "model": "",
    "served-model-name": (),
    "enable-lora": False,
    "lora-info": "auto",
    "lora-load-time": 0.0,
    "lora-max-overtakes": 64,
    "max-loras": 1,
    "max-cpu-loras": 0,
    "max-num-seqs": 5,
    "max-waiting-queue-length": 1000,
    "max-num-queued-reqs": None,
    "max-num-queued-tokens": None,
    "scheduling-policy": "fcfs",
    "stream-interval": 1,
    "max-model-len": 1024,
    "lora-modules": (),
    "runtime-lora": True,
    "mode": "random",
    "seed": None,
    "startup-duration": 0.0,
    "startup-serves": False,
    "keep-alive-on-engine-death": False,
    "enable-sleep-mode": False,
    "sleep-serves": False,
    "enable-tokenizer-info-endpoint": False,
    "enable-request-id-headers": False,
    "log-http": False,
    "mm-encoder-only": False,
    "omni": False,
    "image-emission-rate": 0,
    "default-embedding-dimensions": 384,
    "max-embedding-dimensions": 8192,
    "latency-calculator": "",
    "time-to-first-token": 0.0,
    "time-to-first-token-std-dev": 0.0,
    "inter-token-latency": 0.0,
    "inter-token-latency-std-dev": 0.0,
    "kv-cache-transfer-latency": 0.0,
    "kv-cache-transfer-latency-std-dev": 0.0,
    "prefill-overhead": 0.0,
    "prefill-time-per-token": 0.0,
    "prefill-time-std-dev": 0.0,
    "kv-cache-transfer-time-per-token": 0.0,
    "kv-cache-transfer-time-std-dev": 0.0,
    "kv-offloading-time-per-token": 0.0,
    "time-to-generate-image": 0.0,
    "time-to-generate-image-std-dev": 0.0,
    "time-factor-under-load": 1.0,
    "speed": 1.0,
    "max-tool-call-integer-param": 100,
    "min-tool-call-integer-param": 0,
    "max-tool-call-number-param": 100.0,
    "min-tool-call-number-param": 0.0,
    "max-tool-call-array-param-length": 5,
    "min-tool-call-array-param-length": 1,
    "tool-call-not-required-param-probability": 50,
    "object-tool-call-not-required-field-probability": 50,
    "tool-call-extra-call-probability": 45,
    "skip-tool-validation": False,
    "strict-tool-validation": False,
    "enable-kvcache": False,
    "kv-cache-size": 1024,
    "kv-offloading-size": None,
    "kv-offloading-backend": "native",
    "global-cache-hit-threshold": 0.0,
    "block-size": 16,
    "dummy-transfer-params": False,
    "remote-decode-finish-reason": False,
    "kv-transfer-config": None,
    "prefix-caching-hash-algo": "sha256",
    "hash-seed": "",
    "zmq-endpoint": "tcp://127.0.0.1:5557",
    "zmq-socket": "auto",
    "zmq-max-connect-attempts": 0,
    "zmq-hwm": 100_000,
    "event-batch-size": 16,
    "event-flush-interval": 0.0,
    "kv-event-format": "map",
    "use-vllm-map-event-format": True,
    "kv-event-hashes": "int",
    "kv-event-lora-keys": False,
    "kv-events-replay-endpoint": "",
    "kv-events-replay-queue-size": 1024,
    "kv-events-topic": "",
    "kv-events-config": None,
    "kv-event-fault-rate": 0.0,
    "kv-event-faults": (),
    "failure-injection-rate": 0,
    "failure-types": (),
    "faults": (),
    "fault-rate": 100.0,
    "kv-transfer-failure-rate": 0.0,
    "fault-headers": True,
    "fake-metrics": None,
    "fake-metrics-refresh-interval": 0.1,
    "kv-cache-metrics": False,
    "kv-cache-metrics-sample": 0.01,
    "data-parallel-size": 1,
    "data-parallel-rank": -1,
    "data-parallel-mode": None,
    "dataset-path": "",
    "dataset-url": "",
    "dataset-in-memory": False,
    "dataset-table-name": "llmd",
    "tokenizers-cache-dir": "",
    "tokenizer": "",
    "tokenizer-revision": "",
    "tokenizer-mode": "auto",
    "skip-tokenizer-init": False,
    "chat-template": "",
    "chat-template-content-format": "auto",
    "default-chat-template-kwargs": None,
    "exclude-tools-when-tool-choice-none": False,
    "trust-request-chat-template": False,
    "render-url": "http://localhost:8082",
    "render-timeout": 30.0,
    "mm-render-timeout": 60.0,
    "force-dummy-tokenizer": False,
    "ssl-certfile": "",
    "ssl-keyfile": "",
    "ssl-ca-certs": "",
    "ssl-cert-reqs": 0,
    "ssl-ciphers": "",
    "enable-ssl-refresh": False,
    "self-signed-certs": False,
    "mm-processor-kwargs": None,
    "ec-transfer-config": None,
    "enforce-eager": False,
    "enable-prefix-caching": False,
    "num-gpu-blocks-override": None,
    "tensor-parallel-size": 0,
    "v": 2,
    "vmodule": "",
    "logtostderr": True,
    "alsologtostderr": False,
    "log-file": "",
    "log-dir": "",
    "log-file-max-size": 1800,
    "one-output": False,
    "skip-headers": False,
    "skip-log-headers": False,
    "stderrthreshold": "2",
    "alsologtostderrthreshold": "0",
    "legacy-stderr-threshold-behavior": True,
    "add-dir-header": False,
    "log-backtrace-at": ":0",
    "host": "",
    "listen": (),
    "grpc-port": 0,
    "admin-listen": (),
    "root-path": "",
    "allowed-origins": (),
    "allowed-methods": ("*",),
    "allowed-headers": ("*",),
    "allow-credentials": False,
    "disable-fastapi-docs": False,
    "keep-alive-timeout": 75.0,
    "sse-keep-alive-interval": 0.0,
    "half-close": "abort",
    "max-header-size": 65536,
    "http2-max-concurrent-streams": 4096,
    "shutdown-timeout": 25.0,
    "api-key": (),
    "strict-context": False,
    "length-histogram": "readme",
    "echo-ignores-max-tokens": False,
    "max-logprobs": 20,
    "max-n": 128,
    "max-prompts": 1024,
    "max-stored-responses": 1000,
    "response-role": "assistant",
    "return-tokens-as-token-ids": False,
    "reasoning-parser": "",
    "enable-force-include-usage": False,
    "enable-prompt-tokens-details": True,
    "log-format": "text",
    "access-log": False,
    "disable-access-log-for-endpoints": "/health,/health/ready,/ready,/ping,/metrics,/metrics/",
    "disable-log-stats": False,
    "disable-uvicorn-access-log": False,
    "log-stats-interval": 10.0,
    "pod-name": "",
    "pod-namespace": "",
    "pod-ip": "",
    "vllm-server-dev-mode": False,
}

RUNTIME = {
    "image-emission-rate",
    "lora-load-time",
    "latency-calculator",
    "time-to-first-token",
    "time-to-first-token-std-dev",
    "inter-token-latency",
    "inter-token-latency-std-dev",
    "kv-cache-transfer-latency",
    "kv-cache-transfer-latency-std-dev",
    "prefill-overhead",
    "prefill-time-per-token",
    "prefill-time-std-dev",
    "kv-cache-transfer-time-per-token",
    "kv-cache-transfer-time-std-dev",
    "kv-offloading-time-per-token",
    "time-to-generate-image",
    "time-to-generate-image-std-dev",
    "time-factor-under-load",
    "speed",
    "failure-injection-rate",
    "failure-types",
    "faults",
    "fault-rate",
    "kv-transfer-failure-rate",
    "fake-metrics",
    "global-cache-hit-threshold",
    "kv-event-fault-rate",
    "kv-event-faults",
}

VARIABLES = {
    "SIM_MODEL": "model",
    "PYTHONHASHSEED": "hash-seed",
    "VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES": "kv-event-hashes",
    "POD_NAME": "pod-name",
    "POD_NAMESPACE": "pod-namespace",
    "POD_IP": "pod-ip",
    "VLLM_SERVER_DEV_MODE": "vllm-server-dev-mode",
    "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH": "keep-alive-on-engine-death",
    "VLLM_API_KEY": "api-key",
    "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "runtime-lora",
    "VLLM_LOG_STATS_INTERVAL": "log-stats-interval",
}


def test_every_option_is_there_with_its_default() -> None:
    assert {name: option.default for name, option in OPTIONS.items()} == DEFAULTS


def test_options_that_may_change_at_run_time() -> None:
    assert {name for name, option in OPTIONS.items() if option.runtime} == RUNTIME


def test_environment_variables() -> None:
    assert {option.env: name for name, option in OPTIONS.items() if option.env} == VARIABLES


def test_only_the_api_key_is_secret() -> None:
    assert [name for name, option in OPTIONS.items() if option.secret] == ["api-key"]


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.name)
def test_a_default_has_the_type_of_its_field(option: Option) -> None:
    allowed = {
        "bool": bool,
        "int": int,
        "float": float,
        "str": str,
        "duration": float,
        "json": dict,
        "texts": tuple,
    }
    if option.many:
        assert option.default == ()
    elif option.optional:
        assert option.default is None
    else:
        assert type(option.default) is allowed[option.kind]


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.name)
def test_a_default_is_a_value_one_may_give(option: Option) -> None:
    if option.default in ((), None):
        return
    text = f"{option.default}s" if option.kind == "duration" else str(option.default)
    if option.kind == "texts":
        text = json.dumps(option.default)
    assert read(option, text, "--x") == option.default


def test_every_field_but_three_is_an_option() -> None:
    fields = {column.name for column in dataclasses.fields(Config)}
    assert fields - {option.field for option in OPTIONS.values()} == {
        "ignored_flags",
        "given",
        "asked_max_model_len",
    }


def test_groups_are_not_torn_apart() -> None:
    groups = [option.group for option in OPTIONS.values()]
    assert len(dict.fromkeys(groups)) == 1 + sum(one != two for one, two in itertools.pairwise(groups))


def test_choices_come_from_the_annotation() -> None:
    assert OPTIONS["mode"].choices == ("random", "echo")
    assert OPTIONS["block-size"].choices == (8, 16, 32, 64, 128)
    assert OPTIONS["failure-types"].choices == (
        "rate_limit",
        "invalid_api_key",
        "context_length",
        "server_error",
        "invalid_request",
        "model_not_found",
    )
    assert typing.get_args(Config.__annotations__["half_close"]) == ("abort", "serve")


def test_defaults_that_follow_another_option() -> None:
    config = Config(model="m", max_loras=3)
    assert config.served_model_name == ("m",)
    assert config.max_cpu_loras == 3
    assert Config(model="m", served_model_name=("a", "b")).served_model_name == ("a", "b")


def test_a_config_is_frozen_and_keeps_secrets_out_of_its_repr() -> None:
    config = Config(model="m", api_key=("s3cret",))
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.port = 1  # type: ignore[misc]
    assert "s3cret" not in repr(config)
