"""Conversations as prompt text, and what echo mode takes from them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.tokenization import BuiltinTokenizer, last_text, render_chat
from llmdsim.tokenization.chat import everyday_text

CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}


# Where llm-d-inference-sim knows the shape, the line is its own (its token ids were compared).
@pytest.mark.parametrize(
    ("message", "line"),
    [
        ({"role": "user", "content": "hi there"}, "### user: hi there\n"),
        ({"role": "user", "content": "a\nb"}, "### user: a\nb\n"),
        ({"role": "user", "content": ""}, "### user: \n"),
        ({"role": "user", "content": None}, "### user: \n"),
        ({"role": "user"}, "### user: \n"),
        ({"role": "user", "name": "Ann", "content": "hi"}, "### user: hi\n"),
        (
            {
                "role": "tool",
                "tool_call_id": "c1",
                "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
            },
            "### tool(c1): a\nb\n",
        ),
        ({"role": "assistant", "content": None, "tool_calls": [CALL]}, '### assistant: [f({"x":1})]\n'),
        (
            {"role": "assistant", "content": "T", "tool_calls": [CALL, CALL]},
            '### assistant: T[f({"x":1})][f({"x":1})]\n',
        ),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]},
            '### assistant: [f({"x":1})]\n',
        ),
        ({"role": "assistant", "tool_calls": [{"function": {"name": "f"}}]}, "### assistant: [f()]\n"),
        ({"role": "user", "content": ["plain", {"text": "untyped"}]}, "### user: plain\nuntyped\n"),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}, "### assistant: no\n"),
    ],
)
def test_one_message(message: dict[str, Any], line: str) -> None:
    assert render_chat([message]) == line
    assert last_text([{"role": "user", "content": "earlier"}, message]) == line[line.index(": ") + 2 : -1]


@pytest.mark.parametrize(
    ("part", "line", "tokens"),
    [
        ({"type": "image_url", "image_url": {"url": "http://x/a.jpg"}}, "image: http://x/a.jpg", 256),
        ({"image_url": {"url": "http://x/a.jpg"}}, "image: http://x/a.jpg", 256),
        ({"type": "image_url", "image_url": "u"}, "image: u", 256),
        ({"type": "input_image", "image_url": "u"}, "image: u", 256),
        ({"type": "input_image", "file_id": "f1"}, "image: f1", 256),
        ({"type": "image_url", "image_url": {"url": 5}, "uuid": "a"}, "image", 256),
        ({"type": "image_embeds", "image_embeds": "AAAA"}, "image: AAAA", 256),
        ({"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}, "audio: AA", 128),
        ({"type": "audio_url", "audio_url": {"url": "http://x/v"}}, "audio: http://x/v", 128),
        ({"type": "video_url", "video_url": {"url": "http://x/v"}}, "video: http://x/v", 512),
    ],
)
def test_r85_each_item_of_media_takes_its_tokens(part: dict[str, Any], line: str, tokens: int) -> None:
    message = {
        "role": "user",
        "content": [{"type": "text", "text": "see"}, part, {"type": "text", "text": "b"}],
    }
    bare = {"role": "user", "content": f"see\n{line}\nb"}
    tokenizer = BuiltinTokenizer()
    assert tokenizer.count(render_chat([message])) == tokenizer.count(render_chat([bare])) + tokens
    assert last_text([message]) == f"see\n{line}\nb"


def test_data_goes_by_its_checksum() -> None:
    def prompt(data: str) -> str:
        url = "data:image/png;base64," + data
        return render_chat([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}])

    first, second = prompt("A" * 100_000), prompt("A" * 99_999 + "B")
    assert first != second
    assert len(first) == len(second) < 2000
    assert first.startswith("### user: image: data:image/png;base64,AAAA")


def test_messages_follow_each_other() -> None:
    messages = [{"role": "system", "content": "S"}, {"role": "user", "content": "U"}]
    assert render_chat(messages) == "### system: S\n### user: U\n"
    assert render_chat([]) == ""
    assert last_text([]) == ""


def test_the_last_message_is_echoed_whatever_its_role() -> None:
    assert last_text([{"role": "user", "content": "U"}, {"role": "assistant", "content": "A"}]) == "A"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "image_url", "url", "tool_calls", "function"])
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
PART = st.fixed_dictionaries(
    {"type": st.sampled_from(["text", "image_url", "refusal"]) | JSON},
    optional={"text": JSON, "image_url": JSON, "refusal": JSON},
)
WILD_MESSAGE = st.fixed_dictionaries(
    {},
    optional={
        "role": JSON,
        "content": JSON | st.lists(PART),
        "tool_call_id": JSON,
        "tool_calls": JSON | st.lists(st.fixed_dictionaries({"function": JSON})),
    },
)


@given(st.lists(WILD_MESSAGE | JSON, max_size=3))
def test_wrong_shapes_never_raise(messages: list[Any]) -> None:
    assert isinstance(render_chat(messages), str)
    assert isinstance(last_text(messages), str)


EVERYDAY = st.fixed_dictionaries({"role": st.text(max_size=5), "content": st.text(max_size=5)})


@given(st.lists(EVERYDAY, min_size=1, max_size=4))
def test_an_everyday_conversation_reads_as_every_other(messages: list[dict[str, Any]]) -> None:
    others = [{**message, "name": None} for message in messages]
    assert everyday_text(others) is None
    assert everyday_text(messages) == render_chat(messages) == render_chat(others)


@given(st.lists(EVERYDAY | WILD_MESSAGE, max_size=3))
def test_no_other_has_an_everyday_text(messages: list[dict[str, Any]]) -> None:
    everyday = bool(messages) and all(
        message.keys() == {"role", "content"} and {type(value) for value in message.values()} == {str}
        for message in messages
    )
    assert everyday_text(messages) == (render_chat(messages) if everyday else None)
