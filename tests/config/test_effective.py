"""What `--help` calls effective is what the code reads."""

from __future__ import annotations

import re
from pathlib import Path

import llmdsim
from llmdsim.config import OPTIONS

#: Read by nothing: `config` is used up by the parser, the others are vLLM's and klog's and mean nothing
#: here, as told.
INERT = {
    "config",
    "ec_transfer_config",
    "enable_ssl_refresh",
    "enforce_eager",
    "log_backtrace_at",
    "mm_processor_kwargs",
    "tensor_parallel_size",
    "tokenizer_mode",
}

#: Read by `config/kv_events.py`, which tells everybody else what comes of them.
RESOLVED = {
    "kv_events_config",
    "kv_events_replay_endpoint",
    "kv_events_replay_queue_size",
    "kv_events_topic",
    "zmq_endpoint",
    "zmq_hwm",
    "zmq_socket",
}


def read_outside_config() -> set[str]:
    package = Path(llmdsim.__file__).parent
    sources = [path for path in package.rglob("*.py") if path.relative_to(package).parts[0] != "config"]
    words = set(re.findall(r"\.(\w+)", "\n".join(path.read_text() for path in sources)))
    return {option.field for option in OPTIONS.values() if option.field in words}


def test_effective_options_are_those_the_code_reads() -> None:
    effective = {option.field for option in OPTIONS.values() if option.effective}
    read = read_outside_config()
    assert effective - INERT - RESOLVED - read == set()
    assert read - effective == set()
