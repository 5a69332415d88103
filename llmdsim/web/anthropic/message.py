"""A message sent whole."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from llmdsim.engine.sequence import Sequence as EngineSequence
from llmdsim.web.anthropic.finish import is_object, stop_reason
from llmdsim.web.anthropic.usage import message_usage
from llmdsim.web.errors import ApiError
from llmdsim.web.ids import call_id, hex_digits
from llmdsim.web.reply_head import ReplyHead
from llmdsim.web.transfer import transfer_members
from llmdsim.web.wants import ReplyWants
from llmdsim.web.whole import Body

NULL = b"null"
json = msgspec.json.encode


def message_body(head: ReplyHead, wants: ReplyWants) -> Body:
    """The message object: vLLM 0.33's keys, nulls left out."""

    def body(sequences: Sequence[EngineSequence], completion_tokens: int, cached_tokens: int) -> bytes:
        (sequence,) = sequences
        reply = sequence.reply
        assert reply is not None
        calls: list[str] = []
        if wants.choices[0].parted:
            blocks = _blocks(sequence, calls)
        else:
            blocks = b'{"type":"text","text":"%b"}' % reply.json_text()
        reason, matched = stop_reason(sequence, calls, wants.prefill)
        ending = b"" if reason is None else b',"stop_reason":"%b"' % reason.encode()
        if matched is not None:
            ending += b',"stop_sequence":%b' % json(matched)
        return b'{"id":%b,"type":"message","role":"assistant","content":[%b],"model":%b%b,"usage":%b%b}' % (
            json(head.id),
            blocks,
            head.model,
            ending,
            message_usage(wants, completion_tokens, cached_tokens, sequence.created_tokens),
            _transfer(sequence, wants),
        )

    return body


def _transfer(sequence: EngineSequence, wants: ReplyWants) -> bytes:
    """What is told of KV blocks and of encodings, if anything is, as members with their leading commas."""
    params, flat = transfer_members(wants.prefill, sequence)
    told = b"" if params == NULL else b',"kv_transfer_params":%b' % params
    if wants.ec_transfer != NULL:
        told += b',"ec_transfer_params":%b' % wants.ec_transfer
    return told + flat


def _blocks(sequence: EngineSequence, calls: list[str]) -> bytes:
    """The content: reasoning, then text, then calls, whose arguments are added to `calls`.

    What should have become a call and was cut short is text where calling was free, and else an ApiError 400,
    as in vLLM: its input would be no object.
    """
    reply, plan = sequence.reply, sequence.ask.plan
    assert reply is not None
    texts = {"reasoning": "", "text": ""}
    uses = []
    for part, text in zip(reply.parts, reply.part_texts(), strict=True):
        if part.kind != "call":
            texts[part.kind] += text
        elif is_object(text):
            calls.append(text)
            name = json(part.name)
            uses.append(
                b'{"type":"tool_use","id":"%b","name":%b,"input":%b}' % (call_id(), name, text.encode())
            )
        elif plan is not None and plan.calls == "auto":
            texts["text"] += text
        else:
            raise ApiError(400, "The call's arguments are no JSON object: it may have been cut short.")
    blocks = []
    if texts["reasoning"]:
        thought, signature = json(texts["reasoning"]), hex_digits(32).encode()
        blocks.append(b'{"type":"thinking","thinking":%b,"signature":"%b"}' % (thought, signature))
    if texts["text"] or not (blocks or uses):
        blocks.append(b'{"type":"text","text":%b}' % json(texts["text"]))
    return b",".join(blocks + uses)
