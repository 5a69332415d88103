"""Runs cases in rounds against one server, or two in turns, and tells the median of each figure."""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


def options(description: str | None, cases: str, rounds: int) -> argparse.ArgumentParser:
    """Those that `compare` needs, with these defaults."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    beside = Path(sys.executable).with_name("llmdsim")
    parser.add_argument("--server-command", default=str(beside), help="the daemon (%(default)s)")
    parser.add_argument("--against", metavar="COMMAND", help="another server that takes the same flags")
    parser.add_argument("--cases", default=cases, help="%(default)s")
    parser.add_argument("--rounds", type=int, default=rounds, help="%(default)s")
    parser.add_argument("--json", metavar="FILE", type=Path)
    return parser


def server_cpu() -> int | None:
    """The CPU that a server has to itself, where there are several: this program leaves it."""
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) == 1:
        return None
    os.sched_setaffinity(0, set(cpus[1:]))
    return cpus[0]


def of_medians(ours: Sequence[float], other: Sequence[float]) -> float | None:
    """The ratio of what is told of both, if there is one."""
    theirs = statistics.median(other)
    return statistics.median(ours) / theirs if theirs > 0 else None


def of_rounds(ours: Sequence[float], other: Sequence[float]) -> float:
    """The median of ratios of figures from the same round: what else the machine does hits both."""
    both = zip(ours, other, strict=True)
    return statistics.median(mine / theirs if theirs else 0.0 for mine, theirs in both)


def compare(
    given: argparse.Namespace,
    cases: Mapping[str, Callable[[str], Mapping[str, float]]],
    ratio: Callable[[Sequence[float], Sequence[float]], float | None],
) -> None:
    """Run the cases that are asked for, print the table, write the JSON.

    A case is given a server's command and gives figures by name; `ratio` is given all values of a figure, of
    ours and of the other server.
    """
    wanted = given.cases.split(",")
    if unknown := set(wanted) - set(cases):
        sys.exit(f"no such case: {', '.join(sorted(unknown))}")
    sides = {"ours": given.server_command} | ({"against": given.against} if given.against else {})
    gc.disable()  # no pauses of our own; nothing here makes cycles
    seen: dict[str, dict[str, list[float]]] = {}
    for turn in range(given.rounds):
        for case in wanted:
            for side in sides if turn % 2 == 0 else reversed(sides):
                print(f"round {turn + 1}: {case}, {side} ...", file=sys.stderr, flush=True)
                for figure, value in cases[case](sides[side]).items():
                    seen.setdefault(figure, {each: [] for each in sides})[side].append(value)
                gc.collect()

    table: dict[str, dict[str, float]] = {}
    print(f"{'figure':36}" + "".join(f"{side:>12}" for side in (*sides, "ratio")[: 2 * len(sides) - 1]))
    for figure, values in seen.items():
        table[figure] = row = {side: statistics.median(values[side]) for side in sides}
        if given.against and (found := ratio(values["ours"], values["against"])) is not None:
            row["ratio"] = found
        print(f"{figure:36}" + "".join(f"{value:12.3f}" for value in row.values()))
    if given.json:
        given.json.write_text(json.dumps(table, indent=1) + "\n")
