"""Conversations in files, in the forms people have them in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from llmdsim.tokenization import last_text

#: The roles of ShareGPT, and what they are called in chats.
_ROLES = {"human": "user", "gpt": "assistant"}

#: Roles that may speak before the user does.
_INSTRUCTING = ("system", "developer")


class Problem(NamedTuple):
    """What is wrong with a part of a file."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


class Conversation(NamedTuple):
    """Messages as in the body of a chat request, each with a role and a content."""

    where: str
    messages: list[dict[str, Any]]


class Exchange(NamedTuple):
    """A question, in the conversation up to it, and the answer."""

    messages: Sequence[dict[str, Any]]
    question: str
    answer: str


def read(path: Path) -> Iterator[Conversation | Problem]:
    """The conversations of a file, whichever of these it holds, as a JSON array or one a line:

    `{"conversations": [{"from": "human", "value": …}, …]}` (ShareGPT), `{"messages": [{"role": "user",
    "content": …}, …]}`, or `{"prompt": …, "completion": …}`. Raises OSError.
    """
    for where, item in _items(path):
        if isinstance(item, Problem):
            yield item
            continue
        try:
            yield Conversation(where, _messages(item))
        except ValueError as problem:
            yield Problem(where, str(problem))


def exchanges(messages: Sequence[dict[str, Any]]) -> tuple[list[Exchange], str | None]:
    """What was asked and answered, and what ended that before its time: a role out of its turn.

    A question without an answer at the end is left out.
    """
    found: list[Exchange] = []
    asked = False
    for place, message in enumerate(messages):
        role = message["role"]
        if asked and role == "assistant" and not message.get("tool_calls"):
            before = messages[:place]
            found.append(Exchange(before, last_text(before), last_text([message])))
            asked = False
        elif not asked and role == "user":
            asked = True
        elif asked or role not in _INSTRUCTING:
            return found, f"message {place + 1} is not what follows: it is of {role!r}"
    return found, None


def _items(path: Path) -> Iterator[tuple[str, Any]]:
    content = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    if content.lstrip()[:1] == b"[":
        try:
            items = msgspec.json.decode(content)
        except (ValueError, RecursionError) as problem:
            yield str(path), Problem(str(path), f"not JSON: {problem}")
            return
        for place, item in enumerate(items, start=1):
            yield f"{path}: item {place}", item
        return
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        try:
            yield where, msgspec.json.decode(line)
        except (ValueError, RecursionError) as problem:
            yield where, Problem(where, f"not JSON: {problem}")


def _messages(item: object) -> list[dict[str, Any]]:
    """Raises ValueError."""
    if not isinstance(item, dict):
        raise ValueError("not an object")
    if "messages" in item:
        return [_message(message, "role", "content") for message in _list(item, "messages")]
    if "conversations" in item:
        return [_message(message, "from", "value") for message in _list(item, "conversations")]
    if isinstance(item.get("prompt"), str) and isinstance(item.get("completion"), str):
        return [
            {"role": "user", "content": item["prompt"]},
            {"role": "assistant", "content": item["completion"]},
        ]
    raise ValueError("neither messages, nor conversations, nor a prompt with its completion")


def _list(item: dict[str, Any], name: str) -> list[Any]:
    messages = item[name]
    if not isinstance(messages, list):
        raise ValueError(f"{name} is no list")
    return messages


def _message(message: object, of: str, text: str) -> dict[str, Any]:
    if not isinstance(message, dict) or not isinstance(message.get(of), str):
        raise ValueError(f"a message without {of!r}")
    role = _ROLES.get(message[of], message[of])
    if of == "role":
        return {**message, "role": role, "content": message.get("content") or ""}
    if not isinstance(message.get(text), str):
        raise ValueError(f"a message without {text!r}")
    return {"role": role, "content": message[text]}
