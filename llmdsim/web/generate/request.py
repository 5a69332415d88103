"""The body of `POST /inference/v1/generate`: decoded and checked as vLLM 0.33 does, or refused.

Where the types are right already `msgspec` decodes them; everything else is read with pydantic's leniency.
"""

from __future__ import annotations

from array import array
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from llmdsim.web import coercion, decoding, raw_rules
from llmdsim.web.decoding import Path, Problem
from llmdsim.web.errors import ApiError
from llmdsim.web.generate.features import Features
from llmdsim.web.generation_request import Int64, RepetitionDetection, StreamOptions, StructuredOutputs
from llmdsim.web.request_rules import read_thinking_token_budget

#: `max_tokens` of vLLM's sampling parameters, which `min_tokens` is held against where the client names none.
DEFAULT_MAX_TOKENS = 16

#: More than chat and text may have. vLLM has no bound, but each is looked for in every choice.
MAX_STOP_STRINGS = 64

OutputMode = Literal["tokens", "text", "derender"]

#: Beside the fields' own types, integers must fit the engine's messages.
Index = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class SamplingParams(msgspec.Struct, kw_only=True):
    """`sampling_params`, the engine's own. Ranges are checked by `llmdsim.web.sampling`."""

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    watermarking: bool | None = None
    top_p: float = 1.0
    top_k: Int64 = 0
    min_p: float = 0.0
    seed: Int64 | None = None
    stop: str | Annotated[list[str], Meta(max_length=MAX_STOP_STRINGS)] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    #: left out or null: what the context has room for
    max_tokens: Int64 | UnsetType | None = UNSET
    min_tokens: Int64 = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    prompt_logprob_token_ids: list[list[int]] | None = None
    prompt_logprob_start: Int64 | None = None
    logprob_token_ids: list[int] | None = None
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    stream_interval: Int64 | None = None
    structured_outputs: StructuredOutputs | None = None
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: list[int] | None = None
    extra_args: dict[str, Any] | None = None
    bad_words: list[str] | None = None
    #: null: as the prompt's log probabilities want it
    skip_reading_prefix_cache: bool | None = None
    thinking_token_budget: Annotated[int, Meta(ge=-1, le=2**63 - 1)] | None = None
    repetition_detection: RepetitionDetection | None = None
    routed_experts_prompt_start: Index = 0
    trace_decode_token_ids: list[int] | None = None


class GenerateRequest(msgspec.Struct, kw_only=True):
    """A valid request. `token_ids` are neither empty nor negative; they may be out of the vocabulary."""

    token_ids: list[int]
    sampling_params: SamplingParams
    #: "" when the client names none; vLLM then makes one up
    request_id: str = ""
    model: str | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    priority: Int64 = 0
    cache_salt: str | None = None
    features: Features | None = None
    #: media that nobody fetches: their tokens are among `token_ids` already
    content_parts: list[dict[str, Any]] | None = None
    token_offsets: list[Any] | None = None
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs: dict[str, Any] | None = None
    return_token_ids: bool | None = None
    output_mode: OutputMode = "tokens"
    #: read with `output_mode` "derender" alone
    parse_context: dict[str, Any] | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    #: what older proxies send in place of `kv_transfer_params`
    do_remote_decode: bool | None = None
    do_remote_prefill: bool | None = None


_decoder = msgspec.json.Decoder(GenerateRequest)


def decode_generate(body: bytes, content_type: str | None = None) -> GenerateRequest:
    """The request in `body`. Raises `ApiError` 400; never another exception, whatever the bytes."""
    return checked(typed(body, content_type), body)


def typed(body: bytes, content_type: str | None = None) -> GenerateRequest | None:
    """The first half of `decode_generate`: the request where all types are right already, else None."""
    decoding.refuse_media_type(content_type)
    return decoding.exact(_decoder, body)


def checked(request: GenerateRequest | None, body: bytes) -> GenerateRequest:
    """The second half: what `typed` made of the body, or else the body read again."""
    if (
        request is None
        or request.cache_salt is not None
        or not _are_ids(request.token_ids)
        or decoding.bad_utf8(body)
    ):
        request = _read_leniently(body)
    else:
        decoding.refuse_too_deep(body, request)
    _settle(request)
    return request


def _are_ids(values: list[int]) -> bool:
    """Whether there are ids, none of them negative."""
    try:
        # Several times as fast as to look at each.
        array("Q", values)
    except OverflowError:
        return False
    return bool(values)


def _read_leniently(body: bytes) -> GenerateRequest:
    data = decoding.parse(body)
    raw_rules.cache_salt(data)
    problems = [
        Problem("missing", (field,), message)
        for field, message in (
            ("token_ids", "Missing input token_ids: this field is required"),
            ("sampling_params", "Missing sampling_params field: it is required"),
        )
        if data.get(field) is None
    ]
    if problems:
        raise decoding.refusal(problems)
    return coercion.read_whole(
        GenerateRequest, data, {"token_ids": _read_ids, "sampling_params": _read_sampling_params}
    )


def _read_ids(value: Any, path: Path, problems: list[Problem]) -> Any:
    if not isinstance(value, list):
        problems.append(Problem("list_type", path, "expected a list", value))
        return value
    if not value:
        context = {"field_type": "List", "min_length": 1, "actual_length": 0}
        problems.append(Problem("too_short", path, "expected at least 1 item, not 0", value, context))
        return value
    ids: list[Any] = []
    found = len(problems)
    for index, item in enumerate(value):
        ids.append(coercion.integer(item, (*path, index), problems))
        if len(problems) > found + decoding.MAX_PROBLEMS:
            break
    if len(problems) == found and min(ids) < 0:
        problems.append(Problem("value_error", path, "token_ids must not hold negative values", value))
    return ids


def _read_sampling_params(value: Any, path: Path, problems: list[Problem]) -> Any:
    """The parameters; where one of them is wrong, the field as a whole is named first (vLLM)."""
    whole = Problem("is_instance_of", path, "expected an object of sampling parameters", value)
    if not isinstance(value, dict):
        problems.append(whole)
        return value
    found: list[Problem] = []
    special = {"thinking_token_budget": read_thinking_token_budget}
    result = coercion.read(SamplingParams, value, found, path, special)
    if found:
        problems += [whole, *found]
    return result


def _settle(request: GenerateRequest) -> None:
    """What vLLM finds out after the types are right."""
    if request.features is not None and request.content_parts:
        raise _refusal((), "content_parts and features exclude each other")
    kwargs = request.reasoning_parser_kwargs
    if kwargs is not None:
        path = ("reasoning_parser_kwargs",)
        for name in kwargs.keys() - {"chat_template_kwargs"}:
            raise decoding.refusal(
                [Problem("extra_forbidden", (*path, name[:200]), "no such field may be here", kwargs[name])]
            )
        if not isinstance(kwargs.get("chat_template_kwargs", {}), dict):
            raise decoding.refusal(
                [Problem("dict_type", (*path, "chat_template_kwargs"), "expected an object")]
            )
    if request.output_mode != "tokens" and not request.sampling_params.detokenize:
        raise _refusal((), f"output_mode {request.output_mode!r} needs sampling_params.detokenize to be true")


def _refusal(path: Path, message: str) -> ApiError:
    return decoding.refusal([Problem("value_error", path, message)])
