"""Soaks the daemon in clients of every kind for some minutes, then checks that nothing is left of them.

    python bench/soak.py --minutes 5

bench/README.md says what is checked and how it is judged. Exit code 1, and the reasons, if a check fails.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import resource
import signal
import statistics
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from load import get, post
from server import Server, memory_mb
from visitors import CHAT, Connection, Tally, Visitor, Wrong, counted

FLAGS = [
    *("--model", "m", "--force-dummy-tokenizer", "--max-model-len", "65536", "--max-num-seqs", "24"),
    *("--time-to-first-token", "20ms", "--inter-token-latency", "1ms", "--max-waiting-queue-length", "10000"),
]
WARM_UP = 0.2  # of the time, in which memory may grow
MOST_GROWTH = 8.0  # MB over the rest of it
SCRAPE_EVERY = 0.05  # seconds
SAMPLES = 200  # of the memory, over the whole time
REST_WITHIN = 4.0  # seconds for gauges and descriptors to go back
DRAIN_WITHIN = 15.0
COMPLAINT = re.compile(r"Traceback|Unhandled|\b(ERROR|CRITICAL)\b")
_SAMPLE = re.compile(rb"^(vllm:[a-z_]+)\{([^}]*)\} (\S+)$", re.MULTILINE)


@dataclass
class Watch:
    """What was seen of the server meanwhile: (seconds, MB) of memory, and scrapes."""

    memory: list[tuple[float, float]] = field(default_factory=list)
    scrapes: int = 0
    slowest_scrape: float = 0.0
    most_running: float = 0.0
    most_waiting: float = 0.0


class Metrics:
    """One scrape: values by family, labels but one left out."""

    def __init__(self, text: bytes) -> None:
        self.values: dict[str, float] = {}
        self.finished: dict[str, float] = {}
        for name, labels, value in _SAMPLE.findall(text):
            family = name.decode()
            if family == "vllm:request_success_total":
                reason = labels.partition(b'finished_reason="')[2].partition(b'"')[0].decode()
                self.finished[reason] = float(value)
            else:
                self.values.setdefault(family, float(value))

    def __getitem__(self, name: str) -> float:
        return self.values[f"vllm:{name}"]


async def scrape(connection: Connection) -> Metrics:
    """What /metrics says now."""
    connection.send(get("/metrics"))
    status, body = await connection.answer()
    if status != 200:
        raise Wrong(f"/metrics: status {status}")
    return Metrics(body)


async def keep_scraping(port: int, stop: float, watch: Watch, tally: Tally) -> None:
    """Scrape every 50 ms; counters must not fall."""
    loop = asyncio.get_running_loop()
    tokens = 0.0
    try:
        connection = await Connection.open(port)
        while (now := loop.time()) < stop:
            metrics = await scrape(connection)
            watch.scrapes += 1
            watch.slowest_scrape = max(watch.slowest_scrape, loop.time() - now)
            watch.most_running = max(watch.most_running, metrics["num_requests_running"])
            watch.most_waiting = max(watch.most_waiting, metrics["num_requests_waiting"])
            if metrics["generation_tokens_total"] < tokens:
                tally.failures.append("scrape: generation_tokens_total fell")
            tokens = metrics["generation_tokens_total"]
            await asyncio.sleep(max(0.0, now + SCRAPE_EVERY - loop.time()))
        await connection.close()
    except (Wrong, OSError, EOFError) as error:
        tally.failures.append(f"scrape: {error!r}")


async def keep_weighing(pid: int, start: float, stop: float, watch: Watch) -> None:
    """Sample the server's memory."""
    loop = asyncio.get_running_loop()
    while (now := loop.time()) < stop:
        watch.memory.append((now - start, memory_mb(pid)))
        await asyncio.sleep((stop - start) / SAMPLES)


