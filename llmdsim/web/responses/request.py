"""The body of `POST /v1/responses`: read as vLLM 0.33 reads it, or refused with its 400."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from llmdsim.web import coercion, decoding, raw_rules
from llmdsim.web.decoding import Path, Problem
from llmdsim.web.errors import ApiError
from llmdsim.web.generation_request import MAX_STOP_STRINGS, Int64, StructuredOutputs
from llmdsim.web.ids import hex_digits
from llmdsim.web.reply_head import LONGEST_ID
from llmdsim.web.responses import input_items, tool_input

#: The member of `include` that asks for log probabilities; the others change nothing.
LOGPROBS = "message.output_text.logprobs"

Included = Literal[
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "message.output_text.logprobs",
    "reasoning.encrypted_content",
]
Detail = Literal["auto", "concise", "detailed"]
Penalty = Annotated[float, Meta(ge=-2.0, le=2.0)]


class TextFormat(msgspec.Struct):
    """`text.format`; the members besides `type` belong to `json_schema`, which needs the first two."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class TextConfig(msgspec.Struct):
    """`text`."""

    format: TextFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class Reasoning(msgspec.Struct):
    """`reasoning`, in the order in which it is echoed; only `effort` has an effect."""

    context: Literal["auto", "current_turn", "all_turns"] | None = None
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    generate_summary: Detail | None = None
    mode: str | None = None
    summary: Detail | None = None


class PromptCacheOptions(msgspec.Struct):
    """`prompt_cache_options`."""

    mode: Literal["implicit", "explicit"] = "implicit"
    ttl: Literal["30m"] = "30m"
    comparison_response_id: str | None = None
    prewarm: bool | None = None


class ResponsesRequest(msgspec.Struct, kw_only=True):
    """A valid request. Items of `input` and `tools` are raw objects that their own modules have examined."""

    input: str | list[dict[str, Any]]
    background: bool | None = False
    include: list[Included] | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    max_tool_calls: int | None = None
    metadata: dict[str, str] | None = None
    model: str | None = None
    logit_bias: dict[str, float] | None = None
    parallel_tool_calls: bool | None = True
    previous_response_id: str | None = None
    #: never other than null: templates of prompts are refused
    prompt: Any = None
    reasoning: Reasoning | None = None
    include_reasoning: bool = True
    service_tier: Literal["auto", "default", "flex", "scale", "priority"] = "auto"
    store: bool | None = True
    stream: bool | None = False
    temperature: float | None = None
    text: TextConfig | None = None
    tool_choice: str | dict[str, Any] = "auto"
    tools: list[dict[str, Any]] = msgspec.field(default_factory=list)
    top_logprobs: int = 0
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    truncation: Literal["auto", "disabled"] | None = "disabled"
    user: str | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    prompt_cache_key: str | None = None
    prompt_cache_options: PromptCacheOptions | None = None
    prompt_cache_retention: Literal["in_memory", "24h"] | None = None
    safety_identifier: str | None = None
    watermarking: bool | None = None
    #: "" when the client names none
    request_id: str = ""
    session_id: str | None = None
    media_io_kwargs: dict[str, dict[str, Any]] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    priority: Int64 = 0
    mm_payload: Literal["tensors", "none"] = "tensors"
    return_mm_kwargs: bool | None = None
    cache_salt: str | None = None
    enable_response_messages: bool = False
    previous_input_messages: list[dict[str, Any]] | None = None
    structured_outputs: StructuredOutputs | None = None
    repetition_penalty: float | None = None
    seed: Int64 | None = None
    stop: str | Annotated[list[str], Meta(max_length=MAX_STOP_STRINGS)] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    vllm_xargs: dict[str, str | int | float | list[str | int | float]] | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    #: llm-d-inference-sim's own field; values outside [0, 1] mean nothing
    cache_hit_threshold: float | None = None

    @property
    def lists_logprobs(self) -> bool:
        """Whether the answer's log probabilities are asked for."""
        return self.include is not None and LOGPROBS in self.include


_decoder = msgspec.json.Decoder(ResponsesRequest)


def decode_responses(body: bytes, content_type: str | None = None) -> ResponsesRequest:
    """The request in `body`. Raises `ApiError` 400; never another exception, whatever the bytes."""
    decoding.refuse_media_type(content_type)
    request = decoding.exact(_decoder, body)
    if request is None or _may_be_refused(request) or decoding.bad_utf8(body):
        return _read_leniently(body)
    decoding.refuse_too_deep(body, request)
    request.tool_choice = "none"
    return request


def response_id(request: ResponsesRequest) -> str:
    """The id of the response: the body's, and no header's (vLLM). Raises ApiError 400 for one too long."""
    if len(request.request_id) > LONGEST_ID:
        raise ApiError.parameter(f"A request id is at most {LONGEST_ID} characters long.", "request_id")
    return request.request_id or "resp_" + hex_digits()


def _may_be_refused(request: ResponsesRequest) -> bool:
    """Whether the lenient reading may refuse this, or read it otherwise. False: it would do neither."""
    if (
        request.tools
        or request.tool_choice not in ("auto", "none")
        or request.background
        or request.prompt is not None
        or request.cache_salt is not None
        or request.text is not None
    ):
        return True
    problems: list[Problem] = []
    input_items.read(request.input, ("input",), problems)
    return bool(problems)


def _read_leniently(body: bytes) -> ResponsesRequest:
    data = decoding.parse(body)
    tool_input.settle_choice(data)
    tool_input.refuse_grammars(data)
    if data.get("prompt") is not None:
        raise ApiError.parameter("Prompt templates are not supported.", "prompt")
    if data.get("background") and not data.get("store", True):
        raise ApiError.parameter("`background` works only where `store` is true.", "background")
    raw_rules.cache_salt(data)
    return coercion.read_whole(ResponsesRequest, data, _SPECIAL)


def _read_text(value: Any, path: Path, problems: list[Problem]) -> Any:
    if value is None:
        return None
    if not isinstance(value, dict):
        problems.append(Problem("model_type", path, "expected an object", value))
        return value
    result = coercion.read(TextConfig, value, problems, path)
    wanted = result.get("format")
    if isinstance(wanted, dict) and wanted.get("type") == "json_schema":
        problems += [
            Problem("missing", (*path, "format", name), "this field is required")
            for name in ("name", "schema")
            if wanted.get(name) is None
        ]
    return result


def _read_top_logprobs(value: Any, path: Path, problems: list[Problem]) -> Any:
    return 0 if value is None else coercion.integer(value, path, problems)


def _read_retention(value: Any, path: Path, problems: list[Problem]) -> Any:
    if value not in (None, "in_memory", "in-memory", "24h"):
        problems.append(Problem("literal_error", path, "expected 'in_memory' or '24h'", value))
    return "in_memory" if value == "in-memory" else value


_SPECIAL: dict[str, coercion.Reader] = {
    "input": input_items.read,
    "prompt_cache_retention": _read_retention,
    "text": _read_text,
    "tool_choice": tool_input.read_choice,
    "tools": tool_input.read,
    "top_logprobs": _read_top_logprobs,
}
