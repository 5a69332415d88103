"""Whether a prompt and the answer asked for fit the context: the refusals of vLLM 0.33's renderers/params.py.

vLLM takes a prompt and a `max_tokens` that each fit and clamps the answer to the room; llm-d-inference-sim
refuses a sum that does not fit.
"""

from __future__ import annotations

from typing import Literal, Protocol

from llmdsim.web.chat_request import ChatRequest
from llmdsim.web.errors import ApiError, shown
from llmdsim.web.limits import Limits
from llmdsim.web.text_request import DEFAULT_MAX_TOKENS, TextRequest


class Prompted(Protocol):
    """A request as far as the length of its prompt goes."""

    truncate_prompt_tokens: int | None
    truncation_side: Literal["left", "right"] | None

    @property
    def add_special_tokens(self) -> bool:
        """Whether a text is to have the special tokens around it that the model wants."""

    @property
    def asked_max_tokens(self) -> tuple[int | None, str]:
        """The client's own bound on the answer, 0 where there is none to generate, and its field."""


def check_budget(request: Prompted, limits: Limits) -> None:
    """Refuse a `max_tokens` or `truncate_prompt_tokens` beyond the whole context, whatever the prompt."""
    asked, field = request.asked_max_tokens
    if asked is None and type(request) is TextRequest:
        asked = DEFAULT_MAX_TOKENS
    context = limits.max_model_len
    if asked is not None and asked > context:
        message = (
            f"{field}={shown(asked)} cannot be greater than max_model_len={context}: ask for fewer tokens."
        )
        raise ApiError.parameter(message, field, asked)
    kept = request.truncate_prompt_tokens
    if kept is not None and kept > context:
        message = f"truncate_prompt_tokens={kept} cannot be greater than max_model_len={context}."
        raise ApiError.parameter(message, "truncate_prompt_tokens", kept)


def truncation(request: Prompted, limits: Limits) -> int | None:
    """How many prompt tokens to keep at most, from the side `truncation_side` names; None for all.

    -1 keeps what leaves room for one token of output, or the whole context where none is asked for.
    """
    kept = request.truncate_prompt_tokens
    if kept != -1:
        return kept
    asked, _ = request.asked_max_tokens
    return limits.max_model_len if asked == 0 else limits.max_model_len - 1


def check_context(request: Prompted, prompt_tokens: int, limits: Limits) -> None:
    """Refuse a prompt longer than the context, and with `strict_context` one that leaves too little room."""
    context = limits.max_model_len
    asked, _ = request.asked_max_tokens
    if limits.strict_context:
        counted = 1 if asked is None else max(asked, 0)
        total = prompt_tokens + counted
        if total > context:
            parts = f"{prompt_tokens} in the messages, {shown(counted)} in the completion"
            rule = f"This model's maximum context length is {context} tokens"
            raise ApiError(400, f"{rule}. However, you requested {shown(total)} tokens ({parts}).")
    check_budget(request, limits)
    if prompt_tokens > context:
        raise over_context(prompt_tokens, limits)


def over_context(prompt_tokens: int, limits: Limits) -> ApiError:
    """The 400 for a prompt that is longer than the context."""
    message = (
        f"This model's maximum context length is {limits.max_model_len} tokens. However, your prompt has "
        f"{prompt_tokens} input tokens, too many even for an empty answer. Send a shorter one."
    )
    return ApiError.parameter(message, "input_tokens", prompt_tokens)


def check_prompt(request: ChatRequest | TextRequest, prompt_tokens: int, context: int) -> None:
    """Refuse an empty prompt, one that leaves no room, and a `routed_experts_prompt_start` beyond it."""
    if prompt_tokens == 0:
        raise ApiError(400, "The prompt cannot be empty.")
    if prompt_tokens >= context:
        raise ApiError(
            400,
            f"The prompt fills the whole context: with a token of output, {prompt_tokens} tokens exceed "
            f"the maximum context length of {context} tokens.",
        )
    skipped = request.routed_experts_prompt_start
    if skipped <= prompt_tokens:
        return
    message = f"routed_experts_prompt_start must be from 0 to the prompt's length, {prompt_tokens}."
    raise ApiError.parameter(message, "routed_experts_prompt_start", skipped)


def refuse_by_characters(request: Prompted, text_length: int, limits: Limits, longest_token: int) -> None:
    """Refuse a prompt that cannot fit however it is split, before anyone splits it.

    `text_length` and `longest_token`, the tokenizer's longest piece, are in characters. A prompt that will be
    truncated is let through.
    """
    check_budget(request, limits)
    most = limits.max_model_len * longest_token
    if text_length > most and request.truncate_prompt_tokens is None:
        message = (
            f"This model's maximum context length is {limits.max_model_len} tokens. However, your prompt has "
            f"{text_length} characters, more than the {most} that many tokens can hold. Send a shorter one."
        )
        raise ApiError.parameter(message, "input_text", text_length)
