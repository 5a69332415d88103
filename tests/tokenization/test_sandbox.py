"""What Jinja has in a chat template, and what it has not."""

from __future__ import annotations

import re
from typing import Any

import pytest
from jinja2 import TemplateError, UndefinedError
from jinja2.exceptions import SecurityError

from llmdsim.tokenization.sandbox import Sandbox


def render(source: str, **variables: Any) -> str:
    return Sandbox().from_string(source).render(variables)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ x | tojson }}", '{"b": "é<&>\'", "a": [1, null, true]}'),
        ("{{ x | tojson(ensure_ascii=True) }}", '{"b": "\\u00e9<&>\'", "a": [1, null, true]}'),
        ("{{ x | tojson(sort_keys=true, separators=(',', ':')) }}", '{"a":[1,null,true],"b":"é<&>\'"}'),
        ("{{ {'a': 1} | tojson(indent=2) }}", '{\n  "a": 1\n}'),
    ],
)
def test_json_is_as_it_is(source: str, text: str) -> None:
    assert render(source, x={"b": "é<&>'", "a": [1, None, True]}) == text


def test_blocks_leave_no_lines() -> None:
    assert render("a\n  {% if true %}\n  b\n  {% endif %}\nc") == "a\n  b\nc"


def test_loops_can_be_left() -> None:
    left = "{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}"
    assert render("{% for i in range(9) %}" + left + "{{ i }}{% endfor %}") == "023"


def test_generation_marks_only() -> None:
    assert render("{% for i in [1, 2] %}a{% generation %}{{ i }}{% endgeneration %}{% endfor %}") == "a1a2"


def test_names_set_in_a_generation_stay_there() -> None:
    assert render("{% set a = 1 %}{% generation %}{% set a = 2 %}{% endgeneration %}{{ a }}") == "1"


def test_a_template_may_refuse() -> None:
    with pytest.raises(TemplateError, match="no way"):
        render("{{ raise_exception('no way') }}")


def test_a_template_knows_the_time() -> None:
    assert re.fullmatch(r"\d\d \w+ 20\d\d", render("{{ strftime_now('%d %b %Y') }}"))


def test_namespaces_and_dicts() -> None:
    source = "{% set ns = namespace(a=1, self=2) %}{% set ns.a = ns.a + ns.self %}{{ ns.a }}{{ dict(b=1).b }}"
    assert render(source) == "31"


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ namespace(_x=1) }}",
        "{% set ns = namespace() %}{% set ns._x = 1 %}",
        "{{ raise_exception.__globals__.x }}",
        "{{ messages.append(1) }}",
        "{{ 'a' * 2000000 }}",
        "{{ 2000000 * [1] }}",
        "{{ ('a' * 1000) * 1000 * 1000 }}",
        "{{ 9 ** 99999999 }}",
        "{% set a = 9 ** 2000 %}{{ a * a * a * a }}",
        "{{ range(1000000) }}",
        "{% include 'x' %}",
        "{% import 'x' as y %}",
    ],
)
def test_what_is_out_of_bounds(source: str) -> None:
    with pytest.raises((SecurityError, UndefinedError, OverflowError, TypeError, TemplateError)):
        render(source, messages=[])


def test_what_is_within_bounds() -> None:
    assert (
        render("{{ 'ab' * 3 }}{{ 2 ** 10 }}{{ 6 * 7 }}{{ 1.5 * 2 }}{{ [1] * 2 }}") == "ababab1024423.0[1, 1]"
    )
