"""A whole rank in memory: connections over fake transports, time that the test moves."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.task import Clock

from llmdsim.config import parse
from llmdsim.services.rank import Rank
from llmdsim.tokenization.builtin import BuiltinTokenizer
from llmdsim.wire.request import Request
from tests.wire.channel import Client, TCPTransport


class RankRig:
    """A rank with the flags given; `post` sends JSON over a connection of its own and returns its client."""

    def __init__(self, *flags: str) -> None:
        self.clock = Clock()
        self.rank = Rank(parse(["--model", "m", *flags], {}), BuiltinTokenizer(), self.clock)
        self.site = self.rank.site
        self.requests: list[Request] = []

    def connect(self) -> Client:
        return Client(self, TCPTransport)  # type: ignore[arg-type]

    def post(self, path: str, body: dict[str, Any]) -> Client:
        data = json.dumps(body).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: sim\r\nContent-Length: {len(data)}\r\n\r\n"
        return self.connect().send(head.encode() + data)

    def settle(self) -> None:
        """Let one turn of the reactor pass."""
        self.clock.advance(0)
