"""From a Messages request to the chat request it amounts to (vLLM 0.33 anthropic/serving.py)."""

from __future__ import annotations

from typing import Any

from llmdsim.web import messages, raw_rules
from llmdsim.web.anthropic.conversation import chat_messages
from llmdsim.web.anthropic.request import CountTokensRequest, MessagesRequest
from llmdsim.web.anthropic.tools import tool_fields
from llmdsim.web.chat_request import ChatRequest, settle_options
from llmdsim.web.generation_request import JsonSchema, ResponseFormat


def chat_request(request: CountTokensRequest, merges_system: bool = False) -> ChatRequest:
    """The chat request, checked as one that came as such; `merges_system` as in `chat_messages`.

    Raises ApiError 400.

    A count has no more than the conversation; the tools, how hard to think and the form of the answer come
    along where they are given.
    """
    chat = ChatRequest(
        model=request.model,
        messages=chat_messages(request, merges_system),
        chat_template_kwargs=request.chat_template_kwargs,
        **_options(request),
        **_thinking(request),
        **tool_fields(request),
    )
    messages.settle(chat.messages)
    settle_options(chat)
    return chat


def _options(request: CountTokensRequest) -> dict[str, Any]:
    if not isinstance(request, MessagesRequest):
        return {}
    raw_rules.cache_salt({"cache_salt": request.cache_salt})
    return {
        "max_tokens": request.max_tokens,
        "max_completion_tokens": request.max_tokens,
        "stop": request.stop_sequences,
        "stream": request.stream,
        "temperature": request.temperature,
        "top_k": request.top_k,
        "top_p": request.top_p,
        "mm_payload": request.mm_payload,
        "return_mm_kwargs": request.return_mm_kwargs,
        "cache_salt": request.cache_salt,
        "watermarking": request.watermarking,
        "kv_transfer_params": request.kv_transfer_params,
        "ec_transfer_params": request.ec_transfer_params,
        "do_remote_decode": request.do_remote_decode,
        "do_remote_prefill": request.do_remote_prefill,
        "cache_hit_threshold": request.cache_hit_threshold,
        "vllm_xargs": request.vllm_xargs,
    }


def _thinking(request: CountTokensRequest) -> dict[str, Any]:
    """How hard to think, and what the answer must look like."""
    fields: dict[str, Any] = {}
    config = request.output_config
    if config is not None:
        fields["reasoning_effort"] = config.effort
        if config.format is not None and config.format.schema:
            named = JsonSchema(name=config.format.type, schema=config.format.schema)
            fields["response_format"] = ResponseFormat(type="json_schema", json_schema=named)
    thinking = request.thinking
    if thinking is not None:
        if thinking.type == "disabled":
            fields["reasoning_effort"] = "none"
        elif thinking.type == "enabled":
            fields["thinking_token_budget"] = thinking.budget_tokens
    return fields
