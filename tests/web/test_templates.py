"""Which chat template counts, what requests may say of it, and what becomes of what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import LogLevel, capturedLogs

from llmdsim.config import ConfigError, parse
from llmdsim.tokenization import BuiltinTokenizer, render_chat
from llmdsim.tokenization.loaded import Loaded
from llmdsim.tokenization.media import TOKENS, item_of
from llmdsim.web import templates
from llmdsim.web.templates import templates_of
from tests.web.rig import PassRig

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"
USER = {"role": "user", "content": "hi there"}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
TOLD = (
    '[{"type": "function", "function": {"name": "f", "description": null, "parameters": {"type": "object"}}}]'
)
#: Shows everything that a template may be given.
ALL = (
    "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    "{% if tools %}tools {{ tools | tojson }}\n{% endif %}"
    "{% if documents %}documents {{ documents | tojson }}\n{% endif %}"
    "{% for k in [bos_token, a, reasoning_effort, enable_thinking, add_generation_prompt] %}"
    "{{ k }} {% endfor %}"
)
#: What `ALL` ends with for a plain chat.
PLAIN = "<s>    True "


class Rig(PassRig):
    """One whose threads are done with at once."""

    def __init__(self, *flags: str, **more: Any) -> None:
        super().__init__(*flags, **more)
        self.threads = 0
        self.rank.context.turns._in_thread = self._run

    def _run(self, work: Any) -> Deferred[Any]:
        self.threads += 1
        return maybeDeferred(work)

    def rendered(self, body: dict[str, Any], path: str = CHAT) -> str:
        """What a request reads as; so many tokens are counted wherever it is sent."""
        reply = self.ask(f"{path}/render", body)
        assert reply.status == 200, reply.body
        found = json.loads(reply.body)["token_ids"]
        return "".join(self.rank.context.tokenizer.decode(found))

    def refused(self, body: dict[str, Any], path: str = CHAT) -> str:
        reply = self.ask(path, body)
        assert reply.status == 400, reply.body
        message: str = reply.error["error"]["message"]
        return message


def chat(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"messages": list(messages) or [USER], **fields}


def with_template(*flags: str, template: str = ALL) -> Rig:
    return Rig("--chat-template", template, *flags)


# --- which one counts


def test_without_a_template_nothing_is_rendered_by_one() -> None:
    rig = Rig()
    assert rig.rank.context.templates is None
    assert rig.rendered(chat(tools=[TOOL])) == render_chat([USER])


def test_the_operators_counts_before_the_models_own() -> None:
    own = {"default": "own", "tool_use": "tools"}
    assert Rig("--chat-template", "{# #}given", templates=own).rendered(chat()) == "given"
    rig = Rig(templates=own)
    assert (rig.rendered(chat()), rig.rendered(chat(tools=[TOOL]))) == ("own", "tools")
    assert Rig(templates={"default": "own"}).rendered(chat(tools=[TOOL])) == "own"


def test_one_without_a_default_is_of_no_use() -> None:
    assert "None of the model's chat templates" in Rig(templates={"rag": "x"}).refused(chat())


def test_a_template_may_be_a_file(tmp_path: Path) -> None:
    file = tmp_path / "template.jinja"
    file.write_text("as in a file: {{ messages[0].content }}é", encoding="utf-8")
    assert with_template(template=str(file)).rendered(chat()) == "as in a file: hi thereé"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("/nowhere/template.jinja", "cannot read '/nowhere/template.jinja': No such file or directory"),
        ("/", "cannot read '/': Is a directory"),
        ("nul\0", "cannot read 'nul\\x00': not UTF-8 text"),
        ("{% if %}", "Expected an expression, got 'end of statement block'"),
        ("{{ a\n\n", "unexpected end of template"),
    ],
)
def test_a_wrong_one_is_one_line(given: str, problem: str) -> None:
    config = parse(["--model", "m", "--chat-template", given], {})
    with pytest.raises(ConfigError) as caught:
        templates_of(config, Loaded(BuiltinTokenizer(), {}, {}))
    assert str(caught.value).startswith(f"--chat-template: {problem}")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    file = tmp_path / "template.jinja"
    file.write_bytes(b"\xff\xff")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        with_template(template=str(file))


def test_a_wrong_one_of_the_model_is_left_out_with_a_warning() -> None:
    with capturedLogs() as logs:
        rig = Rig(templates={"default": "own", "tool_use": "{% if %}"})
    (event,) = [event for event in logs if event["log_level"] is LogLevel.warn]
    assert event["name"] == "tool_use"
    assert rig.rendered(chat(tools=[TOOL])) == "own"


# --- what it is given


def test_what_a_chat_says_arrives() -> None:
    rig = with_template()
    document = {"title": "t", "text": "x"}
    said = "system: s\nuser: hi there\n"
    system = {"role": "system", "content": "s"}
    assert rig.rendered(chat(system, USER)) == said + PLAIN
    assert rig.rendered(chat(system, USER, tools=[TOOL])) == f"{said}tools {TOLD}\n{PLAIN}"
    assert rig.rendered(chat(documents=[document])) == (
        'user: hi there\ndocuments [{"title": "t", "text": "x"}]\n' + PLAIN
    )
    asked = chat(chat_template_kwargs={"a": "A", "bos_token": "B"}, reasoning_effort="low")
    assert rig.rendered(asked).endswith("\nB A low True True ")
    asked = chat(
        add_generation_prompt=False, reasoning_effort="none", chat_template_kwargs={"enable_thinking": 1}
    )
    assert rig.rendered(asked).endswith("\n<s>  none 1 False ")


def test_tools_are_shown_without_a_choice_unless_told_otherwise() -> None:
    asked = chat(tools=[TOOL], tool_choice="none")
    assert "tools [" in with_template().rendered(asked)
    rig = with_template("--exclude-tools-when-tool-choice-none")
    assert "tools [" not in rig.rendered(asked)
    assert "tools [" in rig.rendered(chat(tools=[TOOL]))
    assert "tools [" in rig.rendered(chat(tools=[TOOL], tool_choice="required"))


def test_defaults_of_the_server() -> None:
    rig = with_template("--default-chat-template-kwargs", '{"a": "D", "enable_thinking": false}')
    assert rig.rendered(chat()).endswith("\n<s> D  False True ")
    assert rig.rendered(chat(chat_template_kwargs={"a": None})).endswith("\n<s> D  False True ")
    assert rig.rendered(chat(chat_template_kwargs={"a": "auto"})).endswith("\n<s> D  False True ")
    assert rig.rendered(chat(chat_template_kwargs={"a": 1})).endswith("\n<s> 1  False True ")
    body = json.loads(rig.ask(f"{CHAT}/render", chat()).body)
    assert body["parse_context"]["chat_template_kwargs"]["a"] == "D"


def test_defaults_of_the_server_may_keep_it_from_thinking() -> None:
    flags = ("--reasoning-parser", "x", "--default-chat-template-kwargs")
    message = {False: None, True: None}
    for thinks in message:
        rig = Rig(*flags, json.dumps({"enable_thinking": thinks}))
        message[thinks] = json.loads(rig.ask(CHAT, chat()).body)["choices"][0]["message"]["reasoning"]
    assert message[False] is None
    assert message[True]


def test_the_form_of_content() -> None:
    shows = "{{ messages[0].content }}"
    assert with_template(template=shows).rendered(chat()) == "hi there"
    rig = with_template("--chat-template-content-format", "openai", template=shows)
    assert rig.rendered(chat()) == "[{'type': 'text', 'text': 'hi there'}]"
    parts = "{% for p in messages[0].content %}{{ p }}{% endfor %}"
    rig = with_template("--chat-template-content-format", "string", template=parts)
    assert rig.rendered(chat()) == "hi there"


def test_a_message_that_is_continued() -> None:
    ended = (
        "{% for m in messages %}{{ m.content }}<end>{% endfor %}{% if add_generation_prompt %}go{% endif %}"
    )
    rig = with_template(template=ended)
    told = {"role": "assistant", "content": "so far"}
    asked = chat(USER, told, add_generation_prompt=False, continue_final_message=True)
    assert rig.rendered(asked) == "hi there<end>so far"
    assert "add_generation_prompt" in rig.refused(chat(USER, told, continue_final_message=True))


def test_messages_and_responses_arrive_as_chats_do() -> None:
    rig = with_template()
    message = {
        "model": "m",
        "max_tokens": 1,
        "system": "s",
        "messages": [USER],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    }
    text = rig.rendered(message, MESSAGES)
    assert text == f"system: s\nuser: hi there\ntools {TOLD}\n{PLAIN}"
    count = rig.ask(f"{MESSAGES}/count_tokens", {key: message[key] for key in message if key != "max_tokens"})
    assert json.loads(count.body)["input_tokens"] == BuiltinTokenizer().count(text)
    response = {
        "instructions": "s",
        "input": "hi there",
        "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
    }
    assert rig.rendered(response, RESPONSES) == text


def test_counts_are_those_of_what_is_rendered() -> None:
    rig = with_template()
    text = rig.rendered(chat(tools=[TOOL]))
    count = BuiltinTokenizer().count(text)
    assert json.loads(rig.ask(CHAT, chat(tools=[TOOL], max_tokens=1)).body)["usage"]["prompt_tokens"] == count
    told = json.loads(
        rig.ask("/tokenize", chat(tools=[TOOL], return_token_strs=True, documents=[{"a": "b"}])).body
    )
    assert (told["count"], "".join(told["token_strs"])) == (count, text)
    embedded = json.loads(rig.ask("/v1/embeddings", {"messages": [USER]}).body)
    assert embedded["usage"]["prompt_tokens"] == BuiltinTokenizer().count("user: hi there\n<s>    False ")


def test_echo_says_the_message_and_not_what_is_around_it() -> None:
    rig = with_template("--mode", "echo")
    assert json.loads(rig.ask(CHAT, chat()).body)["choices"][0]["message"]["content"] == "hi there"


@pytest.mark.parametrize("parts", [False, True])
def test_media_count_as_ever_and_are_found(parts: bool) -> None:
    image = {"type": "image_url", "image_url": {"url": "http://x/y.png"}}
    content = [{"type": "text", "text": "one"}, image, {"type": "text", "text": "two"}, image]
    item = item_of(image)
    assert item is not None
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    if parts:
        template = (
            "{% for m in messages %}{% for p in m.content %}"
            "{{ p.text if p.type == 'text' else '<pad>' }}\n{% endfor %}{% endfor %}"
        )
    rig = with_template(template=template)
    asked = chat({"role": "user", "content": content})
    body = json.loads(rig.ask(f"{CHAT}/render", asked).body)
    places = body["features"]["mm_placeholders"]["image"]
    words = rig.rank.context.tokenizer.encode(item.placeholders)
    assert len(places) == 2
    for place in places:
        found = body["token_ids"][place["offset"] :][: place["length"]]
        # The last has the blank behind it.
        assert found[:-1] == words[:-1]
        assert place["length"] == TOKENS["image"]


# --- templates that refuse, and those of requests


def test_what_a_template_says_is_wrong_is_told() -> None:
    rig = with_template(template="{{ raise_exception('Roles must alternate') }}")
    assert rig.refused(chat()) == "Roles must alternate"
    assert rig.refused(chat(), "/tokenize") == "Roles must alternate"
    assert rig.refused({"messages": [USER]}, "/v1/embeddings") == "Roles must alternate"
    assert rig.refused({"input": "a"}, RESPONSES) == "Roles must alternate"
    reply = rig.ask(MESSAGES, {"model": "m", "max_tokens": 1, "messages": [USER]})
    assert reply.error["error"] == {"type": "invalid_request_error", "message": "Roles must alternate"}


def test_system_messages_are_merged_where_the_template_wants_one() -> None:
    later = [{"role": "system", "content": "b"}, USER]
    body = {"model": "m", "max_tokens": 1, "system": "a", "messages": [USER, *later]}
    assert with_template().rendered(body, MESSAGES).startswith("system: a\nuser: hi there\nsystem: b\n")
    later_is_wrong = "{% if m.role == 'system' and not loop.first %}{{ raise_exception('x') }}{% endif %}"
    first = "{% for m in messages %}" + later_is_wrong + "{% endfor %}"
    rig = with_template(template=first + ALL)
    assert rig.rendered(body, MESSAGES).startswith("system: ab\nuser: hi there\nuser: hi there\n")
    assert rig.refused(chat(USER, *later)) == "x"


def test_a_template_of_a_request_takes_trust() -> None:
    assert "--trust-request-chat-template" in with_template().refused(chat(chat_template="mine"))
    rig = Rig("--trust-request-chat-template")
    assert rig.rendered(chat(chat_template="mine {{ messages[0].content }}")) == "mine hi there"
    assert rig.rendered(chat(chat_template_kwargs={"chat_template": "mine"})) == "mine"
    # Nobody else is any the worse for it.
    assert rig.rendered(chat()) == render_chat([USER])
    assert rig.rendered(chat(chat_template="")) == render_chat([USER])


def test_a_template_of_a_request_counts_before_the_servers() -> None:
    rig = with_template("--trust-request-chat-template")
    assert rig.rendered(chat(chat_template="mine")) == "mine"
    assert rig.rendered(chat(chat_template_kwargs={"chat_template": "mine"})).endswith(PLAIN)
    rig = Rig("--trust-request-chat-template", templates={"default": "own", "rag": "by name"})
    assert rig.rendered(chat(chat_template="rag")) == "by name"


def test_a_template_of_a_request_is_never_rendered_where_it_holds_up_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(templates, "MOST_SECONDS", 0.2)
    rig = Rig("--trust-request-chat-template")
    endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    assert "takes more than 0.2 seconds" in rig.refused(chat(chat_template=endless))
    assert rig.threads == 1


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"chat_template": "{% if %}"}, "Expected an expression"),
        ({"chat_template": "{{ 9 ** 99999999 }}"}, "too large"),
        ({"chat_template": "{{ a.b }}"}, "'a' is undefined"),
        ({"chat_template": "{{ a " * 100_000}, "expected token"),
        ({"chat_template": "{{ " + "(" * 50_000}, "maximum recursion depth exceeded"),
        ({"chat_template": "{{ messages[0] + 1 }}"}, "unsupported operand"),
        ({"chat_template_kwargs": {"chat_template": 7}}, "must be a string"),
        ({"chat_template_kwargs": {"messages": []}}, "cannot hold `messages`"),
        ({"chat_template_kwargs": {"tokenize": True}}, "cannot hold `tokenize`"),
    ],
)
def test_hostile_templates_are_400(fields: dict[str, Any], words: str) -> None:
    assert words in Rig("--trust-request-chat-template").refused(chat(**fields))


# --- long ones


@pytest.mark.parametrize(
    ("asked", "long"),
    [
        (chat(*[USER] * 25), False),
        (chat({"role": "user", "content": "a " * 20_000}), False),
        (chat(*[USER] * 40), True),
        (chat({"role": "user", "content": "a " * 40_000}), True),
        (chat({"role": "user", "content": [{"type": "text", "text": "a " * 40_000}]}), True),
        (chat(tools=[TOOL] * 200), True),
        (chat(chat_template_kwargs={"a": list(range(2000))}), True),
    ],
)
def test_long_conversations_go_to_a_thread(asked: dict[str, Any], long: bool) -> None:
    rig = with_template("--max-model-len", "100000")
    reply = rig.ask("/tokenize", asked)
    assert (reply.status, rig.threads) == (200, int(long))


def test_what_is_refused_in_a_thread_is_400_as_well() -> None:
    rig = with_template(template="{{ raise_exception('no') }}")
    assert rig.refused(chat(*[USER] * 40)) == "no"
    assert rig.threads == 1
    assert not rig.rank.context.turns.busy
