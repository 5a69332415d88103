"""Options met before are not read again, and nobody can tell."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from llmdsim.config.table import OPTIONS
from llmdsim.reply.ask import Ask
from llmdsim.tokenization.builtin import BuiltinTokenizer
from llmdsim.tokenization.prompt import Prompt
from llmdsim.web.chat_request import ChatRequest, decode_chat
from llmdsim.web.errors import ApiError
from llmdsim.web.known_options import (
    LONGEST_BODY,
    LONGEST_KNOWN,
    KnownChat,
    KnownChats,
    Options,
)
from llmdsim.web.limits import Limits
from llmdsim.web.recurring import MOST_KNOWN
from llmdsim.web.sampling import sampling
from llmdsim.web.wants import ReplyWants
from tests.web.clients import CHAT
from tests.web.rig import RankRig
from tests.wire.channel import post

PROMPT = Prompt(BuiltinTokenizer(), "")
LIMITS = Limits(max_model_len=64)


def worked_out(chat: ChatRequest) -> Options:
    return Options(
        sampling(chat, 1, LIMITS),
        9,
        256,
        Ask(prompt=PROMPT, echoed=PROMPT, max_tokens=1, requested_max=None),
        ReplyWants(choices=(), prompt_tokens=0),
    )


def known_chats() -> KnownChats:
    return KnownChats(worked_out)


def outcome(decode: Any, body: bytes) -> object:
    try:
        found = asdict(decode(body))
    except ApiError as error:
        return error.body
    found.pop("options", None)
    found.pop("text", None)
    return repr(found)


def said(text: str) -> str:
    return json.dumps([{"role": "user", "content": text}])


def body(before: str, conversation: str, after: str) -> bytes:
    return f"{before}{conversation}{after}".encode()


BEFORE, AFTER = '{"max_tokens": 5, "messages": ', ', "stream": false}'


def learned(before: str = BEFORE, after: str = AFTER) -> KnownChats:
    """Has met two chats of these options."""
    known = known_chats()
    for text in ("one", "two"):
        known.decode(body(before, said(text), after))
    return known


def test_what_is_met_a_third_time_is_known() -> None:
    known = known_chats()
    kinds = [type(known.decode(body(BEFORE, said(text), AFTER))) for text in "abcd"]
    assert kinds == [ChatRequest, ChatRequest, KnownChat, KnownChat]


def test_its_messages_are_its_own() -> None:
    known = learned()
    first = known.decode(body(BEFORE, said("three"), AFTER))
    second = known.decode(body(BEFORE, said("four"), AFTER))
    assert [message["content"] for message in first.messages + second.messages] == ["three", "four"]


@pytest.mark.parametrize(
    "conversation",
    [
        "[]",
        "{}",
        "null",
        "7",
        '"[]"',
        "[[]]",
        "[7]",
        '[{"role": "user"}]',
        '[{"role": 7, "content": "x"}]',
        '[{"role": "user", "content": "x"}, ]',
        '[{"role": "user", "content": "x"}], "n": [2]',
        '[{"role": "user", "content": "x"}], "messages": [{"role": "user", "content": "y"}]',
        '[{"role": "user", "content": "\\ud800"}]',
        '[{"role": "user", "content": [{"type": "text", "text": "x"}]}]',
        '[{"role": "user", "content": [{"type": "strange"}]}]',
        '[{"role": "assistant", "content": "x", "reasoning_content": "y"}]',
        '[{"role": "assistant", "tool_calls": [{"type": "x"}]}]',
        '[{"role": "user", "content": "x", "deep": ' + "[" * 150 + "]" * 150 + "}]",
        '[{"role": "user", "content": "x", "deep": ' + "[" * 250 + "]" * 250 + "}]",
        '[{"role": "user", "content": "x", "deep": ' + "[" * 5000 + "]" * 5000 + "}]",
    ],
)
def test_messages_are_checked_as_ever(conversation: str) -> None:
    text = body(BEFORE, conversation, AFTER)
    assert outcome(learned().decode, text) == outcome(decode_chat, text)


@pytest.mark.parametrize("bad", [b"\xff", b"\xed\xa0\x80", b"\x00", b"\n"])
def test_so_are_their_bytes(bad: bytes) -> None:
    text = body(BEFORE, said("@"), AFTER).replace(b"@", bad)
    assert outcome(learned().decode, text) == outcome(decode_chat, text)


def test_forms_are_refused_though_their_text_is_known() -> None:
    with pytest.raises(ApiError):
        learned().decode(body(BEFORE, said("x"), AFTER), "multipart/form-data")


KEYS = (
    '"messages":',
    '"messages": ',
    '"messages" :',
    '"mess\\u0061ges":',
    '"x\\"messages":',
    '"a":',
    '"user":',
    '"max_tokens":',
)
VALUES = (
    "@1",
    "@2",
    "[]",
    "5",
    "null",
    '"messages"',
    '"\\"messages\\":@1"',
    '"]"',
    '"a, \\"messages\\": []"',
)


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    member = st.builds(str.__add__, st.sampled_from(KEYS), values)
    return st.builds(lambda members: "{" + ", ".join(members) + "}", st.lists(member, max_size=4))


values = st.recursive(st.sampled_from(VALUES), objects, max_leaves=4)
#: Bodies in which two conversations are put.
templates = st.builds(
    lambda members: "{" + ", ".join(members) + "}",
    st.builds(
        lambda conversation, others, place: [*others[:place], conversation, *others[place:]],
        st.builds(str.__add__, st.sampled_from(KEYS[:4]), st.sampled_from(VALUES[:2])),
        st.lists(st.builds(str.__add__, st.sampled_from(KEYS), values), max_size=3),
        st.integers(0, 3),
    ),
)
conversations = st.text(alphabet='ab]["\\:,', max_size=4).map(said) | st.just("[]")


@given(templates, st.lists(st.tuples(conversations, conversations), min_size=3, max_size=5))
def test_any_body_is_read_as_ever(template: str, fillings: Iterable[tuple[str, str]]) -> None:
    known = known_chats()
    for first, second in fillings:
        # Most often just one of them changes.
        for pair in ((first, second), (second, second), (first, first)):
            text = template.replace("@1", pair[0]).replace("@2", pair[1]).encode()
            assert outcome(known.decode, text) == outcome(decode_chat, text)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('{"max_tokens": 5, "messages" : ', "}"),
        ('{"max_tokens": 5, "mess\\u0061ges": ', "}"),
        ('{"max_tokens": 5, "messages": ', ', "stop": ["x"]}'),
        ('{"max_tokens": 5, "messages": [], "messages": ', "}"),
        ('{"max_tokens": 5, "mess\\u0061ges": [], "messages": ', "}"),
        ('{"max_tokens": 5, "messages": ', ', "m\\u0065ssages": 5}'),
        ('{"max_tokens": 5, "messages" : [{"role": "user", "content": "x"}], "a": {"messages": ', "}}"),
        ('{"max_tokens": 5, "mess\\u0061ges": [{"role": "user", "content": "x"}], "a": {"messages": ', "}}"),
        ('{"max_tokens": "5", "messages": ', "}"),
        ('{"max_tokens": 5, "n": 2, "messages": ', "}"),
        ('{"max_tokens": 5, "tools": [], "messages": ', "}"),
        ('{"max_tokens": 5, "logprobs": true, "messages": ', "}"),
        ('{"max_tokens": 5, "chat_template_kwargs": {}, "messages": ', "}"),
        ('{"max_tokens": 5, "temperature": 7, "messages": ', "}"),
        ('{"max_tokens": 5, "user": "%s", "messages": ' % ("x" * LONGEST_KNOWN), "}"),
        ('{"max_tokens": 5, "messages": ', ', "user": "%s"}' % ("x" * LONGEST_KNOWN)),
    ],
)
def test_what_is_not_everyday_is_not_remembered(before: str, after: str) -> None:
    known = known_chats()
    for text in "abcd":
        chat = body(before, said(text), after)
        assert outcome(known.decode, chat) == outcome(decode_chat, chat)
    assert not any(known.values())


def test_what_is_met_but_once_leaves_nothing_and_what_is_known_stays() -> None:
    known = learned()
    for seed in range(3 * MOST_KNOWN):
        known.decode(body(f'{{"max_tokens": 5, "seed": {seed}, "messages": ', said("x"), "}"))
    assert len(known) == 1
    assert type(known.decode(body(BEFORE, said("x"), AFTER))) is KnownChat


def test_what_is_known_is_bounded() -> None:
    known = known_chats()
    for seed in range(3 * MOST_KNOWN):
        for text in "ab":
            known.decode(body(f'{{"max_tokens": 5, "seed": {seed}, "messages": ', said(text), "}"))
        assert 0 < len(known) <= MOST_KNOWN


def test_long_bodies_are_read_at_once() -> None:
    known = learned()
    assert type(known.decode(body(BEFORE, said("x" * LONGEST_BODY), AFTER))) is ChatRequest


FIELDS: list[dict[str, Any]] = [
    {},
    {"max_tokens": 5},
    {"max_completion_tokens": 5, "max_tokens": 9},
    {
        "max_tokens": 5,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    },
    {"max_tokens": 5, "stream_options": {"include_usage": True}},
    {"max_tokens": 30, "stop": "e", "ignore_eos": True},
    {"max_tokens": 5, "stop": ["e", "a"], "min_tokens": 3},
    {"max_tokens": 5, "temperature": 0},
    {"max_tokens": 5, "temperature": 3},
    {"max_tokens": 5, "min_tokens": 6},
    {"max_tokens": 0},
    {"max_tokens": 60, "ignore_eos": True},
    {"max_tokens": 63, "ignore_eos": True},
    {"max_tokens": 64},
    {"max_tokens": 65},
    {"max_tokens": 5, "n": 2},
    {"max_tokens": 5, "logprobs": True, "top_logprobs": 1},
    {"max_tokens": 5, "echo": True, "add_generation_prompt": False},
    {"max_tokens": 5, "model": "unknown", "temperature": 3},
    {"max_tokens": 5, "top_p": 0.5, "top_k": 1, "min_p": 0.1, "user": "u", "priority": 3},
    {"max_tokens": 5, "presence_penalty": 1, "frequency_penalty": 1.5, "repetition_penalty": 1},
]
FLAGS = [
    (),
    ("--mode", "echo"),
    ("--strict-context",),
    ("--reasoning-parser", "deepseek_r1"),
    ("--enable-kvcache", "--zmq-endpoint="),
    ("--enable-force-include-usage", "--enable-prompt-tokens-details"),
    ("--no-enable-prompt-tokens-details",),
    ("--scheduling-policy", "priority"),
]


def answers(rig: RankRig, body: dict[str, Any]) -> tuple[int, bytes]:
    client = rig.connect().send(post(json.dumps(body).encode(), b"X-Request-Id: x", path=CHAT.encode()))
    rig.clock.advance(1)
    (reply,) = client.replies()
    return reply.status, re.sub(rb'"created":\d+', b'"created":0', reply.body)


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
@pytest.mark.parametrize("fields", FIELDS, ids=json.dumps)
def test_answers_are_the_same_whatever_was_asked_before(
    fields: dict[str, Any], flags: tuple[str, ...]
) -> None:
    flags = ("--max-model-len", "64", "--seed", "1", *flags)
    rig, forgetful = RankRig(*flags), RankRig(*flags)
    texts = ["one", "two two", "three", "", "word " * 55, "word " * 70, "four", "x" * 300, "y" * 5000]
    bodies = [{"seed": 7, **fields, "messages": [{"role": "user", "content": text}]} for text in texts]
    found = [answers(rig, body) for body in bodies]
    # With a key of its own, each is new to the rank.
    expected = [answers(forgetful, {f"x{place}": 0, **body}) for place, body in enumerate(bodies)]
    assert found == expected


def test_known_chats_are_refused_by_their_characters_too() -> None:
    rig = RankRig("--max-model-len", "8")
    found = [
        answers(rig, {"max_tokens": 1, "messages": [{"role": "user", "content": text}]})
        for text in ("one", "two", "three", "y " * 1000, "y " * 1500)
    ]
    assert [status for status, _ in found] == [200, 200, 200, 400, 400]
    assert b"input tokens" in found[3][1]
    assert b"characters" in found[4][1]


def test_known_chats_read_as_the_template_says() -> None:
    template = "{% for m in messages %}a b c d e f {{ m.role }}: {{ m.content }}{% endfor %}"
    rig = RankRig("--chat-template", template)
    fields = {"max_tokens": 1, "messages": [{"role": "user", "content": "one two"}]}
    replies = [json.loads(answers(rig, fields)[1]) for _ in range(4)]
    assert [reply["usage"]["prompt_tokens"] for reply in replies] == [10] * 4


def test_nothing_that_is_remembered_changes_at_run_time() -> None:
    used = {"max_model_len", "enable_force_include_usage", "enable_prompt_tokens_details", "reasoning_parser"}
    used |= {"omni", "mm_encoder_only", "max_logprobs", "trust_request_chat_template"}
    runtime = {option.field for option in OPTIONS.values() if option.runtime}
    assert used <= {option.field for option in OPTIONS.values()}
    assert not used & runtime
