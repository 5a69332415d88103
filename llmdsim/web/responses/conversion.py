"""From a Responses request to the chat it amounts to, as vLLM 0.33 converts it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from llmdsim.web import messages as chat_messages
from llmdsim.web import raw_rules, request_rules
from llmdsim.web.chat_request import ChatRequest, Tool, ToolChoice
from llmdsim.web.errors import ApiError, shown
from llmdsim.web.generation_request import JsonSchema, ResponseFormat
from llmdsim.web.messages import Message
from llmdsim.web.responses import tools
from llmdsim.web.responses.input_items import Item
from llmdsim.web.responses.request import ResponsesRequest

_OUTPUTS = ("function_call_output", "custom_tool_call_output")


def to_chat(request: ResponsesRequest, history: Sequence[Message] = ()) -> ChatRequest:
    """The chat, which goes on from `history`. Raises ApiError 400."""
    conversation: list[Message] = []
    if request.instructions:
        conversation.append({"role": "system", "content": request.instructions})
    conversation += history
    conversation += messages_of(request.input)
    chat_messages.settle(conversation)
    functions, choice = _tools(request)
    continued = _is_continued(request.input)
    if (
        request.structured_outputs is not None
        and request.text is not None
        and request.text.format is not None
    ):
        message = "structured_outputs and text.format cannot be given together."
        raise ApiError.parameter(message, "structured_outputs")
    if request.lists_logprobs:
        raw_rules.non_negative({"top_logprobs": request.top_logprobs}, "top_logprobs")
    chat = ChatRequest(
        messages=conversation,
        model=request.model,
        stream=request.stream,
        max_completion_tokens=request.max_output_tokens,
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        min_p=request.min_p,
        seed=request.seed,
        stop=request.stop,
        stop_token_ids=request.stop_token_ids,
        ignore_eos=request.ignore_eos,
        frequency_penalty=request.frequency_penalty,
        presence_penalty=request.presence_penalty,
        repetition_penalty=request.repetition_penalty,
        logit_bias=request.logit_bias,
        logprobs=request.lists_logprobs,
        top_logprobs=request.top_logprobs if request.lists_logprobs else 0,
        include_stop_str_in_output=request.include_stop_str_in_output,
        skip_special_tokens=request.skip_special_tokens,
        spaces_between_special_tokens=request.spaces_between_special_tokens,
        truncate_prompt_tokens=-1 if request.truncation == "auto" else None,
        tools=functions or None,
        given_tool_choice=choice if functions else msgspec.UNSET,
        parallel_tool_calls=request.parallel_tool_calls,
        response_format=_format(request),
        structured_outputs=request.structured_outputs,
        reasoning_effort=None if request.reasoning is None else request.reasoning.effort,
        include_reasoning=request.include_reasoning,
        add_generation_prompt=not continued,
        continue_final_message=continued,
        chat_template_kwargs=request.chat_template_kwargs,
        media_io_kwargs=request.media_io_kwargs,
        mm_processor_kwargs=request.mm_processor_kwargs,
        user=request.user,
        priority=request.priority,
        request_id=request.request_id,
        session_id=request.session_id,
        cache_salt=request.cache_salt,
        watermarking=request.watermarking,
        kv_transfer_params=request.kv_transfer_params,
        ec_transfer_params=request.ec_transfer_params,
        vllm_xargs=request.vllm_xargs,
        cache_hit_threshold=request.cache_hit_threshold,
    )
    request_rules.settle(chat)
    return chat


def messages_of(items: str | Iterable[Item]) -> list[Message]:
    """The chat messages that items amount to; one may take in several items. Raises ApiError 400."""
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    found: list[Message] = []
    for item in items:
        last = found[-1] if found and found[-1]["role"] == "assistant" else None
        match item.get("type"):
            case "function_call":
                name = item["name"]
                if item.get("namespace"):
                    name = tools.flat_name(item["namespace"], name)
                _add_call(found, last, item["call_id"], name, item["arguments"])
            case "custom_tool_call":
                wrapped = msgspec.json.encode({"input": item["input"]}).decode()
                _add_call(found, last, item["call_id"], item["name"], wrapped)
            case "function_call_output" | "custom_tool_call_output":
                content = _content(item["output"])
                found.append({"role": "tool", "content": content, "tool_call_id": item.get("call_id")})
            case "reasoning":
                _add(found, last, "reasoning", _reasoning(item))
            case None | "message" if "role" in item:
                if item["role"] == "assistant":
                    _add(found, last, "content", _said(item["content"]))
                else:
                    found.append({"role": item["role"], "content": _content(item["content"])})
            case kind:
                message = f"Unsupported input item type: {shown(kind or 'item_reference')}"
                raise ApiError.parameter(message, "input")
    return found


def _add(found: list[Message], last: Message | None, key: str, text: str) -> None:
    """Text of the assistant, as part of its last message if that has none of its kind yet."""
    if last is not None and last.get(key) is None:
        last[key] = text
    else:
        found.append({"role": "assistant", key: text})


def _add_call(found: list[Message], last: Message | None, call_id: str, name: str, arguments: str) -> None:
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    if last is None:
        found.append({"role": "assistant", "tool_calls": [call]})
    else:
        last.setdefault("tool_calls", []).append(call)


def _said(content: str | list[dict[str, Any]]) -> str:
    """What an assistant said; of several parts the first (vLLM)."""
    if isinstance(content, str):
        return content
    first = content[0] if content else {}
    return first.get("text") or first.get("refusal") or ""


def _content(content: str | list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Content that chat understands; only what is read of its parts is kept."""
    if isinstance(content, str):
        return content
    return [_part(part) for part in content]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    match part["type"]:
        case "input_text":
            return {"type": "input_text", "text": part["text"]}
        case "input_image":
            source = "image_url" if part.get("image_url") is not None else "file_id"
            return {"type": "input_image", source: part.get(source)}
        case "input_audio":
            # Chat's form, or the data itself as llm-d-inference-sim has it.
            return {
                "type": "input_audio",
                "input_audio": part.get("input_audio") or {"data": part.get("data")},
            }
    raise ApiError.parameter(f"Unsupported content part: {part['type']}", "input")


def _reasoning(item: Item) -> str:
    if item.get("encrypted_content"):
        raise ApiError.parameter("Encrypted content is not supported.", "input")
    texts = item.get("content") or item["summary"]
    return texts[0]["text"] if texts else ""


def _is_continued(items: str | list[Item]) -> bool:
    """Whether the answer goes on with the last message, which is unfinished (vLLM)."""
    if isinstance(items, str) or not items:
        return False
    last = items[-1]
    kind, status = last.get("type") or "message", last.get("status")
    return kind in ("message", "reasoning") and status in ("in_progress", "incomplete")


def _tools(request: ResponsesRequest) -> tuple[list[Tool], str | ToolChoice]:
    answers = isinstance(request.input, list) and any(item.get("type") in _OUTPUTS for item in request.input)
    return tools.chat_choice(request.tool_choice, tools.chat_tools(request.tools), answers)


def _format(request: ResponsesRequest) -> ResponseFormat | None:
    wanted = None if request.text is None else request.text.format
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return ResponseFormat("json_object")
    assert wanted.name is not None
    schema = JsonSchema(wanted.name, wanted.description, wanted.schema, wanted.strict)
    return ResponseFormat("json_schema", json_schema=schema)
