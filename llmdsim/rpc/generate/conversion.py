"""From a message to the generate request of HTTP that asks for the same, so that one set of rules holds."""

from __future__ import annotations

from typing import Any, Literal, TypeVar

import msgspec
from google.protobuf.internal.containers import RepeatedScalarFieldContainer

from llmdsim.rpc.generate.media import media_of
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.web import decoding
from llmdsim.web.errors import ApiError
from llmdsim.web.generate.request import MAX_STOP_STRINGS, GenerateRequest, SamplingParams
from llmdsim.web.generation_request import StructuredOutputs

#: Ids that are to end a text, ids with a bias, or texts to choose from.
MOST_ITEMS = 65_536

_PORTS = range(1, 65536)

T = TypeVar("T", int, str)


class TextInput(msgspec.Struct):
    """A prompt that came as text, for whoever cuts it (`context_length.Prompted`)."""

    truncate_prompt_tokens: int | None
    truncation_side: Literal["left", "right"] | None = None
    add_special_tokens: bool = True
    asked_max_tokens: tuple[int | None, str] = (None, "max_tokens")


def text_input(asked: pb.GenerateRequest) -> TextInput:
    """The form of a prompt that is a text; one of ids is never cut (vLLM). Raises ApiError 400."""
    params = asked.sampling_params
    if not params.HasField("truncate_prompt_tokens"):
        return TextInput(None)
    kept = params.truncate_prompt_tokens
    if kept < -1:
        raise ApiError.parameter(
            f"truncate_prompt_tokens must be at least -1, got {kept}.", "truncate_prompt_tokens", kept
        )
    return TextInput(kept)


def request_of(asked: pb.GenerateRequest, ids: list[int]) -> GenerateRequest:
    """The request; `ids` are its prompt, none where that is a text. Raises ApiError 400."""
    transfer = _transfer(asked)
    media = None
    if ids and (asked.HasField("mm_inputs") or asked.extra_mm_inputs):
        media = media_of(asked, len(ids), transfer is not None)
    if asked.HasField("media_refs"):
        message = "This server has no media processor: send media_refs elsewhere, or their tokens."
        raise ApiError.parameter(message, "media_refs")
    return GenerateRequest(
        token_ids=ids,
        sampling_params=_sampling_params(asked.sampling_params),
        stream=asked.stream,
        cache_salt=None if media is None else media.salt,
        features=None if media is None else media.features,
        kv_transfer_params=transfer,
    )


def _sampling_params(params: pb.SamplingParams) -> SamplingParams:
    found = SamplingParams(
        n=params.n or 1,
        temperature=params.temperature if params.HasField("temperature") else 1.0,
        top_p=params.top_p or 1.0,
        top_k=params.top_k,
        seed=params.seed if params.HasField("seed") else None,
        stop=_listed("stop", params.stop, MAX_STOP_STRINGS),
        stop_token_ids=_listed("stop_token_ids", params.stop_token_ids),
        ignore_eos=params.ignore_eos,
        max_tokens=params.max_tokens if params.HasField("max_tokens") else None,
        min_tokens=params.min_tokens,
        logprobs=params.logprobs if params.HasField("logprobs") else None,
        prompt_logprobs=params.prompt_logprobs if params.HasField("prompt_logprobs") else None,
        skip_special_tokens=params.skip_special_tokens,
        spaces_between_special_tokens=params.spaces_between_special_tokens,
        include_stop_str_in_output=params.include_stop_str_in_output,
    )
    # Apart: Python makes a dict of more than fifteen keyword arguments.
    found.presence_penalty = params.presence_penalty
    found.frequency_penalty = params.frequency_penalty
    found.repetition_penalty = params.repetition_penalty or 1.0
    found.min_p = params.min_p
    found.structured_outputs = _constraint(params)
    if params.logit_bias:
        found.logit_bias = _biases(params)
    return found


def _listed(name: str, items: RepeatedScalarFieldContainer[T], most: int = MOST_ITEMS) -> list[T] | None:
    """The items of a field, of which there are so many at most; None where there are none."""
    if len(items) > most:
        raise ApiError.parameter(f"{name} holds {len(items)} items, where {most} are the most.", name)
    # A slice is a list, and made several times as fast as one item by item.
    return items[:] or None


def _biases(params: pb.SamplingParams) -> dict[str, float]:
    count = len(params.logit_bias)
    if count > MOST_ITEMS:
        message = f"logit_bias holds {count} items, where {MOST_ITEMS} are the most."
        raise ApiError.parameter(message, "logit_bias")
    return {str(token_id): bias for token_id, bias in params.logit_bias.items()}


def _constraint(params: pb.SamplingParams) -> StructuredOutputs | None:
    match params.WhichOneof("constraint"):
        case "json_schema":
            return StructuredOutputs(json=params.json_schema)
        case "regex":
            return StructuredOutputs(regex=params.regex)
        case "grammar":
            return StructuredOutputs(grammar=params.grammar)
        case "structural_tag":
            return StructuredOutputs(structural_tag=params.structural_tag)
        case "json_object":
            return StructuredOutputs(json_object=params.json_object)
        case "choice":
            return StructuredOutputs(choice=_listed("choice", params.choice.choices) or [])
    return None


def _transfer(asked: pb.GenerateRequest) -> dict[str, Any] | None:
    """Transfer parameters. Those of old clients are an address alone, which nobody reads from by itself."""
    if asked.HasField("kv_transfer_params_json"):
        try:
            params = decoding.parse(asked.kv_transfer_params_json.encode())
        except ApiError:
            params = None
        if params is None or decoding.nested_too_deeply(params):
            raise ApiError.parameter(
                "kv_transfer_params_json must be a JSON object.", "kv_transfer_params_json"
            )
        return params
    if not asked.HasField("kv_transfer_params"):
        return None
    host, port = asked.kv_transfer_params.remote_host, asked.kv_transfer_params.remote_port
    if not host or port not in _PORTS:
        message = "kv_transfer_params need a remote_host, and a remote_port from 1 to 65535."
        raise ApiError.parameter(message, "kv_transfer_params")
    return {"remote_host": host, "remote_port": port}
