"""Shows that llm-d-router knows from KV events what is in a daemon's cache."""

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.conformance.router import answers, everyday, pressure, replays
from tests.conformance.router.router import build
from tests.conformance.router.scene import Row, Scene, Table, Way, line
from tests.tokenization.qwen3 import found

LORA = (
    "--lora-modules",
    '{"name":"first","path":"/first"}',
    '{"name":"second","path":"/second"}',
    "--max-loras",
    "2",
)
ROOMY = ("--max-model-len", "4096", "--kv-cache-size", "4096", "--enable-sleep-mode", *LORA)
CROWDED = ("--max-num-seqs", "32", "--inter-token-latency", "1ms")
TIGHT = ("--max-model-len", "512", "--kv-cache-size", "64", *CROWDED)

DIALS, BOUND, REPLAYS = Way(), Way(dials=False), Way(replay=True)

FORMS = {
    f"{form}, {hashes}": ("--kv-event-format", form, "--kv-event-hashes", hashes)
    for form in ("map", "array")
    for hashes in ("int", "bytes")
}

ALGORITHMS = ("sha256", "sha256_cbor", "sha256_cbor_64bit", "xxhash", "xxhash_cbor", "fnv_cbor")


def scenes(show: Callable[..., None]) -> None:
    """All of them; `show` plays one: its name, its cases, how events travel, and what `scene` takes."""
    for way in (DIALS, BOUND, REPLAYS):
        for name, form in FORMS.items():
            show(f"base, {name}", everyday.everyday, way, *ROOMY, *form)
            show(f"alias, {name}", everyday.everyday, way, *ROOMY, *form, served="alias")
    for algorithm in ALGORITHMS:
        for name, form in FORMS.items():
            chosen = ("--prefix-caching-hash-algo", algorithm, *form)
            show(f"evict, {algorithm}, {name}", pressure.eviction, DIALS, *TIGHT, *chosen)
    show("evict", pressure.eviction, BOUND, *TIGHT)
    show("evict", pressure.eviction, REPLAYS, *TIGHT)
    for name, form in FORMS.items():
        copies = ("--kv-offloading-size", "0.25", *form)
        show(f"copies in CPU memory, {name}", pressure.offloading, DIALS, *TIGHT, *copies)
    for way in (DIALS, BOUND):
        for seed in ("", "42"):
            show(f"two pods, seed {seed or 'none'}", pressure.pods, way, *TIGHT, "--hash-seed", seed, count=2)
    pace = ("--time-to-first-token", "500ms", "--inter-token-latency", "80ms")
    show("a slow reply", answers.running, DIALS, *ROOMY, *pace)
    show("two ranks", pressure.pods, DIALS, *TIGHT, ranks=2)
    show("two ranks", pressure.pods, REPLAYS, *TIGHT, ranks=2)
    show("blocks of 32 for a router of 16", everyday.larger_blocks, DIALS, *ROOMY, "--block-size", "32")
    show("batches of one event", everyday.everyday, DIALS, *ROOMY, "--event-batch-size", "1")
    show("batches of 50 ms", everyday.everyday, DIALS, *ROOMY, "--event-flush-interval", "50ms")
    show("vLLM's JSON", everyday.everyday, DIALS, *ROOMY, vllm_options=True)
    show("vLLM's JSON", replays.everything, REPLAYS, *ROOMY, vllm_options=True)
    folder, problem = found()
    if problem:
        print(f"No chats with Qwen3's template: {problem}")
    else:
        for way in (DIALS, BOUND):
            flags = (*ROOMY, "--tokenizer", str(folder))
            show("Qwen3's template", answers.templated, way, *flags, vocabulary=100_000)
    for way in (DIALS, BOUND):
        show("late", replays.unheard, way, *ROOMY)
    for name, form in FORMS.items():
        show(f"losses, {name}", replays.everything, REPLAYS, *ROOMY, *form)


def main(arguments: Sequence[str]) -> int:
    """Build the router's side, play the scenes, print the table; the exit code is 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--router", type=Path, required=True, help="a checkout of llm-d/llm-d-router")
    parser.add_argument("--go", default=shutil.which("go") or "/usr/local/go/bin/go", help="the go command")
    parser.add_argument("--only", default="", help="play the scenes whose names have this in them")
    parser.add_argument("--log", action="store_true", help="print the router's log of scenes that failed")
    chosen = parser.parse_args(arguments)

    table = Table()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        binary = Path(folder) / "consumer"
        build(chosen.router.resolve(), binary, chosen.go)

        def show(name: str, case: Callable[[Scene], None], way: Way, *flags: str, **of: Any) -> None:
            if chosen.only not in f"{name} ({way})":
                return
            before, log = len(table.rows), ""
            try:
                with Scene(table, binary, name, way, *flags, **of) as played:
                    try:
                        case(played)
                    finally:
                        log = played.router.log
            except Exception as problem:
                traceback.print_exc()
                said = str(problem).partition("\n")[0]
                table.rows.append(Row(f"{name} ({way})", said[:58], "", "", False, 0.0))
            if chosen.log and not all(row.ok for row in table.rows[before:]):
                print(log)

        scenes(show)
    failed = [row for row in table.rows if not row.ok]
    print()
    for name, rows in groupby(table.rows, lambda row: row.scene):
        told = [row.ok for row in rows]
        print(f"{name:46} {sum(told):3} of {len(told):3}")
    if failed:
        print("\nFailed:")
        for row in failed:
            print(line(row))
    worst = max((row.took for row in table.rows if row.ok), default=0.0)
    print(f"\nIn {time.monotonic() - began:.0f} s; the slowest of what passed took {worst * 1000:.0f} ms.")
    print(f"{len(table.rows) - len(failed)} passed, {len(failed)} failed")
    return 1 if failed or not table.rows else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
