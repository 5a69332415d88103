"""The messages of a conversation as chat templates read them, by the rules of vLLM 0.33's renderers.

Messages are decoded JSON objects that have been validated elsewhere. They are copied as far as they change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from llmdsim.tokenization.content_format import ContentFormat
from llmdsim.tokenization.media import Item, item_of
from llmdsim.tokenization.messages import BILLING, TEXT_KEYS, Message

Templated = dict[str, Any]

#: What content parts are known to have; templates see whatever else there is.
_KNOWN = frozenset(
    (
        *("type", "text", "refusal", "thinking", "closed", "name", "file", "data", "uuid"),
        *("image_url", "image_embeds", "image_pil", "audio_url", "input_audio", "audio_embeds"),
        *("video_url", "video_embeds"),
    )
)


def templated(messages: Sequence[Message], form: ContentFormat) -> list[Templated]:
    """The conversation, with the content of messages as `form` says."""
    return [_message(message, form) for message in messages]


def without_developer(messages: Sequence[Templated]) -> list[Templated]:
    """For templates that do not know that role: a system message in its place, joined with all others."""
    told = []
    others = []
    for message in messages:
        if message["role"] in ("developer", "system"):
            if text := _joined(message["content"]):
                told.append(text)
        else:
            others.append(message)
    systems = len(messages) - len(others)
    if systems == 1 and messages[0]["role"] in ("developer", "system"):
        first = {**messages[0], "role": "system"}
        first.pop("tools", None)
        return [first, *others]
    return [{"role": "system", "content": "\n\n".join(told)}, *others]


def _joined(content: str | list[Any]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if "text" in part)


def _message(message: Message, form: ContentFormat) -> Templated:
    role = message["role"]
    result: Templated = {"role": role, "content": _content(role, message.get("content"), form)}
    if role == "assistant":
        calls = message.get("tool_calls")
        if calls:
            result["tool_calls"] = [_call(call) for call in calls]
        reasoning = message.get("reasoning")
        if reasoning is not None:
            # All the names by which templates ask for it.
            result["reasoning"] = result["reasoning_content"] = result["thinking"] = reasoning
    elif role == "tool" and message.get("tool_call_id") is not None:
        result["tool_call_id"] = message["tool_call_id"]
    for key in ("name", "task"):
        if isinstance(message.get(key), str):
            result[key] = message[key]
    if role == "developer":
        result["tools"] = message.get("tools")
    return result


def _content(role: str, content: Any, form: ContentFormat) -> str | list[dict[str, Any]]:
    if role == "system":
        content = _without_billing(content)
    if isinstance(content, str):
        # What tools say is a text, whatever the form: few templates know anything else there.
        return content if form == "string" or role == "tool" else [{"type": "text", "text": content}]
    parts = [found for part in content or () if (found := _part(part)) is not None]
    if form == "string" or (role == "tool" and all(part["type"] == "text" for part, _ in parts)):
        return "\n".join(text for part, item in parts if (text := _shown(part, item)) or form == "openai")
    shown: list[dict[str, Any]] = []
    for part, item in parts:
        shown.append(part)
        if item is not None:
            # After what a template makes of the item, a text of as many tokens as it takes.
            shown.append({"type": "text", "text": item.placeholders})
    return shown


def _part(part: Any) -> tuple[dict[str, Any], Item | None] | None:
    """A part as templates read it, and the item that it is; None for one that has nothing to show."""
    if isinstance(part, str):
        return {"type": "text", "text": part}, None
    kind = part.get("type")
    item = None
    if kind in TEXT_KEYS:
        made = {"type": "text", "text": part[TEXT_KEYS[kind]]}
    elif kind == "tool_reference":
        name = part.get("name")
        return ({"type": kind, "name": name}, None) if isinstance(name, str) else None
    else:
        item = item_of(part)
        if item is None:
            return None
        made = {"type": item.modality}
    made.update((key, value) for key, value in part.items() if key not in _KNOWN)
    return made, item


def _shown(part: Mapping[str, Any], item: Item | None) -> str:
    """A part in a content that is a text."""
    if item is not None:
        return item.text
    text: str = part["name"] if part["type"] == "tool_reference" else part["text"]
    return text


def _without_billing(content: Any) -> Any:
    """The system's content without the lines of Claude Code."""
    parts = [content] if isinstance(content, str) else content or []
    if not any(_billed(part) for part in parts):
        return content
    kept: list[Any] = []
    for part in parts:
        if not _billed(part):
            kept.append(part)
            continue
        text = part if isinstance(part, str) else part["text"]
        rest = text.partition("\n")[2]
        if rest:
            kept.append(rest if isinstance(part, str) else {**part, "text": rest})
    return kept


def _billed(part: Any) -> bool:
    text = part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else part
    return isinstance(text, str) and text.startswith(BILLING)


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    """A tool call whose arguments are an object; whatever cannot be one is empty.

    A wrong one is part of the history, so to refuse it would end the conversation for good.
    """
    function = call["function"]
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = None
    return {**call, "function": {**function, "arguments": arguments if isinstance(arguments, dict) else {}}}
