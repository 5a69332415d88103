"""Looks into a dataset: how much there is, how long its replies are, and what is wrong with it."""

from __future__ import annotations

from bisect import bisect_right
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from llmdsim.reply.dataset import Dataset
from llmdsim.reply.dataset.stored import read_stored

#: Problems and characters of an example that are shown.
MOST_PROBLEMS = 20
MOST_SHOWN = 72


class Report(msgspec.Struct):
    """`lengths` are those of replies, in tokens: least, median, 90th percentile, greatest."""

    file: str
    rows: int
    prompts: int
    lengths: dict[str, int]
    #: Rows as short as a length of 1, 2, 5, 10, 20, 50, … tokens, and longer than the one before.
    histogram: dict[int, int]
    examples: list[dict[str, Any]]
    #: How many rows cannot be used, and what is wrong with the first of them.
    faulty: int
    problems: list[str]


def inspect(path: Path, table: str, examples: int) -> Report:
    """Read all of it. Raises DatasetError for a file that cannot be used."""
    dataset = Dataset(path, table)
    dataset.load()
    prompts: set[bytes] = set()
    lengths: list[int] = []
    report = Report(str(path), 0, 0, {}, {}, [], 0, [])
    for row_id, prompt_hash, stored, length in dataset.everything():
        report.rows += 1
        try:
            said = read_stored(stored)
            if not isinstance(prompt_hash, bytes) or len(prompt_hash) != 32:
                raise ValueError("prompt_hash is not of 32 bytes")
            if length != len(said.ids):
                raise ValueError(f"n_gen_tokens is {length!r} where there are {len(said.ids)} tokens")
        except (ValueError, RecursionError) as problem:
            report.faulty += 1
            if len(report.problems) < MOST_PROBLEMS:
                report.problems.append(f"row {row_id}: {problem}")
            continue
        prompts.add(prompt_hash)
        lengths.append(length)
        if len(report.examples) < examples:
            text = said.text if len(said.text) <= MOST_SHOWN else f"{said.text[: MOST_SHOWN - 1]}…"
            report.examples.append(
                {"row": row_id, "prompt_hash": prompt_hash.hex(), "tokens": length, "text": text}
            )
    dataset.close()
    report.prompts = len(prompts)
    if lengths:
        lengths.sort()
        last = len(lengths) - 1
        report.lengths = {
            "least": lengths[0],
            "median": lengths[last // 2],
            "p90": lengths[last * 9 // 10],
            "greatest": lengths[-1],
        }
        report.histogram = _histogram(lengths)
    return report


def _histogram(lengths: list[int]) -> dict[int, int]:
    """Of sorted lengths."""
    counts: dict[int, int] = {}
    counted = 0
    for edge in (step * 10**power for power in count() for step in (1, 2, 5)):
        upto = bisect_right(lengths, edge)
        counts[edge] = upto - counted
        counted = upto
        if counted == len(lengths):
            break
    return counts
