"""From a message to the generate request of HTTP that asks for the same, so that one set of rules holds."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from llmdsim.rpc.generate.media import media_of
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.web import decoding
from llmdsim.web.context_length import over_context
from llmdsim.web.errors import ApiError
from llmdsim.web.generate.request import MAX_STOP_STRINGS, GenerateRequest, SamplingParams
from llmdsim.web.generation_request import StructuredOutputs
from llmdsim.web.limits import Limits

#: Ids that are to end a text, ids with a bias, or texts to choose from.
MOST_ITEMS = 65_536

_PORTS = range(1, 65536)


class TextInput(msgspec.Struct):
    """A prompt that came as text, for whoever cuts it (`context_length.Prompted`)."""

    truncate_prompt_tokens: int | None
    truncation_side: Literal["left", "right"] | None = None
    add_special_tokens: bool = True
    asked_max_tokens: tuple[int | None, str] = (None, "max_tokens")


def text_input(asked: pb.GenerateRequest) -> TextInput | None:
    """The form of the prompt, None for one of ids; those are never cut (vLLM). Raises ApiError 400."""
    if asked.HasField("tokenized"):
        return None
    params = asked.sampling_params
    if not params.HasField("truncate_prompt_tokens"):
        return TextInput(None)
    kept = params.truncate_prompt_tokens
    if kept < -1:
        raise ApiError.parameter(
            f"truncate_prompt_tokens must be at least -1, got {kept}.", "truncate_prompt_tokens", kept
        )
    return TextInput(kept)


def request_of(asked: pb.GenerateRequest, limits: Limits) -> GenerateRequest:
    """The request; the ids of one with text are still to be found. Raises ApiError 400."""
    transfer = _transfer(asked)
    ids: list[int] = []
    media = None
    if asked.HasField("tokenized"):
        found = asked.tokenized.input_ids
        if not found:
            raise ApiError(400, "The prompt cannot be empty.")
        if len(found) > limits.max_model_len:
            raise over_context(len(found), limits)
        ids = list(found)
        media = media_of(asked, transfer is not None)
    if asked.HasField("media_refs"):
        message = "This server has no media processor: send media_refs elsewhere, or their tokens."
        raise ApiError.parameter(message, "media_refs")
    return GenerateRequest(
        token_ids=ids,
        sampling_params=_sampling_params(asked.sampling_params),
        request_id=asked.request_id,
        stream=asked.stream,
        cache_salt=None if media is None else media.salt,
        features=None if media is None else media.features,
        kv_transfer_params=transfer,
    )


def _sampling_params(params: pb.SamplingParams) -> SamplingParams:
    for name, items, most in (
        ("stop", params.stop, MAX_STOP_STRINGS),
        ("stop_token_ids", params.stop_token_ids, MOST_ITEMS),
        ("logit_bias", params.logit_bias, MOST_ITEMS),
        ("choice", params.choice.choices, MOST_ITEMS),
    ):
        if len(items) > most:
            raise ApiError.parameter(f"{name} holds {len(items)} items, where {most} are the most.", name)
    return SamplingParams(
        n=params.n or 1,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty or 1.0,
        temperature=params.temperature if params.HasField("temperature") else 1.0,
        top_p=params.top_p or 1.0,
        top_k=params.top_k,
        min_p=params.min_p,
        seed=params.seed if params.HasField("seed") else None,
        stop=list(params.stop) or None,
        stop_token_ids=list(params.stop_token_ids) or None,
        ignore_eos=params.ignore_eos,
        max_tokens=params.max_tokens if params.HasField("max_tokens") else None,
        min_tokens=params.min_tokens,
        logprobs=params.logprobs if params.HasField("logprobs") else None,
        prompt_logprobs=params.prompt_logprobs if params.HasField("prompt_logprobs") else None,
        skip_special_tokens=params.skip_special_tokens,
        spaces_between_special_tokens=params.spaces_between_special_tokens,
        include_stop_str_in_output=params.include_stop_str_in_output,
        structured_outputs=_constraint(params),
        logit_bias={str(token_id): bias for token_id, bias in params.logit_bias.items()} or None,
    )


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
            return StructuredOutputs(choice=list(params.choice.choices))
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
