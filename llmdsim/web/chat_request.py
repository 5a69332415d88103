"""The body of `POST /v1/chat/completions`: decoded and checked as vLLM 0.33 checks it, or refused."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec
from msgspec import UNSET, UnsetType

from llmdsim.web import coercion, decoding, messages, raw_rules
from llmdsim.web.decoding import Path, Problem
from llmdsim.web.errors import ApiError, shown
from llmdsim.web.generation_request import GenerationRequest
from llmdsim.web.request_rules import read_thinking_token_budget, settle


class Function(msgspec.Struct):
    """`tools[].function`."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class Tool(msgspec.Struct):
    """`tools[]`."""

    function: Function
    type: Literal["function"] = "function"
    defer_loading: bool | None = None


class NamedFunction(msgspec.Struct):
    """`tool_choice.function`."""

    name: str


class AllowedTool(msgspec.Struct):
    """`tool_choice.allowed_tools.tools[]`."""

    function: NamedFunction
    type: Literal["function"] = "function"


class AllowedTools(msgspec.Struct):
    """`tool_choice.allowed_tools`."""

    tools: list[AllowedTool]
    mode: Literal["auto", "required"] = "auto"


class ToolChoice(msgspec.Struct):
    """`tool_choice` where it names the tool to call, or those that may be called."""

    type: Literal["function", "allowed_tools"] = "function"
    function: NamedFunction | None = None
    allowed_tools: AllowedTools | None = None

    @property
    def names(self) -> list[str]:
        """The functions that may be called."""
        if self.allowed_tools is not None:
            return [tool.function.name for tool in self.allowed_tools.tools]
        return [] if self.function is None else [self.function.name]


