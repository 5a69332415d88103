"""What a template wants the content of messages to be."""

from __future__ import annotations

import pytest

from llmdsim.tokenization.content_format import content_format
from llmdsim.tokenization.sandbox import Sandbox

LOOP = "{% for message in messages %}"
END = "{% endfor %}"


@pytest.mark.parametrize(
    "source",
    [
        LOOP + "{% for part in message.content %}{{ part.text }}" + END + END,
        LOOP + "{% for part in message['content'] %}{{ part.text }}" + END + END,
        LOOP + "{% for part in message['content'] | list %}{{ part }}" + END + END,
        LOOP + "{% set content = message.content %}{% for part in content %}{{ part }}" + END + END,
        "{% for m in messages[1:] %}{% for part in m.content %}{{ part }}" + END + END,
        "{% set rest = messages[1:] %}{% for m in rest %}{% for part in m.content %}{{ part }}" + END + END,
        "{% set ns = namespace(rest=messages) %}{% for m in ns.rest %}{% for p in m.content %}" + END + END,
        "{% set ns = namespace() %}{% set ns.rest = messages %}{% for m in ns.rest %}{% for p in m.content %}"
        + END
        + END,
        "{% macro show(c) %}{% for part in c %}{{ part }}{% endfor %}{% endmacro %}"
        + LOOP
        + "{{ show(message.content) }}"
        + END,
        "{% macro show(x, c) %}{% for part in c %}{{ part }}{% endfor %}{% endmacro %}"
        + LOOP
        + "{{ show(1, c=message['content']) }}"
        + END,
    ],
)
def test_a_list_of_parts(source: str) -> None:
    assert content_format(Sandbox().parse(source)) == "openai"


@pytest.mark.parametrize(
    "source",
    [
        "",
        LOOP + "{{ message.content }}" + END,
        LOOP + "{% for call in message.tool_calls %}{{ call }}" + END + END,
        LOOP + "{% for part in other.content %}{{ part }}" + END + END,
        "{% for a, b in messages %}{% for part in a.content %}{{ part }}" + END + END,
        # A macro's own `content` is not the message's, unless it is given that.
        "{% macro show(content) %}{% for part in content %}{{ part }}{% endfor %}{% endmacro %}"
        + LOOP
        + "{{ show(message.role) }}"
        + END,
    ],
)
def test_a_text(source: str) -> None:
    assert content_format(Sandbox().parse(source)) == "string"
