"""The rules that tie options together; those of one option alone stand in its row."""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from llmdsim.config.durations import format_duration
from llmdsim.config.event_fault import parse_event_fault
from llmdsim.config.fake_metrics import read_fake_metrics
from llmdsim.config.fault import parse_fault
from llmdsim.config.klog import SEVERITIES, patterns, severity
from llmdsim.config.kv_events import wrong_kv_events
from llmdsim.config.kv_transfer import kv_transfer_fault
from llmdsim.config.option import ConfigError, flag_of
from llmdsim.config.ranks import rank_numbers
from llmdsim.config.table import Config

SPREAD: Final = 0.3
"""The largest standard deviation of a latency, as a part of its mean."""

_SPREADS: Final = (
    "time_to_first_token",
    "inter_token_latency",
    "kv_cache_transfer_latency",
    "time_to_generate_image",
)
_TOOL_BOUNDS: Final = ("integer_param", "number_param", "array_param_length")


def validate(config: Config) -> None:
    """Raise ConfigError for the first rule between options that `config` breaks."""
    for broken in _broken(config):
        raise ConfigError(broken)


def _broken(config: Config) -> Iterator[str]:
    if not config.model:
        yield "--model: a model is required (or SIM_MODEL, or model in the --config file)"
    for mean in _SPREADS:
        yield from _spread(config, mean)
    for bound in _TOOL_BOUNDS:
        low, high = f"min_tool_call_{bound}", f"max_tool_call_{bound}"
        if getattr(config, high) < getattr(config, low):
            yield (
                f"{flag_of(high)}: {getattr(config, high)} is less than {flag_of(low)}, which is "
                f"{getattr(config, low)}"
            )
    if config.max_cpu_loras < config.max_loras:
        yield f"--max-cpu-loras: {config.max_cpu_loras} is less than --max-loras, which is {config.max_loras}"
    yield from _lora_modules(config)
    if bool(config.ssl_certfile) != bool(config.ssl_keyfile):
        yield "--ssl-certfile and --ssl-keyfile: one is given without the other"
    if config.self_signed_certs and config.ssl_certfile:
        yield "--self-signed-certs: cannot be used together with --ssl-certfile and --ssl-keyfile"
    # Served in the clear, or to nobody, would be worse than not at all.
    if config.ssl_ca_certs and not (config.ssl_certfile or config.self_signed_certs):
        yield "--ssl-ca-certs: needs --ssl-certfile and --ssl-keyfile, or --self-signed-certs"
    if config.ssl_cert_reqs and not config.ssl_ca_certs:
        yield "--ssl-cert-reqs: needs --ssl-ca-certs, the CAs of the certificates that clients are asked for"
    if config.dataset_url and not config.dataset_path:
        yield "--dataset-url: needs --dataset-path, the file to download to"
    yield from _url("--dataset-url", config.dataset_url)
    yield from _url("--render-url", config.render_url)
    if config.mode == "echo" and (config.dataset_path or config.dataset_url):
        yield "--dataset-path and --dataset-url: cannot be used with --mode echo"
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", config.dataset_table_name):
        yield f"--dataset-table-name: {config.dataset_table_name!r} is not a plain name (letters, digits, _)"
    for fault in config.faults:
        try:
            parse_fault(fault)
        except ValueError as problem:
            yield f"--faults: {problem}"
    if config.kv_transfer_config is not None and (wrong := kv_transfer_fault(config.kv_transfer_config)):
        yield f"--kv-transfer-config: {wrong}"
    yield from _klog(config)
    if config.fake_metrics is not None:
        try:
            read_fake_metrics(config.fake_metrics)
        except ValueError as problem:
            yield f"--fake-metrics: {problem}"
    if 1 < config.data_parallel_size <= config.data_parallel_rank:
        yield (
            f"--data-parallel-rank: {config.data_parallel_rank} is none of the {config.data_parallel_size} "
            "ranks of --data-parallel-size, which begin with 0"
        )
    ranks = config.data_parallel_size if config.data_parallel_rank < 0 else 1
    if config.port + ranks - 1 > 65535:
        yield f"--data-parallel-size: {ranks} ports from --port {config.port} on end beyond 65535"
    yield from _grpc_port(config, ranks)
    for flag, endpoints in (("--listen", config.listen), ("--admin-listen", config.admin_listen)):
        if len(endpoints) % ranks:
            yield f"{flag}: {len(endpoints)} endpoints cannot be shared out evenly to {ranks} ranks"
    blocks = config.num_gpu_blocks_override
    if blocks is not None and config.kv_cache_size != blocks - 1:
        yield (
            f"--num-gpu-blocks-override: {blocks} is {blocks - 1} blocks that can be used, and "
            f"--kv-cache-size is {config.kv_cache_size}"
        )
    if config.enable_kvcache and not config.kv_cache_size:
        yield "--kv-cache-size: a cache without blocks cannot serve anything"
    yield from wrong_kv_events(config, rank_numbers(config))
    for fault in config.kv_event_faults:
        try:
            parse_event_fault(fault)
        except ValueError as problem:
            yield f"--kv-event-faults: {problem}"


def _grpc_port(config: Config, ranks: int) -> Iterator[str]:
    port = config.grpc_port
    if not port:
        return
    if "grpc" in config.ignored_flags:
        yield "--grpc-port: cannot be used together with --grpc, as in vLLM"
    if port + ranks - 1 > 65535:
        yield f"--data-parallel-size: {ranks} ports from --grpc-port {port} on end beyond 65535"
    # With endpoints alone nothing listens at --port.
    if (not config.listen or "port" in config.given) and abs(port - config.port) < ranks:
        yield f"--grpc-port: {port} is one of the ports from --port {config.port} on"


def _lora_modules(config: Config) -> Iterator[str]:
    names = set()
    for module in config.lora_modules:
        if module.base_model_name not in (None, "", config.model, *config.served_model_name):
            yield (
                f"--lora-modules: the base model of {module.name!r} is {module.base_model_name!r}, which is "
                "not served here"
            )
        if module.name in config.served_model_name:
            yield f"--lora-modules: {module.name!r} is the name of the model itself"
        if module.name in names:
            yield f"--lora-modules: there are two of the name {module.name!r}"
        names.add(module.name)


def _spread(config: Config, mean: str) -> Iterator[str]:
    middle, spread = getattr(config, mean), getattr(config, f"{mean}_std_dev")
    # Written in decimals: 30ms must pass for 100ms, whatever 0.3 * 0.1 is in binary.
    if spread > middle * SPREAD * (1 + 1e-9):
        yield (
            f"{flag_of(mean)}-std-dev: {format_duration(spread)} is more than 30 % of {flag_of(mean)}, which "
            f"is {format_duration(middle)}"
        )


def _klog(config: Config) -> Iterator[str]:
    for field in ("stderrthreshold", "alsologtostderrthreshold"):
        text = getattr(config, field)
        try:
            severity(text)
        except ValueError:
            yield f"{flag_of(field)}: {text!r} is not a severity: 0 to 3, or {', '.join(SEVERITIES)}"
    try:
        patterns(config.vmodule)
    except ValueError:
        yield f"--vmodule: {config.vmodule!r} is not pattern=N,... with N of at least 0"


def _url(flag: str, url: str) -> Iterator[str]:
    if re.match(r"[^/]*//[^/?#]*@", url):
        # Not shown: what stands there is a secret.
        yield f"{flag}: a user or a password in the URL cannot be used"
    elif url and not _is_http(url):
        yield f"{flag}: {url!r} is not a URL of http or https"


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname) and url.isascii()
