"""A whole rank in memory: connections over fake transports, time that the test moves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from twisted.internet.task import Clock

from llmdsim.config import Config, parse
from llmdsim.services.rank import Rank
from llmdsim.tokenization.builtin import BuiltinTokenizer
from llmdsim.tokenization.loaded import Loaded
from llmdsim.tokenization.tokenizer import Tokenizer
from llmdsim.web.templates import templates_of
from llmdsim.wire.request import Request
from tests.wire.channel import Client, Reply, TCPTransport, post, read_replies


class PassClock(Clock):
    """Passes as those of the deadline clock: what is scheduled during one waits for the next."""

    def advance(self, amount: float) -> None:
        self.rightNow += amount
        due = [call for call in sorted(self.calls, key=lambda call: call.getTime()) if self._is_due(call)]
        for call in due:
            if call.active():
                self.calls.remove(call)
                call.called = 1
                call.func(*call.args, **call.kw)

    def _is_due(self, call: Any) -> bool:
        return bool(call.getTime() <= self.rightNow)


class RankRig:
    """A rank with the flags given, or a whole configuration; `templates` are its model's, by name.

    Its `tokenizer` is the built-in one, unless told otherwise. `post` sends JSON over a connection of its own
    and returns its client.
    """

    clock_type = Clock

    def __init__(
        self,
        *flags: str,
        config: Config | None = None,
        tokenizer: Tokenizer | None = None,
        templates: Mapping[str, str] | None = None,
    ) -> None:
        self.clock = self.clock_type()
        config = config or parse(["--model", "m", *flags], {})
        special = {"bos_token": "<s>", "eos_token": "</s>"}
        loaded = Loaded(tokenizer or BuiltinTokenizer(), templates or {}, special)
        self.rank = Rank(config, loaded.tokenizer, self.clock, templates=templates_of(config, loaded))
        self.site = self.rank.site
        self.requests: list[Request] = []

    def connect(self) -> Client:
        return Client(self, TCPTransport)  # type: ignore[arg-type]

    def post(self, path: str, body: dict[str, Any]) -> Client:
        return self.connect().send(post(json.dumps(body).encode(), path=path.encode()))

    def settle(self) -> None:
        """Let one turn of the reactor pass."""
        self.clock.advance(0)


class PassRig(RankRig):
    """A rank whose clock passes as the real one does; `turns` lets so many pass."""

    clock_type = PassClock

    def turns(self, number: int) -> None:
        for _ in range(number):
            self.settle()

    def finish(self) -> int:
        """Let turns pass until everything is answered; returns how many."""
        for turn in range(2000):
            if self.rank.engine.idle and not self.rank.context.turns.busy:
                return turn
            self.clock.advance(0.001)
        raise AssertionError("never answered")

    def ask(self, path: str, body: dict[str, Any]) -> Reply:
        """What a request gets whose answer leaves its connection open."""
        client = self.post(path, body)
        self.finish()
        (reply,) = read_replies(client.received, [b"POST"], ended=False)
        return reply
