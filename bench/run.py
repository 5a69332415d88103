"""Measures the daemon, and another server of the same flags beside it where one is given.

    python bench/run.py [--cases cost,pace,long_prompts] [--rounds 1] [--against 'COMMAND'] [--json FILE]

Every figure is the median of the rounds; the servers take turns. bench/README.md says what the figures mean.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable

import comparison
from load import Connection, Outcome, Repeated, chat, drive, get, post
from server import Server, cpu_seconds, memory_mb

FLAGS = [
    *("--model", "m", "--mode", "random", "--force-dummy-tokenizer", "--max-model-len", "4096"),
    *("--max-num-seqs", "2048", "--max-waiting-queue-length", "10000"),
]
PACED = ["--time-to-first-token", "100ms", "--inter-token-latency", "20ms"]
TTFT, ITL, TOKENS = 0.1, 0.02, 100  # of the paced streams: seconds, and as PACED says
REPLY = 32  # tokens of an answer at full speed
LONG_STREAMS = 100  # that run while long prompts come
LONG = 1_000_000  # bytes of a long prompt
SCRAPES = 300
SCRAPE = get("/metrics")
OPENMETRICS = SCRAPE[:-2] + b"Accept: application/openmetrics-text;version=1.0.0\r\n\r\n"
IDLE = 1000  # connections open beside the scraping one
LONE = 1.1  # seconds after the last scrape, when nothing of it is kept


class Bench:
    """Runs one case at a time against one server command; a case gives figures by name."""

    def __init__(self, seconds: float, streams: list[int], server_cpu: int | None) -> None:
        self._seconds = seconds
        self._streams = streams
        self._cpu = server_cpu
        self.cases: dict[str, Callable[[str], dict[str, float]]] = {
            "cost": self.cost,
            "pace": self.pace,
            "long_prompts": self.long_prompts,
            "boot": self.boot,
            "scrape": self.scrape,
        }

    def _start(self, command: str, *flags: str) -> Server:
        return Server(command, [*FLAGS, *flags], self._cpu)

    def cost(self, command: str) -> dict[str, float]:
        """CPU of a whole reply and of a streamed token at full speed, 64 connections."""
        figures: dict[str, float] = {}
        with self._start(command) as server:
            for name, stream in (("request", False), ("token", True)):
                request = chat("m", REPLY, stream=stream)
                load, used = _measured(server, [request], connections=64, count=10**9, seconds=self._seconds)
                answered = len(load.answers)
                if stream and load.tokens != answered * REPLY:
                    sys.exit(f"{load.tokens} tokens came in {answered} streams of {REPLY}")
                done = load.tokens if stream else answered
                figures[f"cpu_us_per_{name}"] = used / done
                figures[f"{name}s_per_s"] = done / load.wall
        return figures

    def pace(self, command: str) -> dict[str, float]:
        """Timing of paced streams, CPU a token and memory, for each number of streams."""
        figures: dict[str, float] = {}
        request = chat("m", TOKENS, stream=True, prompt="hi there")
        for streams in self._streams:
            with self._start(command, *PACED) as server:
                load, used = _measured(server, [request], connections=streams, count=streams, spread=3 * ITL)
                here = {
                    "wall_s": load.wall,
                    **load.timing(TTFT, ITL),
                    "cpu_us_per_token": used / load.tokens,
                    "memory_mb": memory_mb(server.pid),
                }
                figures |= {f"{streams}_streams_{name}": value for name, value in here.items()}
        return figures

    def long_prompts(self, command: str) -> dict[str, float]:
        """Timing of paced streams while one client sends prompts of 1 MB, each when the last is answered."""
        figures: dict[str, float] = {}
        request = chat("m", TOKENS, stream=True, prompt="hi there")
        for name, context, long, status in _long_prompts():
            flags = ["--inter-token-latency", "20ms", "--max-model-len", str(context)]
            with self._start(command, *flags) as server:
                with Repeated(server.port, long, status) as client:
                    load, _ = _measured(
                        server, [request], connections=LONG_STREAMS, count=LONG_STREAMS, spread=3 * ITL
                    )
                if client.failure:
                    sys.exit(f"a long prompt ({name}) failed: {client.failure}")
                here = {
                    **{each: value for each, value in load.timing(0.0, ITL).items() if "gap" in each},
                    "prompts_per_s": client.answers / load.wall,
                }
                figures |= {f"long_{name}_{figure}": value for figure, value in here.items()}
        return figures

    def boot(self, command: str) -> dict[str, float]:
        """Seconds to the first answer, and memory at rest."""
        with self._start(command) as server:
            time.sleep(0.5)
            return {"boot_s": server.boot, "idle_memory_mb": memory_mb(server.pid)}

    def scrape(self, command: str) -> dict[str, float]:
        """CPU of GET /metrics: nothing moved, a chat ran in between, OpenMetrics, idle connections beside."""
        request = chat("m", REPLY, stream=True)
        figures: dict[str, float] = {}
        with self._start(command) as server:
            _measured(server, [request, SCRAPE], connections=8, count=SCRAPES)
            connection = Connection(server.port, late=[])

            def scraped(
                scrape: bytes, between: bytes = b"", rest: float = 0.0, count: int = SCRAPES
            ) -> float:
                took = []
                for _ in range(count):
                    if between:
                        _cpu_us(server, connection, between)
                    time.sleep(rest)
                    took.append(_cpu_us(server, connection, scrape))
                return statistics.median(took)

            for idle in (0, IDLE):
                others = [Connection(server.port, late=[]) for _ in range(idle)]
                where = f"{idle}_idle_" if idle else ""
                figures |= {
                    f"{where}cpu_us_per_scrape": scraped(SCRAPE),
                    f"{where}cpu_us_per_scrape_after_chat": scraped(SCRAPE, request),
                    f"{where}cpu_us_per_openmetrics_after_chat": scraped(OPENMETRICS, request),
                    f"{where}cpu_us_per_lone_scrape": scraped(SCRAPE, request, LONE, 5),
                }
                for other in others:
                    other.socket.close()
            connection.socket.close()
        return figures


def _long_prompts() -> list[tuple[str, int, bytes, int]]:
    """Name, context, request and expected status of each kind of long prompt."""
    ascii_text = ("The quick brown fox jumps over the lazy dog, again. " * (LONG // 50))[:LONG]
    chinese = ("我们今天去公园看花，然后回家吃饭。" * (LONG // 50))[: LONG // 3]
    ids = [number * 7919 % 150_000 for number in range(LONG // 7)]
    of_ids = json.dumps({"model": "m", "prompt": ids, "max_tokens": 1}).encode()
    beyond = ascii_text + ascii_text[: LONG // 10]  # 256 characters for each of 4096 tokens
    return [
        ("ascii", 2_000_000, chat("m", 1, stream=False, prompt=ascii_text), 200),
        ("chinese", 2_000_000, chat("m", 1, stream=False, prompt=chinese), 200),
        ("ids", 2_000_000, post("/v1/completions", of_ids), 200),
        ("ascii_too_long", 4096, chat("m", 1, stream=False, prompt=ascii_text), 400),
        ("chinese_too_long", 4096, chat("m", 1, stream=False, prompt=chinese), 400),
        ("ascii_far_too_long", 4096, chat("m", 1, stream=False, prompt=beyond), 400),
    ]


def _cpu_us(server: Server, connection: Connection, request: bytes) -> float:
    """The server's CPU time for one request alone, until it rests again."""
    before = cpu_seconds(server.pid)
    connection.ask(request)
    while (verdict := connection.read()) is None:
        pass
    if verdict:
        sys.exit(f"a request failed: {verdict}")
    time.sleep(0.001)
    return (cpu_seconds(server.pid) - before) * 1e6