class ChatRequest(GenerationRequest, kw_only=True):
    """A valid chat request. `messages` are raw objects with a string `role`; see `llmdsim.web.messages`."""

    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    n: int | None = 1
    logprobs: bool | None = False
    #: -1 is the whole vocabulary
    top_logprobs: int = 0
    echo: bool = False
    tools: list[Tool] | None = None
    #: as sent; read `tool_choice`, which knows the default
    given_tool_choice: str | ToolChoice | UnsetType | None = msgspec.field(default=UNSET, name="tool_choice")
    parallel_tool_calls: bool | None = True
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    include_reasoning: bool = True
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    documents: list[dict[str, str]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    media_io_kwargs: dict[str, dict[str, Any]] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None
    return_prompt_text: bool | None = None

    @property
    def echoed_logprobs(self) -> int | None:
        return self.top_logprobs

    @property
    def asked_max_tokens(self) -> tuple[int | None, str]:
        """The client's own bound on the answer, if any, and its field; `max_completion_tokens` wins."""
        if self.max_completion_tokens is not None:
            return self.max_completion_tokens, "max_completion_tokens"
        return self.max_tokens, "max_tokens"

    @property
    def tool_choice(self) -> str | ToolChoice:
        """ "none", "auto", "required" or tools by name; left out, "auto" with tools and "none" without."""
        choice = self.given_tool_choice
        if choice is UNSET:
            return "auto" if self.tools else "none"
        return "none" if choice is None else choice


#: Reads bodies in which every value has just the type it should have.
decoder = msgspec.json.Decoder(ChatRequest)


def decode_chat(body: bytes, content_type: str | None = None) -> ChatRequest:
    """The request in `body`. Raises `ApiError` 400; never another exception, whatever the bytes."""
    if content_type is not None:
        decoding.refuse_media_type(content_type)
    request = decoding.exact(decoder, body)
    if request is None:
        return _read_leniently(body)
    everyday = messages.plain(request.messages)
    if (
        _may_be_refused(request)
        or not (everyday or not messages.problems_of(request.messages, ()))
        or decoding.bad_utf8(body)
    ):
        return _read_leniently(body)
    decoding.refuse_too_deep(body, request)
    if not everyday:
        messages.settle(request.messages)
    settle_options(request)
    return request


class Templated(Protocol):
    """A request whose conversation a template makes a prompt of."""

    chat_template: str | None
    chat_template_kwargs: dict[str, Any] | None
    media_io_kwargs: dict[str, dict[str, Any]] | None
    mm_processor_kwargs: dict[str, Any] | None


def refuse_untrusted(request: Templated, trusts_templates: bool) -> None:
    """Raise the 400 for what vLLM takes only if it was told to trust its clients.

    vLLM asks this after it has looked the model up.
    """
    kwargs = request.chat_template_kwargs
    if not trusts_templates and (
        request.chat_template is not None or (kwargs and kwargs.get("chat_template") is not None)
    ):
        raise ApiError(
            400, "An untrusted chat template is refused: --trust-request-chat-template is not set."
        )
    if request.mm_processor_kwargs:
        raise untrusted_kwargs("mm_processor_kwargs")
    if request.media_io_kwargs:
        raise untrusted_kwargs("media_io_kwargs")


def untrusted_kwargs(field: str) -> ApiError:
    """The 400 for arguments to how media are read."""
    message = f"{field} in a request are disabled by default; --trust-request-mm-kwargs allows them."
    return ApiError.parameter(message, field)


def _may_be_refused(request: ChatRequest) -> bool:
    """Whether `_apply_raw_rules` may refuse this; the lenient reading then decides. False: it would not."""
    top = request.top_logprobs
    of_prompt = request.prompt_logprobs
    return bool(
        (request.stream_options is not None and not request.stream)
        or (top != 0 and (top < -1 or not request.logprobs))
        or (of_prompt is not None and (of_prompt < -1 or (of_prompt != 0 and request.stream)))
        or (request.logprob_token_ids and (request.use_beam_search or not request.logprobs))
        or ((request.tools is not None or request.given_tool_choice is not UNSET) and not _tools_fit(request))
        or request.response_format is not None
        or request.structured_outputs is not None
        or request.cache_salt is not None
        or request.continue_final_message
    )


def _tools_fit(request: ChatRequest) -> bool:
    tools, choice = request.tools, request.given_tool_choice
    if tools == []:
        return False
    if choice is UNSET or choice is None or choice == "none":
        return True
    if tools is None:
        return False
    if isinstance(choice, ToolChoice):
        if (choice.allowed_tools is None) != (choice.type == "function"):
            return False
        names = choice.names
        return bool(names) and "" not in names and {tool.function.name for tool in tools}.issuperset(names)
    return choice in ("auto", "required")


def _read_leniently(body: bytes) -> ChatRequest:
    data = decoding.parse(body)
    _apply_raw_rules(data)
    request = coercion.read_whole(ChatRequest, data, _SPECIAL)
    messages.settle(request.messages)
    settle_options(request)
    return request


def _apply_raw_rules(data: dict[str, Any]) -> None:
    """The combinations vLLM refuses before it looks at types, in its order; the first hit is the answer."""
    conversation = data.get("messages", [])
    if not isinstance(conversation, list | dict | str):
        raise ApiError(400, f"`messages` must be a list: {shown(conversation)} is not iterable.")
    if data.get("continue_final_message") and data.get("add_generation_prompt"):
        raise ApiError(
            400, "`continue_final_message` and `add_generation_prompt` cannot both be set to true."
        )
    raw_rules.tools(data)
    constraints_given = raw_rules.structured_outputs(data, None)
    if constraints_given and data.get("tool_choice", "none") not in ("none", "auto", "required"):
        raise ApiError(400, "A request takes structured_outputs constraints or tools, not both.")
    raw_rules.logprob_token_ids(data, bool(data.get("logprobs")))
    raw_rules.integers(data, "prompt_logprobs", "top_logprobs")
    raw_rules.prompt_logprobs(data)
    raw_rules.non_negative(data, "top_logprobs")
    top = data.get("top_logprobs")
    if top is not None and (top == -1 or top > 0) and not data.get("logprobs"):
        raise ApiError.parameter("With `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")
    raw_rules.stream_options(data)
    raw_rules.response_format(data)
    raw_rules.cache_salt(data)


def settle_options(request: ChatRequest) -> None:
    """What vLLM finds out after the types are right."""
    refuse_template_options(request)
    settle(request)


def refuse_template_options(request: ChatRequest) -> None:
    """Raise the 400 for options that no chat template takes."""
    if request.continue_final_message and request.add_generation_prompt:
        # Its template call refuses the pair even where `add_generation_prompt` is only the default.
        raise ApiError(400, "`continue_final_message` needs `add_generation_prompt` to be false.")
    if request.chat_template_kwargs is not None and "tokenize" in request.chat_template_kwargs:
        raise ApiError(400, "`chat_template_kwargs` cannot hold `tokenize`.")


def read_messages(value: Any, path: Path, problems: list[Problem]) -> Any:
    """The reading of `messages`: as they are, if their form is right."""
    problems += messages.problems_of(value, path)
    return value


def _read_top_logprobs(value: Any, path: Path, problems: list[Problem]) -> Any:
    return 0 if value is None else coercion.integer(value, path, problems)


_SPECIAL = {
    "messages": read_messages,
    "top_logprobs": _read_top_logprobs,
    "thinking_token_budget": read_thinking_token_budget,
}
