"""The event streams of responses: read strictly, and judged against the table of what may follow what."""

from __future__ import annotations

import json
from typing import Any

Event = dict[str, Any]

PLACE = ("item_id", "output_index")
#: The keys of each event on the wire, in order.
KEYS = {
    **dict.fromkeys(
        (
            *("response.created", "response.in_progress"),
            *("response.completed", "response.incomplete", "response.failed"),
        ),
        ("response", "sequence_number", "type"),
    ),
    **dict.fromkeys(
        ("response.output_item.added", "response.output_item.done"),
        ("item", "output_index", "sequence_number", "type"),
    ),
    **dict.fromkeys(
        ("response.content_part.added", "response.content_part.done"),
        ("content_index", *PLACE, "part", "sequence_number", "type"),
    ),
    "response.output_text.delta": (
        *("content_index", "delta", "item_id", "logprobs", "output_index", "sequence_number", "type"),
    ),
    "response.output_text.done": (
        *("content_index", "item_id", "logprobs", "output_index", "sequence_number", "text", "type"),
    ),
    "response.reasoning_text.delta": ("content_index", "delta", *PLACE, "sequence_number", "type"),
    "response.reasoning_text.done": ("content_index", *PLACE, "sequence_number", "text", "type"),
    "response.function_call_arguments.delta": ("delta", *PLACE, "sequence_number", "type"),
    "response.function_call_arguments.done": ("arguments", *PLACE, "sequence_number", "type", "name"),
    "response.custom_tool_call_input.delta": ("delta", *PLACE, "sequence_number", "type"),
    "response.custom_tool_call_input.done": ("input", *PLACE, "sequence_number", "type"),
}
ITEM_KEYS = {
    "message": ("id", "content", "role", "status", "type", "phase"),
    "reasoning": ("id", "summary", "type", "content", "encrypted_content", "status"),
    "function_call": (
        *("arguments", "call_id", "name", "type", "id", "async", "caller", "namespace", "status"),
    ),
    "custom_tool_call": ("call_id", "input", "name", "type", "id", "async", "caller", "namespace"),
}
PART_KEYS = {"output_text": ("annotations", "text", "type", "logprobs"), "reasoning_text": ("text", "type")}
#: For each kind of item what its text is called in events, and whether it has content parts.
TEXTS = {
    "message": ("response.output_text", "text", True),
    "reasoning": ("response.reasoning_text", "text", True),
    "function_call": ("response.function_call_arguments", "arguments", False),
    "custom_tool_call": ("response.custom_tool_call_input", "input", False),
}
PREFIXES = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_", "custom_tool_call": "ctc_"}


def parse(body: bytes) -> list[Event]:
    """The events of a stream, which may be cut between two."""
    if not body:
        return []
    assert body.endswith(b"\n\n"), body[-80:]
    found = []
    for frame in body[:-2].split(b"\n\n"):
        name, data = frame.split(b"\n")
        assert data.startswith(b"data: "), frame
        event = json.loads(data[6:])
        assert name == b"event: " + event["type"].encode(), frame
        assert tuple(event) == KEYS[event["type"]], event
        found.append(event)
    return found


def text_of(item: Any) -> str:
    """All text of a finished item."""
    if item["type"] == "function_call":
        return str(item["arguments"])
    if item["type"] == "custom_tool_call":
        return str(item["input"])
    return "".join(part["text"] for part in item["content"])


def judge(events: list[Event]) -> Any:
    """The response object that a whole stream ends with; an AssertionError if anything is out of order."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    first, second, *between, last = events
    assert (first["type"], second["type"]) == ("response.created", "response.in_progress")
    assert first["response"] == second["response"]
    started, ended = first["response"], last["response"]
    assert (started["status"], started["output"], started["usage"]) == ("in_progress", [], None)
    assert last["type"] == f"response.{ended['status']}"
    # A prefill's answer tells of its blocks behind all others, too.
    assert list(ended)[: len(started)] == list(started)
    changed = {key for key in started if ended[key] != started[key]}
    assert changed <= {
        *("status", "output", "usage", "incomplete_details", "input_messages", "output_messages"),
        *("kv_transfer_params", "ec_transfer_params"),
    }
    items = []
    while between:
        between, item = _item(between, len(items))
        items.append(item)
    assert ended["output"] == items
    for item in items[:-1]:
        assert item.get("status", "completed") == "completed"
    if items:
        assert items[-1].get("status", ended["status"]) == ended["status"]
    return ended


def _item(events: list[Event], index: int) -> tuple[list[Event], Any]:
    """Check the events of one item, all of them at `index`; the rest, and the item when it is done."""
    added = events.pop(0)
    assert added["type"] == "response.output_item.added"
    begun = added["item"]
    kind = begun["type"]
    name, member, has_parts = TEXTS[kind]
    assert tuple(begun) == ITEM_KEYS[kind]
    assert begun["id"].startswith(PREFIXES[kind])
    assert begun.get("status", "in_progress") == "in_progress"
    assert begun.get(member, "") == ""
    assert not begun.get("content")
    own = [added]
    if has_parts:
        part = events.pop(0)
        assert part["type"] == "response.content_part.added"
        assert tuple(part["part"]) == PART_KEYS[part["part"]["type"]]
        assert part["part"]["text"] == ""
        own.append(part)
    text = ""
    while events[0]["type"] == f"{name}.delta":
        delta = events.pop(0)
        assert delta["delta"]
        text += delta["delta"]
        own.append(delta)
    done = events.pop(0)
    assert (done["type"], done[member]) == (f"{name}.done", text)
    own.append(done)
    if has_parts:
        part = events.pop(0)
        assert part["type"] == "response.content_part.done"
        assert tuple(part["part"]) == PART_KEYS[part["part"]["type"]]
        own.append(part)
    last = events.pop(0)
    assert last["type"] == "response.output_item.done"
    item = last["item"]
    own.append(last)
    assert tuple(item) == ITEM_KEYS[kind]
    assert text_of(item) == text
    if has_parts:
        assert item["content"] == [part["part"]]
    assert {key: item[key] for key in begun if key in ("id", "call_id", "name", "namespace", "type")} == {
        key: begun[key] for key in begun if key in ("id", "call_id", "name", "namespace", "type")
    }
    for event in own:
        assert event["output_index"] == index
        assert event.get("item_id", item["id"]) == item["id"]
        assert event.get("content_index", 0) == 0
    return events, item
