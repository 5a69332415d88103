"""Measures what two ranks, each with a process of its own, cost and gain over one, on the same two cores.

Two servers of one rank each stand beside them: what those cost as well is the machine's doing.

    python bench/ranks.py [--rounds 5] [--seconds 4] [--json FILE]

bench/README.md says what the figures mean. Needs a C compiler.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from load import chat
from server import Server, cpu_seconds, memory_mb

FLAGS = [
    *("--model", "m", "--mode", "random", "--force-dummy-tokenizer", "--max-model-len", "4096"),
    *("--max-num-seqs", "2048", "--max-waiting-queue-length", "10000"),
]
REPLY = 32  # tokens of an answer
CONNECTIONS = 256  # to each rank
RANKS = 2


def compiled(folder: str) -> str:
    """The load generator, made for this machine."""
    program = f"{folder}/saturate"
    source = Path(__file__).with_name("saturate.c")
    try:
        subprocess.run(["cc", "-O2", "-o", program, str(source)], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"cannot compile {source}: {error}")
    return program


def run_load(program: str, seconds: float, request: bytes, port: str) -> subprocess.CompletedProcess[bytes]:
    """Keep one rank busy."""
    argv = [program, str(seconds), str(CONNECTIONS), port]
    return subprocess.run(argv, input=request, stdout=subprocess.PIPE, check=False)


def measure(command: str, program: str, servers: int, ranks: int, seconds: float) -> dict[str, float]:
    """So many servers with so many ranks each under full load."""
    flags = [*FLAGS, "--data-parallel-size", str(ranks)]
    with ExitStack() as running:
        all_servers = [running.enter_context(Server(command, flags, None, ranks)) for _ in range(servers)]
        ports = [str(server.port + rank) for server in all_servers for rank in range(ranks)]

        def cpu() -> float:
            return sum(cpu_seconds(server.pid) for server in all_servers)

        def load(lasting: float) -> list[tuple[int, float]]:
            """Answers of each rank, and the seconds it was busy for."""
            # One for each rank: a single one would take its time from one of the ranks alone.
            request = chat("m", REPLY, stream=True)
            with ThreadPoolExecutor(len(ports)) as pool:
                done = list(pool.map(partial(run_load, program, lasting, request), ports))
            if any(each.returncode for each in done):
                sys.exit(f"the load failed\n{all_servers[0].output()[-2000:]}")
            told = [each.stdout.decode().split() for each in done]
            return [(int(answers), float(busy)) for _, answers, busy in told]

        load(0.5)  # every rank is up, and warm
        before, generator_before = (
            cpu(),
            os.times().children_user + os.times().children_system,
        )
        ranks_done = load(seconds)
        used = cpu() - before
        generated = os.times().children_user + os.times().children_system - generator_before
        tokens = [answers * REPLY for answers, _ in ranks_done]
        rates = [count / busy for count, (_, busy) in zip(tokens, ranks_done, strict=True)]
        return {
            "cpu_us_per_token": used * 1e6 / sum(tokens),
            "load_cpu_us_per_token": generated * 1e6 / sum(tokens),
            "tokens_per_s": sum(tokens) / max(busy for _, busy in ranks_done),
            "slowest_to_fastest_rank": min(rates) / max(rates),
            "memory_mb": sum(memory_mb(server.pid) for server in all_servers),
            "boot_s": max(server.boot for server in all_servers),
        }


def main() -> None:
    """Runs the rounds, prints the table, writes the JSON."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    beside = Path(sys.executable).with_name("llmdsim")
    options.add_argument("--server-command", default=str(beside), help="the daemon (%(default)s)")
    options.add_argument("--rounds", type=int, default=5, help="%(default)s")
    options.add_argument("--seconds", type=float, default=4.0, help="of each load (%(default)s)")
    options.add_argument("--json", metavar="FILE", type=Path)
    given = options.parse_args()
    cpus = sorted(os.sched_getaffinity(0))[:RANKS]
    if len(cpus) < RANKS:
        sys.exit(f"this takes {RANKS} CPUs")
    # Server and load share them, and the kernel says who runs where.
    os.sched_setaffinity(0, cpus)
    #: Servers, and ranks of each.
    sides = {"one": (1, 1), "two_ranks": (1, RANKS), "two_servers": (RANKS, 1)}
    seen: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as folder:
        program = compiled(folder)
        for turn in range(given.rounds):
            for side, (servers, ranks) in sides.items():
                print(f"round {turn + 1}: {side} ...", file=sys.stderr, flush=True)
                seen[side].append(measure(given.server_command, program, servers, ranks, given.seconds))
    table = {}
    print(f"{'figure':26}" + "".join(f"{side:>13}" for side in sides) + f"{'ranks/one':>11}{'/servers':>10}")
    for name in seen["one"][0]:
        row = {side: statistics.median(figures[name] for figures in seen[side]) for side in sides}
        for beside in ("one", "two_servers"):
            # Of figures from the same round: what else the machine does hits both.
            row[f"two_ranks_to_{beside}"] = statistics.median(
                after[name] / before[name]
                for before, after in zip(seen[beside], seen["two_ranks"], strict=True)
            )
        table[name] = row
        print(
            f"{name:26}"
            + "".join(f"{row[side]:13.3f}" for side in sides)
            + f"{row['two_ranks_to_one']:11.3f}{row['two_ranks_to_two_servers']:10.3f}"
        )
    if given.json:
        given.json.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    try:
        main()
    except (OSError, KeyboardInterrupt) as error:
        sys.exit(str(error) or "interrupted")
