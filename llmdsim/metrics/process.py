"""The `python_*` and `process_*` families, as prometheus_client's own collectors write them.

Written here for what they cost: the library takes 45 ms to import, and lists all open sockets at each scrape.
"""

from __future__ import annotations

import gc
import os
import platform
import resource
import time
from functools import cache, partial
from pathlib import Path

from llmdsim.metrics.block import FamilyBlock

_PAGE = resource.getpagesize()


def _collected(generation: int, what: str) -> int:
    number: int = gc.get_stats()[generation][what]
    return number


def _memory(field: int) -> int:
    """Bytes: of field 0 virtual, of field 1 resident."""
    # Half the time of `Path.read_bytes`; opened anew, since a daemon is another process than set this up.
    descriptor = os.open("/proc/self/statm", os.O_RDONLY)
    try:
        return int(os.read(descriptor, 256).split()[field]) * _PAGE
    finally:
        os.close(descriptor)


@cache
def _start() -> float:
    """Seconds since the epoch; asked for at a scrape only, since a daemon forks after it has set up."""
    ticks = float(Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()[19])
    (boot,) = [line for line in Path("/proc/stat").read_bytes().splitlines() if line.startswith(b"btime ")]
    return float(boot.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")


def _open_files() -> int:
    # The size is the number of entries since Linux 6.2, and 0 before.
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))


def process_blocks() -> list[FamilyBlock]:
    """Python's and, on Linux, the process's families in vLLM's order."""
    blocks = []
    for name, what, help_text in (
        ("objects_collected", "collected", "Objects collected during gc"),
        ("objects_uncollectable", "uncollectable", "Uncollectable objects found during GC"),
        ("collections", "collections", "Number of times this generation was collected"),
    ):
        block = FamilyBlock(f"python_gc_{name}", "counter", help_text, created=False)
        for generation in range(len(gc.get_stats())):
            block.add_number({"generation": str(generation)}, partial(_collected, generation, what))
        blocks.append(block)
    major, minor, patchlevel = platform.python_version_tuple()
    info = FamilyBlock("python_info", "gauge", "Python platform information")
    labels = {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "major": major,
        "minor": minor,
        "patchlevel": patchlevel,
    }
    info.add_number(labels, lambda: 1)
    blocks.append(info)
    if not os.path.exists("/proc/self/statm"):
        return blocks
    for name, help_text, read in (
        ("virtual_memory_bytes", "Virtual memory size in bytes.", partial(_memory, 0)),
        ("resident_memory_bytes", "Resident memory size in bytes.", partial(_memory, 1)),
        ("start_time_seconds", "Start time of the process since unix epoch in seconds.", _start),
        ("cpu_seconds", "Total user and system CPU time spent in seconds.", time.process_time),
        ("open_fds", "Number of open file descriptors.", _open_files),
        (
            "max_fds",
            "Maximum number of open file descriptors.",
            lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        ),
    ):
        block = FamilyBlock(
            f"process_{name}", "counter" if name == "cpu_seconds" else "gauge", help_text, created=False
        )
        block.add_number({}, read)
        blocks.append(block)
    return blocks
