"""The system text and messages of a Messages request as those of a chat."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from llmdsim.tokenization.messages import BILLING
from llmdsim.web.anthropic.request import Block, CountTokensRequest, Message
from llmdsim.web.errors import ApiError, shown

ChatMessage = dict[str, Any]


def chat_messages(request: CountTokensRequest, merges_system: bool = False) -> list[ChatMessage]:
    """The messages of the chat. Raises ApiError 400 for a block that cannot be read.

    With `merges_system` there is one system message, the first, where there are any.
    """
    converted: list[ChatMessage] = []
    system = request.system
    if system is not None and not isinstance(system, str):
        system = _system_text(system)
    if system:
        converted.append({"role": "system", "content": system})
    if merges_system:
        for message in request.messages:
            if message.role == "system":
                _add_system(message.content, converted)
        if converted:
            converted = [{"role": "system", "content": "".join(each["content"] for each in converted)}]
    for message in request.messages:
        content = message.content
        if message.role == "system":
            if not merges_system:
                _add_system(content, converted)
        elif isinstance(content, str):
            converted.append({"role": message.role, "content": content})
        else:
            _add_blocks(message, content, converted)
    return converted


def _add_system(content: str | list[Block], converted: list[ChatMessage]) -> None:
    text = content if isinstance(content, str) else _system_text(content)
    if text and not text.startswith(BILLING):
        converted.append({"role": "system", "content": text})


def _system_text(blocks: Iterable[Block]) -> str:
    texts = (block.text or "" for block in blocks if block.type == "text")
    return "".join(text for text in texts if not text.startswith(BILLING))


def _add_blocks(message: Message, blocks: Iterable[Block], converted: list[ChatMessage]) -> None:
    """Add a message, behind the tool messages that its results become."""
    parts: list[dict[str, Any]] = []
    calls = []
    thoughts = []
    for block in blocks:
        match block.type:
            case "text" if block.text:
                parts.append({"type": "text", "text": block.text})
            case "image" if block.source:
                parts.append(_image(block.source))
            case "thinking" if block.thinking is not None:
                thoughts.append(block.thinking)
            case "tool_use":
                calls.append(_call(block))
            case "tool_result" if message.role == "user":
                _add_result(block, converted)
            case "tool_result":
                parts.append({"type": "text", "text": f"Tool result: {block.content or ''}"})
    made: ChatMessage = {"role": message.role}
    if thoughts:
        made["reasoning"] = "".join(thoughts)
    if calls:
        made["tool_calls"] = calls
    if parts:
        lone = len(parts) == 1 and parts[0]["type"] == "text"
        made["content"] = parts[0]["text"] if lone else parts
    elif message.role == "user":
        return
    converted.append(made)


def _call(block: Block) -> dict[str, Any]:
    return {
        "id": block.id or f"call_{int(time.time())}",
        "type": "function",
        "function": {"name": block.name or "", "arguments": json.dumps(block.input or {})},
    }


def _add_result(block: Block, converted: list[ChatMessage]) -> None:
    """Add what a tool said: its texts, then its images as if the user had sent them, then its references."""
    call_id = block.tool_use_id or ""
    items: Iterable[Mapping[str, Any]] = ()
    text = ""
    if isinstance(block.content, str):
        text = block.content
    elif block.content is not None:
        items = block.content
        text = "\n".join(_string(item, "text", "") for item in items if item.get("type") == "text")
    converted.append({"role": "tool", "tool_call_id": call_id, "content": text})
    images = [_image(item.get("source", {})) for item in items if item.get("type") == "image"]
    images = [image for image in images if image["image_url"]["url"]]
    if images:
        converted.append({"role": "user", "content": images})
    named = [
        item.get("tool_name") or item.get("name") for item in items if item.get("type") == "tool_reference"
    ]
    references = [{"type": "tool_reference", "name": name} for name in named if name]
    if references:
        converted.append({"role": "tool", "tool_call_id": call_id, "content": references})


def _image(source: object) -> dict[str, Any]:
    if not isinstance(source, Mapping):
        raise ApiError(400, f"The source of an image must be an object, not {shown(source)}.")
    if source.get("type") == "url":
        url = _string(source, "url", "")
    else:
        kind = _string(source, "media_type", "image/jpeg")
        url = f"data:{kind};base64,{_string(source, 'data', '')}"
    return {"type": "image_url", "image_url": {"url": url}}


def _string(of: Mapping[str, Any], key: str, default: str) -> str:
    value = of.get(key, default)
    if not isinstance(value, str):
        raise ApiError(400, f"The {key} of a content block must be a string, not {shown(value)}.")
    return value
