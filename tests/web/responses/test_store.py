"""The responses that are kept: how many, how much, and what later conversations find in them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmdsim.web.errors import ApiError
from llmdsim.web.responses import store as store_module
from llmdsim.web.responses.store import Store, Stored


def stored(name: str, text: str = "x", output: Any = ()) -> Stored:
    body = json.dumps({"id": name, "output": list(output)}).encode()
    return Stored(name, [{"role": "user", "content": text}], text, body)


def ids(store: Store, *names: str) -> list[str]:
    found = []
    for name in names:
        try:
            found.append(store.get(name).id)
        except ApiError:
            continue
    return found


def test_those_longest_out_of_use_go_first() -> None:
    store = Store(2)
    for name in "ab":
        store.put(stored(name))
    store.get("a")
    store.put(stored("c"))
    assert ids(store, "a", "b", "c") == ["a", "c"]
    assert len(store) == 2


def test_bytes_are_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "MOST_BYTES", 50_000)
    store = Store(1000)
    for number in range(50):
        store.put(stored(str(number), "y" * 3000))
        assert store.bytes <= 50_000
    assert 3 < len(store) < 17
    store.put(stored("huge", "y" * 60_000))
    assert (len(store), store.bytes) == (0, 0)


def test_one_that_grows_is_counted_anew() -> None:
    store = Store(2)
    one = stored("a")
    store.put(one)
    before = store.bytes
    one.body += b" " * 500
    store.put(one)
    assert store.bytes == before + 500
    assert store.holds(one)
    store.put(stored("a"))
    assert not store.holds(one)
    store.discard("a")
    store.discard("a")
    assert (len(store), store.bytes) == (0, 0)


def test_what_is_not_kept_is_404() -> None:
    store = Store(0)
    assert not store.enabled
    store.put(stored("a"))
    with pytest.raises(ApiError) as caught:
        store.get("a")
    error = caught.value
    assert (error.status, error.type, error.param) == (404, "invalid_request_error", "response_id")
    assert "not found" in error.message


def test_history_has_the_answer_but_no_instructions_and_no_reasoning() -> None:
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    output = [
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "namespace": None},
    ]
    kept = Stored("a", messages, "u", json.dumps({"output": output}).encode())
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert kept.history() == [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": "a", "tool_calls": [call]},
    ]
    assert Stored("b", messages, "u").history() == [{"role": "user", "content": "u"}]
