"""What every answer of the Messages routes must be: messages, streams of events, counts and errors."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from tests.web.answers import strict

STOP_REASONS = ("end_turn", "max_tokens", "stop_sequence", "tool_use")
#: The member of each kind of delta, and the type of the blocks it belongs to.
DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "thinking"),
    "input_json_delta": ("partial_json", "tool_use"),
}
EMPTY = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}, "tool_use": {"input": {}}}
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


TRANSFER = (
    *("kv_transfer_params", "do_remote_decode", "do_remote_prefill", "remote_block_ids"),
    *("remote_engine_id", "remote_host", "remote_port"),
)


class Event(NamedTuple):
    name: str
    data: Any


def events(body: bytes) -> list[Event]:
    """The events of a stream, strict about framing, and that each tells its name twice."""
    assert body.endswith(b"\n\n"), body[-80:]
    found = []
    for event in body[:-2].split(b"\n\n"):
        named, data = event.split(b"\n")
        assert named.startswith(b"event: "), event
        assert data.startswith(b"data: "), event
        document = strict(data[6:])
        assert named[7:].decode() == document["type"], event
        found.append(Event(document["type"], document))
    return found


def refused(status: int, body: bytes) -> None:
    """An error in Anthropic's form."""
    document = strict(body)
    assert list(document) == ["type", "error"], document
    assert document["type"] == "error"
    error = document["error"]
    assert list(error) == ["type", "message"], error
    default = "api_error" if status >= 500 else "invalid_request_error"
    assert error["type"] == KINDS.get(status, default)
    assert error["message"]
    assert len(body) < 20_000, "a refusal that repeats what it was sent"


def message(document: Any) -> Any:
    """A whole message, judged."""
    keys = ["id", "type", "role", "content", "model", "stop_reason"]
    if document["stop_reason"] == "stop_sequence":
        keys.append("stop_sequence")
        assert document["stop_sequence"]
    keys.append("usage")
    if "kv_transfer_params" in document:
        keys += TRANSFER
        for key in TRANSFER[1:]:
            assert document[key] == document["kv_transfer_params"][key]
    assert list(document) == keys, document
    _message_head(document)
    assert document["stop_reason"] in STOP_REASONS
    usage(document["usage"])
    content = document["content"]
    assert content
    order = ["thinking", "text", "tool_use"]
    kinds = [block["type"] for block in content]
    assert kinds == sorted(kinds, key=order.index)
    assert kinds.count("thinking") <= 1
    assert kinds.count("text") <= 1
    for block in content:
        _block(block)
        assert block.get("text") != "" or len(content) == 1
    return document


def _message_head(document: Any) -> None:
    assert document["id"].startswith("chatcmpl-")
    assert (document["type"], document["role"]) == ("message", "assistant")
    assert type(document["model"]) is str


def _block(block: Any) -> None:
    match block["type"]:
        case "text":
            assert list(block) == ["type", "text"]
        case "thinking":
            assert list(block) == ["type", "thinking", "signature"]
            assert block["thinking"]
            assert re.fullmatch("[0-9a-f]{32}", block["signature"])
        case _:
            assert list(block) == ["type", "id", "name", "input"]
            assert re.fullmatch("chatcmpl-tool-[0-9a-f]{16}", block["id"])
            assert type(block["input"]) is dict


def usage(found: Any, details: bool = True) -> None:
    """A usage object whose cached tokens are no input."""
    keys = ["input_tokens", "output_tokens"]
    if details:
        keys += ["cache_creation_input_tokens", "cache_read_input_tokens"]
    assert list(found) == keys
    assert all(type(count) is int and count >= 0 for count in found.values())


def assembled(stream: list[Event], details: bool = True) -> Any:
    """The message a stream tells, put together as clients do; an AssertionError for any event out of place.

    The content has the blocks of the stream, and `arguments` in place of the input of calls.
    """
    first, *middle, delta, last = stream
    assert first.name == "message_start"
    assert list(first.data) == ["type", "message"]
    made = first.data["message"]
    assert list(made) == ["id", "type", "role", "content", "model", "stop_reason", "stop_sequence", "usage"]
    _message_head(made)
    assert (made["content"], made["stop_reason"], made["stop_sequence"]) == ([], None, None)
    assert list(made["usage"]) == ["input_tokens", "output_tokens"]
    assert made["usage"]["output_tokens"] == 0
    made["content"] = blocks(middle)
    assert delta.name == "message_delta"
    assert list(delta.data) == ["type", "delta", "usage"]
    assert list(delta.data["delta"]) == ["stop_reason", "stop_sequence"]
    usage(delta.data["usage"], details)
    counts = delta.data["usage"]
    assert made["usage"]["input_tokens"] == sum(counts.values()) - counts["output_tokens"]
    assert last == ("message_stop", {"type": "message_stop"})
    return {**made, **delta.data["delta"], "usage": counts}


def blocks(stream: list[Event]) -> list[dict[str, Any]]:
    """The content blocks that these events tell, each opened, added to and closed before the next."""
    found: list[dict[str, Any]] = []
    is_open = False
    for name, data in stream:
        if name == "content_block_start":
            assert not is_open
            is_open = True
            assert list(data) == ["type", "content_block", "index"]
            assert data["index"] == len(found)
            block = data["content_block"]
            kind = block["type"]
            for key, value in EMPTY[kind].items():
                assert block[key] == value
            if kind == "tool_use":
                _block(block)
                del block["input"]
                block["arguments"] = ""
            found.append(block)
            continue
        assert is_open, name
        assert data["index"] == len(found) - 1
        if name == "content_block_stop":
            assert list(data) == ["type", "index"]
            is_open = False
            assert "" not in block.values()
            continue
        assert name == "content_block_delta"
        assert list(data) == ["type", "delta", "index"]
        added = data["delta"]
        member, owner = DELTAS[added["type"]]
        assert list(added) == ["type", member]
        assert owner == kind
        assert added[member], "an empty delta"
        assert not block.get("signature"), "a delta behind the signature"
        key = "arguments" if member == "partial_json" else member
        block[key] = block.get(key, "") + added[member]
    assert not is_open
    return found


def merged(content: list[dict[str, Any]]) -> tuple[str, str, list[tuple[str, Any]]]:
    """The reasoning, the text and the calls of a content, streamed or whole."""
    thought = "".join(block["thinking"] for block in content if block["type"] == "thinking")
    text = "".join(block["text"] for block in content if block["type"] == "text")
    calls = [
        (block["name"], block["input"] if "input" in block else json.loads(block["arguments"]))
        for block in content
        if block["type"] == "tool_use"
    ]
    return thought, text, calls
