"""The JSON of whole replies of `POST /inference/v1/generate`: vLLM 0.33's keys, nulls kept."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from llmdsim.engine.sequence import Sequence as EngineSequence
from llmdsim.web.finish import chat_finish_reason, finish_members
from llmdsim.web.frames import NULL
from llmdsim.web.generate.request import OutputMode
from llmdsim.web.logprobs import prompt_logprobs
from llmdsim.web.parts import message_members
from llmdsim.web.reply_head import ReplyHead
from llmdsim.web.transfer import transfer_members
from llmdsim.web.usage import reply_usage
from llmdsim.web.wants import ChoiceWants, ReplyWants
from llmdsim.web.whole import Body

json = msgspec.json.encode


def generate_body(
    head: ReplyHead, wants: ReplyWants, mode: OutputMode, scores: bytes, placeholders: bytes
) -> Body:
    """The reply of `mode`; `scores` and `placeholders` are JSON values."""

    def body(sequences: Sequence[EngineSequence], completion_tokens: int, cached_tokens: int) -> bytes:
        first = wants.choices[0]
        listed = NULL
        if wants.prompt_logprobs is not None:
            listed = prompt_logprobs(
                first.prompt.ids, first.prompt.texts, wants.prompt_logprobs, wants.vocab_size
            )
        params, flat = transfer_members(wants.prefill, sequences[0])
        choices = [_choice(sequence, wants, mode) for sequence in sequences]
        return (
            b'{"request_id":%b,"model":%b,"created":%d,"usage":%b,"prompt_logprobs":%b,'
            b'"prompt_token_id_logprobs":%b,"prompt_token_ids":%b,"mm_placeholders":%b,"metrics":null,'
            b'"kv_transfer_params":%b,"ec_transfer_params":%b,"output_mode":"%b","choices":[%b]%b}'
            % (
                json(head.id),
                head.model,
                head.created,
                reply_usage(wants, completion_tokens, cached_tokens),
                listed,
                scores,
                first.prompt_ids,
                placeholders,
                params,
                wants.ec_transfer,
                mode.encode(),
                b",".join(choices),
                flat,
            )
        )

    return body


def _choice(sequence: EngineSequence, wants: ReplyWants, mode: OutputMode) -> bytes:
    reply = sequence.reply
    assert reply is not None
    choice = wants.choices[sequence.index]
    ids = reply.ids(0, reply.total)
    reason = chat_finish_reason(sequence) if mode == "derender" else None
    logprobs = NULL
    if choice.logprobs is not None:
        logprobs = choice.logprobs.render(ids, reply.token_texts(0, reply.total), 0)
    return (
        b'{"index":%d,%b,"token_ids":%b,"routed_experts":null,"sampling_mask":null,"weight_versions":null,'
        b'%b"logprobs":%b}'
        % (
            sequence.index,
            finish_members(sequence, reason, wants.prefill),
            json(ids) if wants.token_ids else NULL,
            _said(sequence, choice, mode),
            logprobs,
        )
    )


def _said(sequence: EngineSequence, choice: ChoiceWants, mode: OutputMode) -> bytes:
    """What a choice has besides ids, with its trailing comma."""
    if mode == "tokens":
        return b""
    reply = sequence.reply
    assert reply is not None
    if mode == "text":
        return b'"text":"%b",' % reply.json_text()
    return b'"message":{"role":"assistant",%b},' % message_members(sequence, choice)
