"""The parts of a chat reply as JSON: reasoning, content and tool calls, whole and bit by bit."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from llmdsim.engine.sequence import Sequence as EngineSequence
from llmdsim.reply.reply import Delta, Part
from llmdsim.web.ids import call_id
from llmdsim.web.images import IMAGE_PART, text_part
from llmdsim.web.wants import ChoiceWants

json = msgspec.json.encode

#: What messages of vLLM have and never use.
_NO_MORE = b',"refusal":null,"annotations":null,"audio":null,"function_call":null'
#: Of a message that is text alone; it takes that text as the inside of a JSON string.
TEXT_MEMBERS = b'"content":"%b"' + _NO_MORE + b',"reasoning":null'


class PartMembers:
    """Renders one choice's deltas, in order, as the members of a chunk's `delta`.

    With `as_parts` text is a content part, as beside an image.
    """

    def __init__(self, parts: Sequence[Part], as_parts: bool) -> None:
        self._parts = parts
        self._as_parts = as_parts
        self._begun = -1

    def render(self, deltas: Sequence[Delta]) -> bytes:
        """The members for what is added; id, type and name are in a call's first delta alone."""
        members = []
        kinds: dict[str, list[Delta]] = {}
        for delta in deltas:
            kinds.setdefault(self._parts[delta.part].kind, []).append(delta)
        for kind, group in kinds.items():
            if kind == "call":
                members.append(b'"tool_calls":[%b]' % b",".join(map(self._call, group)))
                continue
            text = json("".join([delta.text for delta in group]))
            if kind == "reasoning":
                members.append(reasoning_members(text))
            else:
                members.append(b'"content":%b' % (b"[%b]" % text_part(text) if self._as_parts else text))
        return b",".join(members)

    def _call(self, delta: Delta) -> bytes:
        number = delta.part
        index = sum(part.kind == "call" for part in self._parts[:number])
        if number == self._begun:
            return b'{"index":%d,"function":{"arguments":%b}}' % (index, json(delta.text))
        self._begun = number
        return b'{"id":"%b","type":"function","index":%d,"function":{"name":%b,"arguments":%b}}' % (
            call_id(),
            index,
            json(self._parts[number].name),
            json(delta.text),
        )


def reasoning_members(text: bytes) -> bytes:
    """Reasoning, JSON, under its present name and the one older clients look for."""
    return b'"reasoning":%b,"reasoning_content":%b' % (text, text)


def message_members(sequence: EngineSequence, choice: ChoiceWants) -> bytes:
    """The members of a whole `message` behind its role."""
    reply = sequence.reply
    assert reply is not None
    if not choice.parted:
        return TEXT_MEMBERS % (choice.lead + reply.json_text())
    texts = {"text": "", "reasoning": ""}
    calls = []
    for part, text in zip(reply.parts, reply.part_texts(), strict=True):
        if part.kind == "call":
            calls.append(
                b'{"id":"%b","type":"function","function":{"name":%b,"arguments":%b}}'
                % (call_id(), json(part.name), json(text))
            )
        else:
            texts[part.kind] += text
    plan = sequence.ask.plan
    shown = json(texts["text"])
    if choice.lead:
        shown = b'"%b%b' % (choice.lead, shown[1:])
    elif not texts["text"] and plan is not None and plan.calls in ("none", "auto"):
        shown = b"null"
    if plan is not None and plan.image:
        parts = ([text_part(shown)] if texts["text"] or choice.lead else []) + [IMAGE_PART]
        shown = b"[%b]" % b",".join(parts)
    reasoning = reasoning_members(json(texts["reasoning"])) if texts["reasoning"] else b'"reasoning":null'
    listed = b',"tool_calls":[%b]' % b",".join(calls) if calls else b""
    return b'"content":%b%b%b,%b' % (shown, _NO_MORE, listed, reasoning)
