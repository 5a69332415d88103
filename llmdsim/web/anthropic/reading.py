"""From the bytes of a body to a Messages request, checked as vLLM 0.33 checks it, or its refusal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TypeVar

import msgspec

from llmdsim.web import coercion, decoding
from llmdsim.web.anthropic.request import CHANGES, Block, CountTokensRequest, MessagesRequest
from llmdsim.web.decoding import MAX_PROBLEMS, Path, Problem

#: Tokens of thinking that a client may allow at the least.
LEAST_BUDGET = 1024

#: Either request.
R = TypeVar("R", bound=CountTokensRequest)

_decoders = {kind: msgspec.json.Decoder(kind) for kind in (CountTokensRequest, MessagesRequest)}


def decode(kind: type[R], body: bytes, content_type: str | None = None) -> R:
    """The request in `body`. Raises `ApiError` 400; never another exception, whatever the bytes."""
    decoding.refuse_media_type(content_type)
    request: R | None = decoding.exact(_decoders[kind], body)  # type: ignore[assignment]
    if request is None or decoding.bad_utf8(body):
        request = coercion.read_whole(kind, decoding.parse(body), {})
    else:
        decoding.refuse_too_deep(body, request)
    problems = list(islice(_problems(request), MAX_PROBLEMS))
    if problems:
        raise decoding.refusal(problems)
    return request


def _problems(request: CountTokensRequest) -> Iterator[Problem]:
    if not request.model:
        yield Problem("value_error", ("model",), "a model is required", request.model)
    for index, message in enumerate(request.messages):
        if not isinstance(message.content, str):
            yield from _of_blocks(message.content, ("messages", index, "content"), message.role == "system")
    if request.system is not None and not isinstance(request.system, str):
        yield from _of_blocks(request.system, ("system",), False)
    choice = request.tool_choice
    if choice is not None and choice.type == "tool" and not choice.name:
        said = "a tool_choice of type 'tool' needs the tool's name"
        yield Problem("value_error", ("tool_choice",), said, choice.name)
    thinking = request.thinking
    if thinking is not None and thinking.type == "enabled":
        place = ("thinking", "enabled", "budget_tokens")
        if thinking.budget_tokens is None:
            yield Problem("missing", place, "this field is required")
        elif thinking.budget_tokens < LEAST_BUDGET:
            said = f"expected at least {LEAST_BUDGET}"
            yield Problem("greater_than_equal", place, said, thinking.budget_tokens)
    if isinstance(request, MessagesRequest):
        yield from _of_sizes(request)


def _of_blocks(blocks: list[Block], path: Path, may_change_tools: bool) -> Iterator[Problem]:
    for index, block in enumerate(blocks):
        kind = block.type
        if kind not in CHANGES:
            continue
        place = (*path, index)
        change = block.tool
        if change is None:
            yield Problem("value_error", place, f"a {kind} block needs its tool")
        elif change.type == "tool_definition" and kind == "tool_removal":
            yield Problem("value_error", place, "a tool_removal block takes a tool_reference only")
        elif change.type == "tool_definition" and change.definition is None:
            yield Problem("missing", (*place, "tool", "definition"), "this field is required")
        elif change.type == "tool_reference" and change.name is None:
            yield Problem("missing", (*place, "tool", "name"), "this field is required")
        elif not may_change_tools:
            yield Problem("value_error", place, f"only messages of role 'system' may have {kind} blocks")


def _of_sizes(request: MessagesRequest) -> Iterator[Problem]:
    most = request.max_tokens
    if most <= 0:
        yield Problem("value_error", ("max_tokens",), "max_tokens must be positive", most)
    # A prefill leg is sent with one token to make, and never gets to the answer.
    if request.kv_transfer_params and request.kv_transfer_params.get("do_remote_decode"):
        return
    thinking = request.thinking
    if thinking is not None and thinking.type == "enabled" and (thinking.budget_tokens or 0) >= most:
        yield Problem("value_error", (), "thinking.budget_tokens must be less than max_tokens", most)