def _measured(
    server: Server,
    requests: list[bytes],
    *,
    connections: int,
    count: int,
    seconds: float = 60.0,
    spread: float = 0.0,
) -> tuple[Outcome, float]:
    """The load's outcome and the server's CPU time for it, microseconds; any failure ends the program."""
    before = cpu_seconds(server.pid)
    load = drive(server.port, requests, connections=connections, count=count, seconds=seconds, spread=spread)
    used = (cpu_seconds(server.pid) - before) * 1e6
    if load.failed or not load.answers:
        sys.exit(f"{load.failed} requests failed; the first: {load.first_failure}")
    if spread and load.late_p99 > ITL / 2:
        late = f"{load.late_p99 * 1e3:.0f} ms"
        print(
            f"this program read {late} late (p99): gap errors of one gap are partly its own", file=sys.stderr
        )
    return load, used


def main() -> None:
    """Runs the cases, prints the table, writes the JSON."""
    options = comparison.options(__doc__, "cost,pace,long_prompts,boot,scrape", 1)
    options.add_argument("--seconds", type=float, default=4.0, help="of each full-speed load (%(default)s)")
    options.add_argument("--streams", default="1,100,400,1000", help="of the paced case (%(default)s)")
    given = options.parse_args()
    streams = [int(each) for each in given.streams.split(",")]
    bench = Bench(given.seconds, streams, comparison.server_cpu())
    comparison.compare(given, bench.cases, comparison.of_medians)


if __name__ == "__main__":
    try:
        main()
    except (OSError, KeyboardInterrupt) as error:
        sys.exit(str(error) or "interrupted")
