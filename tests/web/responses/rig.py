"""A rank in memory as clients of `/v1/responses` see it, and replies made by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from llmdsim.reply.ask import Ask
from llmdsim.reply.parts import PartedReply, Stretch
from llmdsim.reply.plan import Plan
from llmdsim.reply.reply import Part, Reply
from llmdsim.tokenization import Layout
from llmdsim.web.chat_request import ChatRequest
from llmdsim.web.context import Context
from tests.web.responses.events import Event, parse
from tests.web.rig import RankRig
from tests.wire.channel import Client, get, post, read_replies
from tests.wire.channel import Reply as HttpReply

PATH = "/v1/responses"

#: A part and its text.
Said = tuple[Part, str]


def reply_of(client: Client, method: bytes = b"POST") -> HttpReply:
    (reply,) = read_replies(client.received, [method], client.fate != "open")
    return reply


class ResponsesRig(RankRig):
    """`create` posts a body, `ask` any other request; both return the reply as it is after one turn."""

    def send(self, **body: Any) -> Client:
        """A client that has posted a body; its input is "one two" if not given."""
        body = {"input": "one two", **body}
        return self.connect().send(post(json.dumps(body).encode(), path=PATH.encode()))

    def create(self, **body: Any) -> HttpReply:
        client = self.send(**body)
        self.settle()
        return reply_of(client)

    def made(self, **body: Any) -> Any:
        """The object of a response that succeeds."""
        reply = self.create(**body)
        assert reply.status == 200, reply.body
        return json.loads(reply.body)

    def streamed(self, **body: Any) -> list[Event]:
        reply = self.create(stream=True, **body)
        assert reply.status == 200, reply.body
        assert reply.complete
        return parse(reply.body)

    def visit(self, path: str, method: bytes = b"GET") -> Client:
        return self.connect().send(get(f"{PATH}/{path}".encode(), method=method))

    def ask(self, path: str, method: bytes = b"GET") -> HttpReply:
        client = self.visit(path, method)
        self.settle()
        return reply_of(client, method)

    def found(self, path: str, method: bytes = b"GET") -> Any:
        reply = self.ask(path, method)
        assert reply.status == 200, reply.body
        return json.loads(reply.body)


def parted(
    said: Sequence[Said], cuts: Sequence[int], finish_reason: str = "stop", reasoning: int = 0
) -> PartedReply:
    """A reply of these parts, markup before each of them; `cuts` are where its tokens end, in characters.

    The first `reasoning` tokens count as such.
    """
    text, stretches = "", []
    for part, words in said:
        text += f"<{part.kind}>"
        stretches.append(Stretch(part, len(text), len(text) + len(words)))
        text += words
    bounds = sorted({cut % (len(text) + 1) for cut in cuts} | {0, len(text)})
    texts = [text[a:b] for a, b in pairwise(bounds)]
    layout = Layout.of(texts, list(range(len(texts))))
    return PartedReply(layout, stretches, range(min(reasoning, len(texts))), finish_reason)


def says(rig: RankRig, monkeypatch: Any, write: Callable[[Ask], Reply]) -> list[Plan]:
    """Have the engine's replies written by `write`, to plans; returns those it was given."""
    plans: list[Plan] = []

    def plan_of(context: Context, chat: ChatRequest, image: bool) -> Plan:
        return Plan(reasoning="shown")

    def noted(ask: Ask) -> Reply:
        assert ask.plan is not None
        plans.append(ask.plan)
        return write(ask)

    monkeypatch.setattr("llmdsim.web.conversation.plan_of", plan_of)
    monkeypatch.setattr(rig.rank.engine, "_write", noted)
    return plans