def growth(memory: list[tuple[float, float]]) -> tuple[float, float]:
    """MB that memory grew after the warm-up: by a line fitted to it, and from its first to its last fifth."""
    settled = memory[int(len(memory) * WARM_UP) :]
    times, sizes = zip(*settled, strict=True)
    slope, _ = statistics.linear_regression(times, sizes)
    fifth = max(1, len(sizes) // 5)
    steps = statistics.median(sizes[-fifth:]) - statistics.median(sizes[:fifth])
    return slope * (times[-1] - times[0]), steps


def descriptors(pid: int) -> int:
    """Open files of a process."""
    return len(os.listdir(f"/proc/{pid}/fd"))


class Report:
    """The table, line by line, and what failed in it."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def note(self, name: str, figure: object) -> None:
        """A figure that is not judged."""
        print(f"{name:34}{_shown(figure):>14}")

    def check(self, name: str, figure: object, rule: str, holds: bool) -> None:
        """A figure and the rule it must meet."""
        print(f"{name:34}{_shown(figure):>14}  {rule}{'' if holds else '   FAILED'}")
        if not holds:
            self.failed.append(f"{name} is {_shown(figure)}, must be {rule}")


def _shown(figure: object) -> str:
    return f"{figure:.2f}" if isinstance(figure, float) else str(figure)


async def load(server: Server, seconds: float, clients: int, seed: int, watch: Watch, tally: Tally) -> None:
    """All visitors, until their time is over and their last visit done."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    stop = start + seconds
    visitors = [Visitor(server.port, f"{seed} {number}", tally) for number in range(clients)]
    await asyncio.gather(
        keep_scraping(server.port, stop, watch, tally),
        keep_weighing(server.pid, start, stop, watch),
        *(visitor.visit_until(stop) for visitor in visitors),
    )


async def come_to_rest(server: Server, open_before: int) -> tuple[Metrics, int]:
    """The metrics and the open files once both are as before, or when that took too long."""
    deadline = time.monotonic() + REST_WITHIN
    while True:
        connection = await Connection.open(server.port)
        metrics = await scrape(connection)
        await connection.close()
        still = metrics["num_requests_running"] + metrics["num_requests_waiting"]
        await asyncio.sleep(0.05)
        left = descriptors(server.pid)
        if (not still and left <= open_before) or time.monotonic() > deadline:
            return metrics, left
        await asyncio.sleep(0.1)


async def drain(server: Server) -> str:
    """SIGTERM in the middle of a stream: "" when the stream was completed all the same."""
    body = b'{"messages":[{"role":"user","content":"a"}],"max_tokens":500,"ignore_eos":true,"stream":true,'
    connection = await Connection.open(server.port)
    connection.send(post(CHAT, body + b'"stream_options":{"include_usage":true}}'))
    await asyncio.sleep(0.1)
    os.kill(server.pid, signal.SIGTERM)
    try:
        found = counted(*await asyncio.wait_for(connection.answer(), DRAIN_WITHIN))
    except (Wrong, OSError, EOFError, ValueError, TimeoutError) as error:
        return repr(error)
    await connection.close()
    return "" if found == (1, 500) else f"{found[1]} tokens in place of 500"


async def soak(server: Server, seconds: float, clients: int, seed: int) -> list[str]:
    """Load, rest, judge; returns what failed."""
    tally, watch, report = Tally(), Watch(), Report()
    await come_to_rest(server, sys.maxsize)
    await asyncio.sleep(0.3)  # until the connection just closed is gone
    open_before = descriptors(server.pid)
    await load(server, seconds, clients, seed, watch, tally)
    alive = server.exit_code is None
    report.check("process alive", alive, "True", alive)
    if not alive:
        return [*report.failed, f"exit code {server.exit_code}", server.output()[-2000:]]
    metrics, open_after = await come_to_rest(server, open_before)
    _judge(report, tally, watch, metrics)
    report.check("open files", open_after, f"<= {open_before}, as before", open_after <= open_before)
    cut = await drain(server)
    report.check("stream cut by the drain", cut or "no", "no", not cut)
    code = server.wait()
    report.check("exit code after SIGTERM", code, "0", code == 0)
    complaints = [line for line in server.output().splitlines() if COMPLAINT.search(line)]
    report.check("errors in the log", len(complaints), "0", not complaints)
    report.failed += complaints[:5]
    return report.failed


def _judge(report: Report, tally: Tally, watch: Watch, metrics: Metrics) -> None:
    for kind, count in sorted(tally.visits.items()):
        report.note(f"visits: {kind}", count)
    report.note("scrapes", watch.scrapes)
    report.note("slowest scrape, ms", watch.slowest_scrape * 1e3)
    report.note("most running", int(watch.most_running))
    report.note("most waiting", int(watch.most_waiting))
    report.check("failed visits", len(tally.failures), "0", not tally.failures)
    report.failed += tally.failures[:5]
    fitted, stepped = growth(watch.memory)
    report.note("memory at first, MB", watch.memory[0][1])
    report.note("memory at last, MB", watch.memory[-1][1])
    report.check("memory growth by a line, MB", fitted, f"< {MOST_GROWTH:g}", fitted < MOST_GROWTH)
    report.check("memory growth first to last, MB", stepped, f"< {MOST_GROWTH:g}", stepped < MOST_GROWTH)
    for gauge in ("num_requests_running", "num_requests_waiting"):
        report.check(gauge, int(metrics[gauge]), "0", metrics[gauge] == 0)
    ended = metrics.finished
    complete, every = int(ended["stop"] + ended["length"]), int(sum(ended.values()))
    least, most = tally.choices, tally.choices + tally.left
    report.check("choices ended complete", complete, f"{least} to {most}", least <= complete <= most)
    least += tally.begun
    report.check("choices ended in any way", every, f"{least} to {most}", least <= every <= most)
    report.check("choices ended in error", int(ended["error"]), "0", ended["error"] == 0)
    tokens, least, most = (
        int(metrics["generation_tokens_total"]),
        tally.tokens,
        tally.tokens + tally.left_tokens,
    )
    report.check("tokens generated", tokens, f"{least} to {most}", least <= tokens <= most)
    recorded = int(metrics["request_generation_tokens_count"])
    report.check("choices in histograms", recorded, f"{complete}, the complete", recorded == complete)


def main() -> None:
    """Runs the soak and prints its table."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    beside = Path(sys.executable).with_name("llmdsim")
    options.add_argument("--minutes", type=float, default=5.0, help="%(default)s")
    options.add_argument("--clients", type=int, default=32, help="at a time (%(default)s)")
    options.add_argument("--seed", type=int, default=1, help="of what the clients do (%(default)s)")
    options.add_argument("--server-command", default=str(beside), help="the daemon (%(default)s)")
    given = options.parse_args()
    if given.minutes <= 0:
        options.error("--minutes must be above 0")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4096:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    with Server(given.server_command, FLAGS, None) as server:
        failed = asyncio.run(soak(server, given.minutes * 60, given.clients, given.seed))
    if failed:
        sys.exit("failed:\n  " + "\n  ".join(failed))


if __name__ == "__main__":
    try:
        main()
    except (OSError, KeyboardInterrupt) as error:
        sys.exit(str(error) or "interrupted")
