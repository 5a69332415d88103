"""What a render step tells of the chat that a generate request answers: its tools, and what to show."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from llmdsim.reply.plan import Plan
from llmdsim.web import coercion, decoding
from llmdsim.web.chat_request import ChatRequest, Tool, ToolChoice
from llmdsim.web.context import Context
from llmdsim.web.decoding import Problem
from llmdsim.web.errors import ApiError, shown
from llmdsim.web.generate.request import GenerateRequest
from llmdsim.web.plans import plan_of


class ParseContext(msgspec.Struct):
    """`parse_context`."""

    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoice | None = "none"
    parallel_tool_calls: bool | None = True
    include_reasoning: bool = True
    chat_template_kwargs: dict[str, Any] = msgspec.field(default_factory=dict)
    history_tool_call_cnt: Annotated[int, Meta(ge=0)] = 0


def derender_plan(context: Context, request: GenerateRequest) -> Plan | None:
    """The plan of the message that is asked for. Raises ApiError 400, as vLLM, where it cannot be told."""
    if request.stream:
        raise ApiError(400, "output_mode 'derender' does not work with stream=true.")
    given = request.parse_context
    if given is None:
        if context.config.reasoning_parser:
            message = (
                "With a parser on this server, output_mode 'derender' needs the parse_context of /render."
            )
            raise ApiError(400, message)
        given = {}
    parsed = _read(given)
    params = request.sampling_params
    chat = ChatRequest(
        messages=[],
        tools=parsed.tools,
        given_tool_choice=parsed.tool_choice,
        parallel_tool_calls=parsed.parallel_tool_calls,
        include_reasoning=parsed.include_reasoning,
        chat_template_kwargs=parsed.chat_template_kwargs,
        structured_outputs=params.structured_outputs,
        thinking_token_budget=params.thinking_token_budget,
    )
    return plan_of(context, chat)


def _read(given: dict[str, Any]) -> ParseContext:
    path = ("parse_context",)
    unknown = sorted(given.keys() - set(ParseContext.__struct_fields__))
    if unknown:
        message = f"unknown fields of parse_context: {shown(unknown)}; the server that rendered is newer"
        raise decoding.refusal([Problem("value_error", (), message)])
    problems: list[Problem] = []
    fields = coercion.read(ParseContext, given, problems, path)
    if problems:
        raise decoding.refusal(problems)
    parsed = msgspec.convert(fields, ParseContext)
    choice = parsed.tool_choice
    if isinstance(choice, ToolChoice):
        names = {tool.function.name for tool in parsed.tools or ()}
        if not choice.names or not names.issuperset(choice.names):
            raise ApiError.parameter("`tool_choice` does not match any of the `tools`.", "tool_choice")
    return parsed
