"""Replies of several parts, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmdsim.reply.ask import Ask
from llmdsim.reply.parts import PartedReply, Stretch
from llmdsim.reply.plan import Function, Plan
from llmdsim.reply.reply import Part, Reply
from llmdsim.tokenization import Layout
from tests.web.rig import RankRig

THINKS = Part("reasoning")
SAYS = Part("text")


def calls(name: str = "f") -> Part:
    return Part("call", name)


def reply_of(
    *said: tuple[Part, str],
    markup: Sequence[str] = (),
    width: int = 3,
    finish_reason: str = "stop",
    stop_reason: str | None = None,
) -> PartedReply:
    """A reply of these parts in tokens of `width` characters, each behind its `markup`, "|" if none."""
    text = ""
    stretches = []
    for place, (part, shown) in enumerate(said):
        text += markup[place] if place < len(markup) else "|"
        stretches.append(Stretch(part, len(text), len(text) + len(shown)))
        text += shown
    pieces = [text[at : at + width] for at in range(0, len(text), width)]
    layout = Layout.of(pieces, list(range(len(pieces))))
    return PartedReply(layout, stretches, range(0), finish_reason, stop_reason)


def say(rig: RankRig, monkeypatch: Any, reply: Reply, calling: Any = "auto") -> None:
    """Have a rank answer everything with this reply, as what was planned."""
    plan = Plan(functions=(Function("f"),), calls=calling)

    def write(_: Ask) -> Reply:
        return reply

    monkeypatch.setattr(rig.rank.engine, "_write", write)
    monkeypatch.setattr("llmdsim.web.conversation.plan_of", lambda *_: plan)
