"""Conversations in chat templates."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.tokenization import chat_template
from llmdsim.tokenization.chat_template import ChatTemplate, TemplateRefusal, bounded
from tests.tokenization.qwen3 import qwen3

__all__ = ["qwen3"]

SIMPLE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endfor %}"
LISTING = (
    "{% for m in messages %}{% for p in m.content %}{{ p.text if p.type == 'text' else '<' + p.type + '>' }}"
    "{% endfor %};{% endfor %}"
)
VARIABLES: dict[str, Any] = {"tools": None, "documents": None, "add_generation_prompt": True}


def render(source: str, *messages: dict[str, Any], continued: bool = False, **variables: Any) -> str:
    return ChatTemplate(source).render(messages, {**VARIABLES, **variables}, continued=continued)


def refusal(source: str, *messages: dict[str, Any], continued: bool = False, **variables: Any) -> str:
    with pytest.raises(TemplateRefusal) as caught:
        render(source, *messages, continued=continued, **variables)
    return str(caught.value)


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **more}


# --- what templates are given


def test_templates_get_what_they_want() -> None:
    image = {"type": "image_url", "image_url": {"url": "x"}}
    content = [{"type": "text", "text": "a"}, "b"]
    assert render(SIMPLE, user(content)) == "<user>a\nb</user>"
    assert render(LISTING, user(content)) == "ab;"
    assert render(LISTING, user([image])).startswith("<image>image image ")
    assert ChatTemplate(SIMPLE).render([user("ab")], VARIABLES, "openai").startswith("<user>[{")


def test_variables_are_seen() -> None:
    source = "{{ bos_token }}{{ tools | tojson }}{{ documents }}{{ add_generation_prompt }}{{ x is defined }}"
    assert render(source, user("a"), bos_token="<s>", tools=[{"a": 1}]) == '<s>[{"a": 1}]NoneTrueFalse'


def test_a_developer_is_a_system_to_templates_that_do_not_know_one() -> None:
    developer = {"role": "developer", "content": "d"}
    assert render(SIMPLE, user("u"), developer) == "<system>d</system><user>u</user>"
    assert render(SIMPLE + "{# 'developer' #}", developer) == "<developer>d</developer>"


# --- a message that is continued


@pytest.mark.parametrize(
    ("source", "content", "text"),
    [
        (SIMPLE, "so far ", "<user>a</user><assistant>so far "),
        (SIMPLE, "", "<user>a</user><assistant>"),
        (SIMPLE.replace("m.content", "m.content | trim"), " so far ", "<user>a</user><assistant>so far"),
        (LISTING, [{"type": "text", "text": "so"}, {"type": "text", "text": "far "}], "a;sofar "),
    ],
)
def test_the_text_ends_where_the_last_message_does(source: str, content: Any, text: str) -> None:
    assert render(source, user("a"), assistant(content), continued=True) == text


def test_what_cannot_be_continued() -> None:
    absent = "the final message does not appear"
    assert absent in refusal("{{ messages[0].content }}", user("a"), assistant("b"), continued=True)
    halved = "{{ messages[0].content[1:] }}"
    assert absent in refusal(halved, assistant("b"), continued=True)
    assert "no text to continue" in refusal(LISTING, assistant([]), continued=True)
    assert "does not show any content" in refusal("{{ messages[0].role }}", assistant("b"), continued=True)


def test_the_mark_of_the_end_in_an_earlier_message_is_only_text() -> None:
    mark = chat_template._END
    assert render(SIMPLE, user(mark), assistant("so far"), continued=True).endswith("<assistant>so far")


def test_to_continue_changes_no_message() -> None:
    messages = [user([{"type": "text", "text": "a"}])]
    ChatTemplate(LISTING).render(messages, VARIABLES, continued=True)
    assert messages == [user([{"type": "text", "text": "a"}])]


# --- what goes wrong


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('Roles must alternate.') }}", "Roles must alternate."),
        ("{{ nothing.there }}", "'nothing' is undefined"),
        ("{{ messages[0].content + 1 }}", 'can only concatenate str (not "int") to str'),
        ("{{ nothing | tojson }}", "Object of type Undefined is not JSON serializable"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "maximum recursion depth"),
        ("{{ raise_exception('x' * 9000) }}", "x" * 2000 + "..."),
        ("{{ raise_exception() }}", "missing 1 required positional argument"),
        ("{{ strftime_now('\ud800') }}", "surrogates not allowed"),
    ],
)
def test_whatever_goes_wrong_is_a_refusal_that_says_why(source: str, reason: str) -> None:
    assert reason in refusal(source, user("a"))


@pytest.mark.parametrize("source", ["{% if %}", "{{", "{% nothing %}", "{{ 1 | nothing }}", "{% endfor %}"])
def test_wrong_syntax_is_a_refusal(source: str) -> None:
    with pytest.raises(TemplateRefusal):
        ChatTemplate(source)


def test_what_a_template_writes_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "MOST_CHARACTERS", 100)
    assert "more than 100 characters" in refusal("{% for i in range(99) %}{{ i }}{% endfor %}", user("a"))


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}a{% endfor %}{% endfor %}",
        "{{ lipsum(n=99999999) }}",
        "{{ range(99999) | map('string') | map('length') | list | length }}" * 5000,
        # jinja2 tries this as it compiles, and leaves it for later if it fails.
        "{{ '" + "a" * 1_000_000 + "' | wordwrap(1) }}",
    ],
)
def test_what_a_template_takes_can_be_bounded(source: str) -> None:
    traced = sys.gettrace()
    began = monotonic()
    with pytest.raises(TemplateRefusal, match=r"more than 0\.3 seconds"):
        bounded(lambda: ChatTemplate(source).render([user("a")], VARIABLES), 0.3)
    assert monotonic() - began < 5
    assert sys.gettrace() is traced
    assert bounded(lambda: render(SIMPLE, user("a")), 60) == "<user>a</user>"


def test_time_is_up_even_where_jinja2_takes_every_exception_for_its_own() -> None:
    # What is constant is worked out as the template is compiled, and left alone if that raises.
    constant = "{{ '" + "a " * 100_000 + "' | wordwrap(5) }}{{ messages | length }}"
    with pytest.raises(TemplateRefusal, match=r"more than 0\.3 seconds"):
        bounded(lambda: ChatTemplate(constant).render([user("a")], VARIABLES), 0.3)


def test_that_time_is_over_is_not_lost_where_a_generator_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(chat_template, "monotonic", lambda: now[0])

    def work() -> str:
        unfinished = [(letter for letter in "ab")]
        next(unfinished[0])
        now.insert(0, 9.0), unfinished.clear()
        return "went on"

    with pytest.raises(TemplateRefusal, match="more than 5 seconds"):
        bounded(work, 5)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = ("content", "tool_calls", "reasoning", "name", "tool_call_id", "tools", "task", "x")
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(("system", "user", "assistant", "tool", "developer", "x")),
        st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4),
    ).map(lambda drawn: {"role": drawn[0], **drawn[1]}),
    min_size=1,
    max_size=4,
)


def outcome(template: ChatTemplate, messages: list[dict[str, Any]], continued: bool, tools: Any) -> str:
    """The text, or why there is none; nothing else may come of it."""
    try:
        return "text: " + template.render(messages, {**VARIABLES, "tools": tools}, continued=continued)
    except TemplateRefusal as problem:
        return str(problem)


@given(messages=MESSAGES, continued=st.booleans(), tools=VALUES, source=st.sampled_from((SIMPLE, LISTING)))
def test_any_messages_are_a_text_or_a_refusal(
    messages: list[dict[str, Any]], continued: bool, tools: Any, source: str
) -> None:
    assert outcome(ChatTemplate(source), messages, continued, tools)


# --- Qwen3's own


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Today's weather, in °C",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
TOLD = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
    "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
    '{"type": "function", "function": {"name": "weather", "description": "Today\'s weather, in °C", '
    '"parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}\n'
    "</tools>\n\n"
    "For each function call, return a json object with function name and arguments within "
    "<tool_call></tool_call> XML tags:\n<tool_call>\n"
    '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
)
SYSTEM = {"role": "system", "content": "Be kind."}


@pytest.fixture(scope="module")
def template(qwen3: Path) -> ChatTemplate:
    settings = json.loads((qwen3 / "tokenizer_config.json").read_text(encoding="utf-8"))
    return ChatTemplate(settings["chat_template"])


def test_qwen3_wants_texts(template: ChatTemplate) -> None:
    assert template.content_format == "string"


@pytest.mark.parametrize(
    ("more", "end"),
    [
        ({}, "<|im_start|>assistant\n"),
        ({"enable_thinking": True}, "<|im_start|>assistant\n"),
        ({"enable_thinking": False}, "<|im_start|>assistant\n<think>\n\n</think>\n\n"),
        ({"add_generation_prompt": False}, ""),
    ],
)
def test_qwen3_asked(template: ChatTemplate, more: dict[str, Any], end: str) -> None:
    text = template.render([SYSTEM, user("Hi!")], {**VARIABLES, **more})
    assert text == f"<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHi!<|im_end|>\n{end}"


def test_qwen3_with_tools_calls_and_reasoning(template: ChatTemplate) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Köln"}'}}
    messages = [
        SYSTEM,
        user("First"),
        assistant("Old.", reasoning="forgotten"),
        user("Rain?"),
        assistant(None, tool_calls=[call, call], reasoning="\nlet me see\n"),
        {"role": "tool", "tool_call_id": "c", "content": "dry"},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "4"}, "5"]},
    ]
    called = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>'
    assert template.render(messages, {**VARIABLES, "tools": [WEATHER]}) == (
        f"<|im_start|>system\nBe kind.\n\n{TOLD}<|im_end|>\n"
        "<|im_start|>user\nFirst<|im_end|>\n"
        "<|im_start|>assistant\nOld.<|im_end|>\n"
        "<|im_start|>user\nRain?<|im_end|>\n"
        f"<|im_start|>assistant\n<think>\nlet me see\n</think>\n\n{called}\n{called}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\ndry\n</tool_response>"
        "\n<tool_response>\n4\n5\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_qwen3_continued(template: ChatTemplate) -> None:
    messages = [user("Hi!"), assistant("Well, ")]
    text = template.render(messages, {**VARIABLES, "add_generation_prompt": False}, continued=True)
    assert text == ("<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nWell, ")


@given(messages=MESSAGES, continued=st.booleans(), tools=VALUES)
def test_qwen3_with_anything(
    template: ChatTemplate, messages: list[dict[str, Any]], continued: bool, tools: Any
) -> None:
    assert outcome(template, messages, continued, tools)
