"""The bodies of `POST /v1/messages` and its `count_tokens`, field by field, as in vLLM 0.33."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from llmdsim.web.generation_request import MAX_STOP_STRINGS

#: Blocks that change which tools there are.
CHANGES = ("tool_addition", "tool_removal")


class MessageTool(msgspec.Struct):
    """`tools[]`; Anthropic's own server tools have no schema and are refused."""

    name: str
    input_schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class ToolChange(msgspec.Struct):
    """`tool` of a `tool_addition` or `tool_removal` block."""

    type: Literal["tool_reference", "tool_definition"]
    name: str | None = None
    definition: MessageTool | None = None


class Block(msgspec.Struct):
    """A content block of any type; which fields matter depends on it."""

    type: Literal[
        "text",
        "image",
        "tool_use",
        "tool_result",
        "tool_reference",
        "thinking",
        "redacted_thinking",
        "tool_addition",
        "tool_removal",
    ]
    text: str | None = None
    source: dict[str, Any] | None = None
    id: str | None = None
    tool_use_id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    content: str | list[dict[str, Any]] | None = None
    is_error: bool | None = None
    tool_name: str | None = None
    thinking: str | None = None
    signature: str | None = None
    data: str | None = None
    tool: ToolChange | None = None


class Message(msgspec.Struct):
    """`messages[]`."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class MessageToolChoice(msgspec.Struct):
    """`tool_choice`; `name` belongs to type `tool`."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class OutputFormat(msgspec.Struct):
    """`output_config.format`; without a schema it means nothing."""

    type: Literal["json_schema"] = "json_schema"
    schema: dict[str, Any] | None = None


class OutputConfig(msgspec.Struct):
    """`output_config`."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: OutputFormat | None = None


class Thinking(msgspec.Struct):
    """`thinking`; `budget_tokens` belongs to type `enabled`. What is thought is always shown."""

    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: int | None = None
    display: Literal["summarized", "omitted", "updates"] | None = None


class CountTokensRequest(msgspec.Struct, kw_only=True):
    """The conversation to count; what `/v1/messages` takes too."""

    model: str
    messages: list[Message]
    system: str | list[Block] | None = None
    tools: list[MessageTool] | None = None
    tool_choice: MessageToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class MessagesRequest(CountTokensRequest, kw_only=True):
    """A message to be made; ranges that depend on the server are checked as those of a chat are."""

    max_tokens: int
    stop_sequences: Annotated[list[str], Meta(max_length=MAX_STOP_STRINGS)] | None = None
    stream: bool | None = False
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    metadata: dict[str, Any] | None = None
    mm_payload: Literal["tensors", "none"] = "tensors"
    return_mm_kwargs: bool | None = None
    cache_salt: str | None = None
    watermarking: bool | None = None
    kv_transfer_params: dict[str, Any] | None = None
    ec_transfer_params: dict[str, Any] | None = None
    #: what older proxies send in place of `kv_transfer_params`
    do_remote_decode: bool | None = None
    do_remote_prefill: bool | None = None
    #: llm-d-inference-sim's own field of chats
    cache_hit_threshold: float | None = None
    vllm_xargs: dict[str, str | int | float | list[str | int | float]] | None = None
