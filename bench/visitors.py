"""Clients of every kind that a soak lets loose on a server, and the tally of what they saw."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from load import get, post

PATIENCE = 30.0  # seconds a visit may take
MOST_FAILURES = 100  # of all visits; then the visitors have seen enough
CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
VOCABULARY = [f"{first}{second}" for first in "bcdfghklmnprstvz" for second in ("a", "en", "il", "o", "ust")]


@dataclass
class Tally:
    """What all visitors saw, in choices and tokens.

    `choices` and `tokens` are of complete answers. `left` and `left_tokens` are the most that requests whose
    client left can have made, and `begun` the choices among `left` that were seen to be under way.
    """

    visits: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    choices: int = 0
    tokens: int = 0
    left: int = 0
    left_tokens: int = 0
    begun: int = 0


class Wrong(Exception):
    """An answer that is not what was to come."""


class Connection:
    """One connection, and the whole answers on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int, buffer: int = 0) -> Connection:
        """Connect; with `buffer`, take in no more than about that many bytes unread."""
        if not buffer:
            return cls(*await asyncio.open_connection("127.0.0.1", port))
        mine = socket.socket()
        mine.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        mine.setblocking(False)
        await asyncio.get_running_loop().sock_connect(mine, ("127.0.0.1", port))
        return cls(*await asyncio.open_connection(sock=mine, limit=buffer))

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)

    async def answer(self, pause: float = 0.0) -> tuple[int, bytes]:
        """Status and body of the next answer; `pause` seconds pass before each chunk is read."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        _, found, rest = head.lower().partition(b"\r\ncontent-length:")
        if found:
            return status, await self.reader.readexactly(int(rest.split(b"\r\n", 1)[0]))
        body = b""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            body += (await self.reader.readexactly(size + 2))[:-2]
            if pause:
                await asyncio.sleep(pause)
        await self.reader.readexactly(2)
        return status, body

    async def close(self, reset: bool = False) -> None:
        """Leave, with a FIN or a RST."""
        if reset:
            its = self.writer.get_extra_info("socket")
            its.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.writer.transport.abort()
        else:
            self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            pass


@dataclass
class Wanted:
    """A generation request: what it is on the wire, and what it makes."""

    wire: bytes
    choices: int
    tokens: int


def counted(status: int, body: bytes) -> tuple[int, int]:
    """Choices and tokens of a complete answer, whole or streamed; raises Wrong for any other."""
    if status != 200:
        raise Wrong(f"status {status}: {body[:300]!r}")
    if not body.startswith(b"data: "):
        document = json.loads(body)
        return len(document["choices"]), int(document["usage"]["completion_tokens"])
    events = body.split(b"\n\n")
    if events[-2:] != [b"data: [DONE]", b""]:
        raise Wrong(f"a stream that ends in {body[-100:]!r}")
    frames: list[Any] = [json.loads(event[6:]) for event in events[:-2]]
    ended = sum(choice["finish_reason"] is not None for frame in frames for choice in frame["choices"])
    return ended, int(frames[-1]["usage"]["completion_tokens"])


BAD = (
    post(CHAT, b""),
    post(CHAT, b'{"messages":'),
    post(CHAT, b'{"messages":[{"role":"user","content":"a"}],"temperature":NaN}'),
    post(CHAT, b'{"messages":[{"role":"user","content":"a"}],"model":"none such"}'),
    post(CHAT, b"[" * 100_000),
    post(TEXT, b'{"prompt":[1,"a",[]]}'),
    post(TEXT, b'{"prompt":"\xff"}'),
    post(TEXT, b'{"prompt":"a","n":100000}'),
    post(TEXT, b'{"prompt":"\\ud800"}'),
    post("/v1/nothing", b"{}"),
    get(CHAT),
    get("/" + "a" * 5000),
    b"GET / HTTP/1.1\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 not in plain text\r\n\r\n",
    post(CHAT, b"{}").replace(b"Content-Length: 2", b"Transfer-Encoding: chunked") + b"zz\r\n",
)


class Visitor:
    """One client that visits again and again, each time as another kind, drawn from a seed."""

    def __init__(self, port: int, seed: str, tally: Tally) -> None:
        self._port = port
        self._random = Random(seed)
        self._tally = tally
        self._kept: Connection | None = None
        self._kinds: dict[str, tuple[int, Callable[[], Awaitable[None]]]] = {
            "chat": (20, self._chat),
            "text": (12, self._text),
            "long": (4, self._long),
            "logprobs": (6, self._logprobs),
            "bad": (14, self._bad),
            "health": (8, self._health),
            "leave_in_head": (5, self._leave_in_head),
            "leave_in_body": (5, self._leave_in_body),
            "leave_waiting": (8, self._leave_waiting),
            "leave_streaming": (8, self._leave_streaming),
            "slow_reader": (3, self._slow_reader),
            "never_reader": (2, self._never_reader),
            "idle": (2, self._idle),
        }

    async def visit_until(self, stop: float) -> None:
        """Visit until the loop's time is `stop`, or too many visits have failed."""
        names = [*self._kinds]
        weights = [weight for weight, _ in self._kinds.values()]
        loop = asyncio.get_running_loop()
        while loop.time() < stop and len(self._tally.failures) < MOST_FAILURES:
            (kind,) = self._random.choices(names, weights)
            try:
                await asyncio.wait_for(self._kinds[kind][1](), PATIENCE)
            except (Wrong, OSError, EOFError, TimeoutError, ValueError, KeyError) as error:
                self._tally.failures.append(f"{kind}: {error!r}")
                await self._drop()
            self._tally.visits[kind] += 1
            await asyncio.sleep(self._random.uniform(0.0, 0.05))
        await self._drop()

    async def _drop(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            await kept.close()

    async def _connection(self) -> Connection:
        if self._kept is None or self._random.random() < 0.2:
            await self._drop()
            self._kept = await Connection.open(self._port)
        return self._kept

    def _words(self, count: int) -> str:
        return " ".join(self._random.choices(VOCABULARY, k=count))

    def _wanted(self, path: str, most: int = 40, **more: Any) -> Wanted:
        """A request of a few tokens, streamed or whole, unless `more` says something else."""
        draw = self._random
        fields: dict[str, Any] = {
            "model": "m",
            "max_tokens": draw.randint(1, most),
            "ignore_eos": draw.random() < 0.7,
        }
        if draw.random() < 0.5:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        if path == CHAT:
            fields["messages"] = [{"role": "user", "content": self._words(draw.randint(1, 60))}]
        else:
            fields["prompt"] = self._words(draw.randint(1, 60))
        fields |= more
        prompt = fields.get("prompt")
        choices = fields.get("n", 1) * (len(prompt) if isinstance(prompt, list) else 1)
        return Wanted(post(path, json.dumps(fields).encode()), choices, choices * fields["max_tokens"])

    async def _complete(
        self, wanted: Wanted, connection: Connection | None = None, pause: float = 0.0
    ) -> None:
        connection = connection or await self._connection()
        connection.send(wanted.wire)
        choices, tokens = counted(*await connection.answer(pause))
        if choices != wanted.choices or not choices <= tokens <= wanted.tokens:
            raise Wrong(f"{choices} choices of {tokens} tokens for {wanted!r}")
        self._tally.choices += choices
        self._tally.tokens += tokens

    async def _chat(self) -> None:
        await self._complete(self._wanted(CHAT, n=self._random.choice((1, 1, 1, 3))))

    async def _text(self) -> None:
        prompts = [self._words(self._random.randint(1, 20)) for _ in range(self._random.randint(1, 4))]
        await self._complete(self._wanted(TEXT, prompt=prompts, n=self._random.randint(1, 4)))

    async def _long(self) -> None:
        text = self._words(self._random.choice((1000, 5000, 20_000)))
        await self._complete(self._wanted(TEXT, prompt=text, echo=self._random.random() < 0.5))

    async def _logprobs(self) -> None:
        if self._random.random() < 0.5:
            await self._complete(
                self._wanted(CHAT, 300, logprobs=True, top_logprobs=self._random.randint(0, 20))
            )
        else:
            more = {"stream": False, "stream_options": None, "prompt_logprobs": 5}
            await self._complete(self._wanted(TEXT, 300, logprobs=5, **more))

    async def _bad(self) -> None:
        connection = await Connection.open(self._port)
        try:
            connection.send(self._random.choice(BAD))
            status, body = await connection.answer()
            if not 400 <= status < 500 or json.loads(body)["error"]["code"] != status:
                raise Wrong(f"status {status}: {body[:300]!r}")
        finally:
            await connection.close()

    async def _health(self) -> None:
        connection = await self._connection()
        for path in ("/health", "/v1/models", "/version", "/load"):
            connection.send(get(path))
            status, _ = await connection.answer()
            if status != 200:
                raise Wrong(f"{path}: status {status}")

    async def _cut(self, data: bytes) -> None:
        connection = await Connection.open(self._port)
        connection.send(data)
        await asyncio.sleep(self._random.choice((0.0, 0.0, 0.01, 0.2)))
        await connection.close(self._random.random() < 0.5)

    async def _leave_in_head(self) -> None:
        wire = self._wanted(CHAT).wire
        await self._cut(wire[: self._random.randrange(wire.index(b"\r\n\r\n"))])

    async def _leave_in_body(self) -> None:
        wire = self._wanted(TEXT).wire
        await self._cut(wire[: self._random.randrange(wire.index(b"\r\n\r\n") + 4, len(wire))])

    async def _leave_waiting(self) -> None:
        wanted = self._wanted(CHAT, n=self._random.choice((1, 4)))
        self._tally.left += wanted.choices
        self._tally.left_tokens += wanted.tokens
        await self._cut(wanted.wire)

    async def _leave_streaming(self) -> None:
        connection = await Connection.open(self._port)
        wanted = self._wanted(CHAT, 300, stream=True, n=self._random.choice((1, 2)))
        self._tally.left += wanted.choices
        self._tally.left_tokens += wanted.tokens
        try:
            connection.send(wanted.wire)
            for _ in range(self._random.randint(1, 20)):
                if b"data: [DONE]" in await connection.reader.readuntil(b"\n\n"):
                    break
            self._tally.begun += wanted.choices
        finally:
            await connection.close(self._random.random() < 0.5)

    async def _slow_reader(self) -> None:
        connection = await Connection.open(self._port, 4096)
        try:
            wanted = self._wanted(CHAT, 300, stream=True, stream_options={"include_usage": True})
            await self._complete(wanted, connection, self._random.uniform(0.0, 0.01))
        finally:
            await connection.close()

    async def _never_reader(self) -> None:
        connection = await Connection.open(self._port, 4096)
        wanted = self._wanted(CHAT, 2000, stream=True, n=2, logprobs=True, top_logprobs=5, ignore_eos=True)
        self._tally.left += wanted.choices
        self._tally.left_tokens += wanted.tokens
        connection.send(wanted.wire)
        await asyncio.sleep(self._random.uniform(0.0, 3.0))
        await connection.close(True)

    async def _idle(self) -> None:
        connection = await Connection.open(self._port)
        await asyncio.sleep(self._random.uniform(0.0, 3.0))
        await connection.close()
