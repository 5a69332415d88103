"""Every flag of `vllm serve` is accepted in its natural form; the list is vllm_serve_flags.txt."""

import shlex
from pathlib import Path

import pytest

from llmdsim.config import OPTIONS, parse
from llmdsim.config.vllm_flags import VLLM_FLAGS

LINES = Path(__file__).with_name("vllm_serve_flags.txt").read_text().splitlines()


@pytest.mark.parametrize("line", LINES)
def test_is_accepted(line: str) -> None:
    config = parse([*shlex.split(line), "--max-n", "9"], {"SIM_MODEL": "m"})
    assert config.max_n == 9, "it took no more than its own"
    ours = config.given - {"max_n", "model"} or line.startswith("--model ")
    assert len(config.ignored_flags) == (0 if ours else 1)


def test_the_list_is_whole() -> None:
    assert len(VLLM_FLAGS) == 320
    assert len({line.split()[0].split("=")[0].split(".")[0] for line in LINES}) > 480


@pytest.mark.parametrize(
    "name",
    [
        "host",
        "port",
        "model",
        "served-model-name",
        "lora-modules",
        "enable-lora",
        "max-loras",
        "max-cpu-loras",
        "max-num-seqs",
        "max-model-len",
        "seed",
        "enable-sleep-mode",
        "enable-request-id-headers",
        "mm-encoder-only",
        "block-size",
        "data-parallel-size",
        "data-parallel-rank",
        "ssl-certfile",
        "ssl-keyfile",
        "ssl-ca-certs",
        "ssl-cert-reqs",
        "ssl-ciphers",
        "enable-ssl-refresh",
        "mm-processor-kwargs",
        "ec-transfer-config",
        "enforce-eager",
        "enable-prefix-caching",
        "tensor-parallel-size",
        "api-key",
        "max-logprobs",
        "shutdown-timeout",
        "response-role",
        "return-tokens-as-token-ids",
        "config",
        "enable-force-include-usage",
        "enable-prompt-tokens-details",
        "disable-log-stats",
        "root-path",
        "allowed-origins",
        "allowed-methods",
        "allowed-headers",
        "allow-credentials",
        "disable-fastapi-docs",
    ],
)
def test_those_that_are_options_are_ours(name: str) -> None:
    assert name in VLLM_FLAGS
    assert name in OPTIONS


@pytest.mark.parametrize(
    ("argv", "ignored"),
    [
        ([], ()),
        (["--port", "1", "-tp", "2"], ()),
        (["--dtype", "auto", "--port", "1", "--enable-dbo"], ("dtype", "enable-dbo")),
        (["--enable-dbo", "--no-enable-dbo", "--disable-dbo", "--enable-dbo=true"], ("enable-dbo",)),
        (["--no-disable-log-requests", "--disable_log_requests"], ("enable-log-requests",)),
        (["-cc.mode", "3", "--compilation_config.cudagraph_mode=NONE"], ("compilation-config",)),
        (["-O3"], ("optimization-level",)),
        (["-O", "3"], ("optimization-level",)),
        (["-O=3"], ("optimization-level",)),
        (["-n2", "-r0"], ("nnodes", "node-rank")),
        (["--device-memory-utilization", "0.9"], ("gpu-memory-utilization",)),
        (["--hf-overrides", '{"kv_connector": "X"}'], ("hf-overrides",)),
        (["--hf-overrides.kv_connector", "X"], ("hf-overrides",)),
        (["--hf_overrides.kv_connector=X"], ("hf-overrides",)),
        (["--hf-overrides.extra.port", "-1"], ("hf-overrides",)),
        (
            ["--cudagraph-capture-sizes", "1", "2", "4", "-ep"],
            ("cudagraph-capture-sizes", "enable-expert-parallel"),
        ),
        (["--middleware", "a", "--middleware", "b"], ("middleware",)),
        (["--hf-token", "--dtype", "half"], ("hf-token", "dtype")),
        (
            ["--trust-remote-code", "--gpu-memory-utilization", "0.9"],
            ("trust-remote-code", "gpu-memory-utilization"),
        ),
    ],
)
def test_the_rest_is_collected_for_one_warning(argv: list[str], ignored: tuple[str, ...]) -> None:
    assert parse(["m", *argv], {}).ignored_flags == ignored


def test_a_vllm_boolean_does_not_swallow_the_model() -> None:
    assert parse(["--enable-lora", "m"], {}).model == "m"
    assert parse(["--enable-lora", "false", "m"], {}).model == "m"
