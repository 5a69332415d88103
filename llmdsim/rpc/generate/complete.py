"""`GenerateComplete`, which tells how a choice ended."""

from __future__ import annotations

from typing import Any

import msgspec

from llmdsim.engine.sequence import Sequence as EngineSequence
from llmdsim.rpc.generate.encoding import delimited
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.web.wants import ReplyWants
from llmdsim.wire.grpc import frame

_COMPLETE = pb.GenerateResponse.COMPLETE_FIELD_NUMBER
_OUTPUT = pb.GenerateComplete.OUTPUT_LOGPROBS_FIELD_NUMBER
_INPUT = pb.GenerateComplete.INPUT_LOGPROBS_FIELD_NUMBER


def complete(
    sequence: EngineSequence,
    wants: ReplyWants,
    start: int,
    stop: int,
    of_prompt: bytes = b"",
    params: dict[str, Any] | None = None,
) -> bytes:
    """The message of a sequence that has ended, framed, with its steps from `start` to `stop`.

    `of_prompt` is the prompt's InputLogProbs; `params` are transfer parameters that are told in place of the
    sequence's own.
    """
    reply = sequence.reply
    assert reply is not None
    ids = reply.ids(start, stop)
    told = sequence.finish_reason or ""
    prefill = wants.prefill
    if prefill is not None:
        told = prefill.finish_reason(told)
        if params is None:
            params = prefill.params(sequence)
    message = pb.GenerateComplete(
        output_ids=ids,
        finish_reason=told,
        prompt_tokens=sequence.prompt_tokens,
        completion_tokens=len(ids),
        cached_tokens=wants.shown_cached(sequence.cached_tokens),
        index=sequence.index,
    )
    matched = reply.stop_reason
    if isinstance(matched, str):
        message.matched_stop_str = matched
    elif matched is not None:
        message.matched_token_id = matched
    if params is not None:
        _tell(message, params)
    data = message.SerializeToString()
    shape = wants.choices[sequence.index].logprobs
    if shape is not None:
        data += delimited(_OUTPUT, shape.render(ids, reply.token_texts(start, stop), start))
    if of_prompt:
        data += delimited(_INPUT, of_prompt)
    return frame(delimited(_COMPLETE, data))


def _tell(message: pb.GenerateComplete, params: dict[str, Any]) -> None:
    """Add transfer parameters, in the form of old clients too where they have an address."""
    message.kv_transfer_params_json = msgspec.json.encode(params).decode()
    host, port = params["remote_host"], params["remote_port"]
    if host and port:
        message.kv_transfer_params.remote_host = host
        message.kv_transfer_params.remote_port = port
