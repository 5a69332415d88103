"""One response in the making: the items its reply becomes, their ids, and the finished object."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from llmdsim.engine.sequence import Sequence as EngineSequence
from llmdsim.reply.reply import TEXT_ONLY, Part, Reply
from llmdsim.web.ids import call_id, hex_digits
from llmdsim.web.responses import tools
from llmdsim.web.responses.logprobs import ResponseLogprobs
from llmdsim.web.responses.output_items import CustomCall, FunctionCall, Item, Message, Reasoning
from llmdsim.web.responses.request import ResponsesRequest
from llmdsim.web.responses.response_object import ResponseObject, usage
from llmdsim.web.responses.tools import Callee
from llmdsim.web.transfer import transfer_members
from llmdsim.web.wants import ReplyWants

NULL = b"null"
json = msgspec.json.encode

_PREFIXES = {"text": b"msg_", "reasoning": b"rs_", "call": b"fc_"}


class Response:
    """What `request` is answered with. Whoever tells of it, stream or whole, tells the same ids.

    `shape` is that of the log probabilities, where they are told. `prompt` is the raw message that went in,
    as JSON, where messages are told.
    """

    def __init__(
        self,
        request: ResponsesRequest,
        told: ResponseObject,
        wants: ReplyWants,
        shape: ResponseLogprobs | None = None,
        prompt: bytes | None = None,
    ) -> None:
        (choice,) = wants.choices
        self.object = told
        self.wants = wants
        #: Whether the reply may have other parts than text.
        self.parted = choice.parted
        self.shape = shape
        self._prompt = prompt
        self._transfer: tuple[bytes, bytes] | None = None
        self._callees = tools.callees(request.tools)
        self._ids: dict[int, tuple[bytes, bytes]] = {}

    def part(self, reply: Reply, number: int) -> Part:
        """Part `number` of the reply, which is text where there are no others to be told apart."""
        return reply.parts[number] if self.parted else TEXT_ONLY[0]

    def item(self, reply: Reply, number: int) -> Item:
        """The item that part `number` of the reply becomes."""
        part = self.part(reply, number)
        callee = self._callees.get(part.name) or Callee(part.name)
        made = self._ids.get(number)
        if made is None:
            prefix = b"ctc_" if part.kind == "call" and callee.custom else _PREFIXES[part.kind]
            made = self._ids[number] = prefix + hex_digits().encode(), call_id()
        if part.kind == "text":
            return Message(made[0], number)
        if part.kind == "reasoning":
            return Reasoning(made[0], number)
        kind = CustomCall if callee.custom else FunctionCall
        return kind(made[0], number, made[1], callee)

    def status(self, sequence: EngineSequence) -> bytes:
        """The status of a reply that has ended, and of its last item."""
        return b"incomplete" if sequence.finish_reason == "length" else b"completed"

    def finished(self, sequence: EngineSequence, items: Iterable[bytes]) -> bytes:
        """The object when the reply has ended, its output being `items`."""
        reply, wants = sequence.reply, self.wants
        assert reply is not None
        counts = usage(
            wants.prompt_tokens,
            wants.shown_cached(sequence.cached_tokens),
            sequence.created_tokens,
            sequence.revealed,
            reply.reasoning_tokens(sequence.revealed),
        )
        if self._transfer is None:
            # Once, for every time tells of blocks of its own.
            self._transfer = transfer_members(wants.prefill, sequence)
        messages = None
        if self._prompt is not None:
            said = raw_message(reply.text(), json(reply.ids(0, reply.total)))
            messages = self._prompt, said
        return self.object.render(
            self.status(sequence), b",".join(items), counts, messages, self._transfer, wants.ec_transfer
        )

    def body(self, sequences: Sequence[EngineSequence], completion_tokens: int, cached_tokens: int) -> bytes:
        """The object of a response that was not streamed."""
        (sequence,) = sequences
        reply = sequence.reply
        assert reply is not None
        return self.finished(sequence, self._items(sequence, reply))

    def _items(self, sequence: EngineSequence, reply: Reply) -> list[bytes]:
        texts = reply.part_texts() if self.parted else [reply.text()]
        found = []
        for number, text in enumerate(texts):
            item = self.item(reply, number)
            status = self.status(sequence) if number == len(texts) - 1 else b"completed"
            logprobs = NULL
            kind = self.part(reply, number).kind
            if kind == "text" and self.shape is not None:
                logprobs = json(self._listed(reply, number, self.shape))
            # (vLLM)
            shown = NULL if kind == "reasoning" else b'"%b"' % status
            found.append(item.whole(json(item.full(text)), shown, logprobs))
        return found

    def _listed(self, reply: Reply, number: int, shape: ResponseLogprobs) -> list[dict[str, Any]]:
        """Log probabilities of the tokens of a text; of a reply that is nothing else, all of them."""
        start, stop = 0, reply.total
        if self.parted:
            steps = [
                step
                for step, deltas in enumerate(reply.deltas(0, reply.total))
                if any(delta.part == number for delta in deltas)
            ]
            if not steps:
                return []  # ended before it began, or empty
            start, stop = steps[0], steps[-1] + 1
        return shape.entries(reply.ids(start, stop), reply.token_texts(start, stop), start)


def raw_message(text: str, ids: bytes) -> bytes:
    """What went into the model or came out of it; `ids` are JSON."""
    return b'{"message":%b,"tokens":%b,"type":"raw_message_tokens"}' % (json(text), ids)
