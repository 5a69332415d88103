"""Server-sent events as bytes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from llmdsim.wire import sse


def test_event() -> None:
    assert sse.event(b'{"a": 1}') == b'data: {"a": 1}\n\n'


def test_done_is_an_event() -> None:
    assert sse.event(b"[DONE]") == sse.DONE


def test_content_type() -> None:
    assert sse.CONTENT_TYPE == b"text/event-stream; charset=utf-8"


@given(st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"))))
@settings(deadline=None)
def test_events_are_read_back(texts: list[str]) -> None:
    stream = b"".join(sse.event(text.encode()) for text in texts)
    blocks = stream.split(b"\n\n")
    assert blocks.pop() == b""
    assert [block.removeprefix(b"data: ").decode() for block in blocks] == texts
