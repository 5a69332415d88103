"""Measures what a prompt costs in the KV cache: its blocks looked up, taken and stored, in CPU microseconds.

    python bench/kvcache.py [--hashes none sha256 ...] [--rounds 3] [--requests 5000] [--json FILE]

bench/README.md says what the figures mean.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from array import array
from collections import deque
from pathlib import Path
from random import Random

from llmdsim.engine.kvcache import PLAIN, BlockTable, Hasher, KvCache
from llmdsim.engine.kvcache.pool import Pool
from llmdsim.tokenization.prompt import WIDTH

BLOCKS, SIZE = 100_000, 16
PROMPT = 2000  # tokens
RUNNING = 50  # sequences at a time
GROUPS = 20  # of prompts that share their beginning

#: How much of a prompt others have too; and what 99 % of such prompts should take at most, in microseconds.
CASES = {"shared": 0.9, "evicting": 0.0}
LIMITS = {"none": 300, "sha256": 1000, "sha256_cbor": 1000, "sha256_cbor_64bit": 1000, "fnv_cbor": 5000}


def hasher_of(algorithm: str) -> Hasher | None:
    """None for a cache of which nothing is told."""
    if algorithm == "none":
        return None
    from llmdsim.engine.kvcache.hashing import hasher  # noqa: PLC0415 - only where it is measured

    return hasher(algorithm, "", "m")


def tokens(draw: Random, count: int) -> list[int]:
    """Ids as those of a large vocabulary."""
    return draw.choices(range(1 << 17), k=count)


def measure(shared: float, algorithm: str, requests: int, seed: int) -> dict[str, float]:
    """Microseconds of one prompt after another; with nothing shared, the first 800 fill the cache."""
    draw = Random(seed)
    beginnings = [tokens(draw, int(PROMPT * shared)) for _ in range(GROUPS)]
    cache = KvCache(Pool(BLOCKS), SIZE, True, hasher_of(algorithm))
    running: deque[BlockTable] = deque()
    times: list[float] = []
    hits = records = 0
    for _ in range(requests):
        beginning = draw.choice(beginnings)
        prompt = array("I", beginning + tokens(draw, PROMPT - len(beginning))).tobytes()
        started = time.thread_time()
        found = cache.find(prompt, PLAIN)
        known = len(found)
        hits += known
        table = cache.admit(found, PROMPT, PLAIN)
        if table is None:
            sys.exit("a prompt did not fit")
        cache.store(table, prompt[known * SIZE * WIDTH :])
        times.append((time.thread_time() - started) * 1e6)
        records += len(cache.records)
        cache.records = []  # as somebody takes them away
        running.append(table)
        if len(running) > RUNNING:
            cache.release(running.popleft())
    times.sort()
    return {
        "p50_us": times[len(times) // 2],
        "p99_us": times[len(times) * 99 // 100],
        "max_us": times[-1],
        "hit_part": hits * SIZE / (requests * PROMPT),
        "records": records,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--hashes", nargs="+", default=["none"], choices=LIMITS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    print(f"{'case':<10}{'hashes':<20}{'p50 us':>9}{'p99 us':>9}{'max us':>9}{'hits':>7}{'p99 to be':>11}")
    for algorithm in options.hashes:
        for case, shared in CASES.items():
            rounds = [measure(shared, algorithm, options.requests, seed) for seed in range(options.rounds)]
            got = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
            figures[f"{case}_{algorithm}"] = got
            limit = f"{LIMITS[algorithm]}" if shared else ""
            print(
                f"{case:<10}{algorithm:<20}{got['p50_us']:>9.0f}{got['p99_us']:>9.0f}{got['max_us']:>9.0f}"
                f"{got['hit_part']:>7.0%}{limit:>11}"
            )
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
