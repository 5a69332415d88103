"""A load generator for chat completions on the loopback: sockets, one epoll, requests formatted once.

    python bench/load.py --port 8000 --model m --connections 9 --requests 9 --tokens 100 --ttft 100 --itl 20

Each connection sends its next request when the last one is answered, until `--requests` are sent or
`--seconds` have passed. The kernel stamps the tokens as they arrive (SO_TIMESTAMPNS), so that this program's
own lateness is not counted as the server's.
"""

from __future__ import annotations

import argparse
import gc
import json
import select
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from server import cpu_seconds

SO_TIMESTAMPNS = getattr(socket, "SO_TIMESTAMPNS", 35)
GRACE = 30.0
PROMPT = "Tell me a short story about a brave little fox who lived in the deep green forest"


def get(path: str) -> bytes:
    """A GET."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def post(path: str, body: bytes) -> bytes:
    """A POST of a body that says it is JSON."""
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def chat(model: str, tokens: int, *, stream: bool, prompt: str = PROMPT) -> bytes:
    """A chat completion request of exactly `tokens` tokens."""
    message = {"role": "user", "content": prompt}
    wanted = {
        "model": model,
        "messages": [message],
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": stream,
    }
    return post("/v1/chat/completions", json.dumps(wanted, ensure_ascii=False).encode())


@dataclass
class Outcome:
    """What came back; `answers` holds (when sent, when each token came) of each request answered with 200."""

    answers: list[tuple[float, list[float]]] = field(default_factory=list)
    failed: int = 0
    first_failure: str = ""
    wall: float = 0.0
    late_p99: float = 0.0  # seconds from a token's arrival to its reading here; beyond a gap, tokens merge

    @property
    def tokens(self) -> int:
        """Tokens received in streams."""
        return sum(len(stamps) for _, stamps in self.answers)

    def timing(self, ttft: float, itl: float) -> dict[str, float]:
        """p50 and p99, ms, of |gap - itl|, the first token's lateness, and the last one's counted from it."""
        streams = [(sent, stamps) for sent, stamps in self.answers if stamps]
        samples = {
            "gap_error": [abs(b - a - itl) for _, stamps in streams for a, b in pairwise(stamps)],
            "ttft_error": [stamps[0] - sent - ttft for sent, stamps in streams],
            "drift": [stamps[-1] - stamps[0] - (len(stamps) - 1) * itl for _, stamps in streams],
        }
        figures: dict[str, float] = {}
        for name, values in samples.items():
            values.sort()
            if values:
                figures[f"{name}_p50_ms"] = values[len(values) // 2] * 1e3
                figures[f"{name}_p99_ms"] = values[len(values) * 99 // 100] * 1e3
        return figures


class Connection:
    """One keep-alive connection and the answer it is reading."""

    __slots__ = ("_late", "_left", "_rest", "_status", "sent", "socket", "stamps")

    def __init__(self, port: int, late: list[float]) -> None:
        self._late = late
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)

    @property
    def status(self) -> int:
        """Of the answer; 0 where none has come."""
        return int(self._status or 0)

    def ask(self, request: bytes) -> None:
        """Sends one request."""
        self.stamps: list[float] = []
        self._status = b""
        self._rest = b""
        self._left: int | None = None  # None: chunked, or until the connection ends
        self.sent = time.time()
        self.socket.sendall(request)

    def read(self) -> str | None:
        """Reads what is there. None: more to come; "": answered with 200; otherwise what went wrong."""
        try:
            data, ancillary, _, _ = self.socket.recvmsg(1 << 16, 64)
        except OSError as error:
            return str(error)
        if not data:
            return "" if self._status == b"200" and self._left is None else "the connection ended"
        data = self._rest + data
        if not self._status:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                self._rest = data
                return None
            head = data[:end].lower()
            data = data[end + 4 :]
            self._status = head[9:12]
            length = head.find(b"\r\ncontent-length:")
            if length >= 0:
                self._left = int(head[length + 17 :].split(b"\r\n", 1)[0])
        if self._left is not None:
            self._left -= len(data)
            self._rest = b""
            finished = self._left <= 0
        else:
            finished = data.endswith(b"0\r\n\r\n") and (len(data) == 5 or data[-7:-5] == b"\r\n")
            events = data.rfind(b"\n\n") + 2
            if events >= 2:
                tokens = data.count(b'"content":"', 0, events) - data.count(b'"content":""', 0, events)
                if tokens:
                    stamp = now = time.time()
                    if ancillary:
                        seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
                        stamp = seconds + nanoseconds * 1e-9
                    self._late.append(now - stamp)
                    self.stamps += [stamp] * tokens
                data = data[events:]
            self._rest = data
        if finished and self._status != b"200":
            return f"status {self._status.decode()}: {data[-300:].decode(errors='replace')}"
        return "" if finished else None


class Repeated(threading.Thread):
    """A client that sends one request again and again, each when the last is answered, within a `with`.

    `answers` counts those of the `status` expected; `failure` tells of the first other one, which ends it.
    """

    def __init__(self, port: int, request: bytes, status: int) -> None:
        super().__init__()
        self.answers = 0
        self.failure = ""
        self._connection = Connection(port, late=[])
        self._request = request
        self._status = status
        self._over = False

    def run(self) -> None:
        """Sends until it is over."""
        connection = self._connection
        while not self._over:
            connection.ask(self._request)
            while (verdict := connection.read()) is None:
                pass
            if connection.status != self._status:
                self.failure = verdict or f"status {connection.status}"
                break
            self.answers += 1
        connection.socket.close()

    def __enter__(self) -> Repeated:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self.join()


def drive(
    port: int,
    requests: Sequence[bytes],
    *,
    connections: int,
    count: int,
    seconds: float = 60.0,
    spread: float = 0.0,
) -> Outcome:
    """Sends `requests` in turn, `count` in all, over `connections` opened within `spread` seconds.

    No request starts after `seconds`; what is unanswered GRACE seconds later counts as failed.
    """
    outcome = Outcome()
    at: dict[int, Connection] = {}
    connections = min(connections, count)
    begun = opened = 0
    start = time.monotonic()
    late: list[float] = []
    with select.epoll() as poll:
        while (passed := time.monotonic() - start) < seconds + GRACE:
            while opened < connections and spread * opened / connections <= passed < seconds:
                connection = Connection(port, late)
                connection.ask(requests[begun % len(requests)])
                at[connection.socket.fileno()] = connection
                poll.register(connection.socket, select.EPOLLIN)
                opened += 1
                begun += 1
            if not at and (opened == connections or passed >= seconds):
                break
            for descriptor, _ in poll.poll(0.001 if opened < connections else 0.1):
                connection = at[descriptor]
                verdict = connection.read()
                if verdict is None:
                    continue
                if not verdict:
                    outcome.answers.append((connection.sent, connection.stamps))
                else:
                    outcome.failed += 1
                    outcome.first_failure = outcome.first_failure or verdict
                if not verdict and begun < count and time.monotonic() - start < seconds:
                    connection.ask(requests[begun % len(requests)])
                    begun += 1
                else:
                    del at[descriptor]
                    connection.socket.close()
    if at:
        outcome.failed += len(at)
        outcome.first_failure = outcome.first_failure or "not answered in time"
    outcome.wall = time.monotonic() - start
    late.sort()
    outcome.late_p99 = late[len(late) * 99 // 100] if late else 0.0
    return outcome


def main() -> None:
    """One load from the command line; prints its figures as JSON."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--port", type=int, default=8000)
    options.add_argument("--model", required=True)
    options.add_argument("--connections", type=int, default=64)
    options.add_argument("--requests", type=int, default=1000, help="at most so many (%(default)s)")
    options.add_argument("--seconds", type=float, default=60.0, help="start none after this (%(default)s)")
    options.add_argument("--tokens", type=int, default=32, help="tokens of each answer (%(default)s)")
    options.add_argument("--no-stream", action="store_true")
    options.add_argument("--ttft", type=float, default=0.0, help="time to first token it should have, ms")
    options.add_argument("--itl", type=float, default=0.0, help="gap its tokens should have, ms")
    options.add_argument("--spread", type=float, default=0.0, help="open the connections over this time, ms")
    options.add_argument("--pid", type=int, help="the server's process, to measure its CPU time")
    given = options.parse_args()
    gc.disable()  # no pauses of our own; nothing here makes cycles
    request = chat(given.model, given.tokens, stream=not given.no_stream)
    before = cpu_seconds(given.pid) if given.pid else 0.0
    work = {"connections": given.connections, "count": given.requests}
    outcome = drive(given.port, [request], **work, seconds=given.seconds, spread=given.spread / 1e3)
    figures: dict[str, float | str] = {
        "answered": len(outcome.answers),
        "failed": outcome.failed,
        "wall_s": outcome.wall,
        "load_late_p99_ms": outcome.late_p99 * 1e3,
        "requests_per_s": len(outcome.answers) / outcome.wall,
        "tokens_per_s": outcome.tokens / outcome.wall,
        **outcome.timing(given.ttft / 1e3, given.itl / 1e3),
    }
    if given.pid:
        used = (cpu_seconds(given.pid) - before) * 1e6
        figures["cpu_us_per_request"] = used / max(1, len(outcome.answers))
        figures["cpu_us_per_token"] = used / max(1, outcome.tokens)
    if outcome.failed:
        figures["first_failure"] = outcome.first_failure
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    try:
        main()
    except (OSError, KeyboardInterrupt) as error:
        sys.exit(str(error) or "interrupted")
