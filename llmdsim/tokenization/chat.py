"""The built-in conversation form: what messages read as when there is no model's chat template.

One line a message: `### role: content`, with `(tool_call_id)` after the role and `[name(arguments)]` for each
tool call after the content, as llm-d-inference-sim writes it. Media add a line that tells their source, and
to the prompt as many words as they take tokens. Messages are decoded JSON objects that have been validated
elsewhere; whatever still has the wrong shape counts as absent.
"""

from collections.abc import Mapping, Sequence

import msgspec

from llmdsim.tokenization.media import item_of
from llmdsim.tokenization.messages import TEXT_KEYS, Message


def everyday_text(messages: Sequence[Message]) -> str | None:
    """What `render_chat` makes of messages that are nothing but a role and a text; None for others."""
    pieces: list[str] = []
    try:
        for message in messages:
            if len(message) != 2:
                return None
            pieces += "### ", message["role"], ": ", message["content"], "\n"
        return "".join(pieces) or None  # refuses what is no text
    except (KeyError, TypeError):
        return None


def render_chat(messages: Sequence[Message]) -> str:
    """The prompt text of a conversation; `"### user: hi there\\n"` for one plain message."""
    text = everyday_text(messages)
    if text is not None:
        return text
    lines = []
    for message in messages:
        if not isinstance(message, dict):
            continue
        role = message.get("role")
        call_id = message.get("tool_call_id")
        answered = f"({call_id})" if isinstance(call_id, str) and call_id else ""
        lines.append(f"### {role if isinstance(role, str) else ''}{answered}: {_body(message, True)}\n")
    return "".join(lines)


def last_text(messages: Sequence[Message]) -> str:
    """The last message as echo mode answers it, whatever its role: `render_chat`'s line after the colon."""
    if not messages or not isinstance(messages[-1], dict):
        return ""
    return _body(messages[-1], False)


def _body(message: Message, of_prompt: bool) -> str:
    content = message.get("content")
    text = content if isinstance(content, str) else _joined_parts(content, of_prompt)
    calls = message.get("tool_calls")
    if calls and isinstance(calls, Sequence):
        text += "".join(map(_call, calls))
    return text


def _joined_parts(content: object, of_prompt: bool) -> str:
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        return ""
    texts = (_part(part, of_prompt) for part in content)
    return "\n".join(text for text in texts if text is not None)


def _part(part: object, of_prompt: bool) -> str | None:
    """A content part's text; None for anything unknown, which leaves no line."""
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        return None
    kind = part.get("type", "text")
    item = None if kind == "text" and "text" in part else item_of(part)
    if item is not None:
        return item.text if of_prompt else item.line
    text = part.get(TEXT_KEYS.get(kind, "")) if isinstance(kind, str) else None
    return text if isinstance(text, str) else None


def _call(call: object) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return ""
    name, arguments = function.get("name"), function.get("arguments")
    if not isinstance(arguments, str):
        arguments = "" if arguments is None else msgspec.json.encode(arguments).decode()
    return f"[{name if isinstance(name, str) else ''}({arguments})]"
