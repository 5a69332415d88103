"""The Jinja environment that chat templates run in: transformers' extras, and bounds on what they may do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

#: Items (of a text, characters) that one multiplication may make, and bits of a number.
MOST_ITEMS = 1 << 20
MOST_BITS = 1 << 14


class _Generation(Extension):
    """`{% generation %}` marks what an assistant says, for training; here it only has a scope."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 declares it so

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class _Namespace(Namespace):
    """Without names that begin with an underscore, by which one could get at Python's own."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *given = args  # so named, `self` may be an attribute too
        attributes = dict(*given, **kwargs)
        for name in attributes:
            _refuse_private(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _refuse_private(name)
        super().__setitem__(name, value)


class Sandbox(ImmutableSandboxedEnvironment):
    """Whoever makes a number or a text out of all proportion by one operator is refused: nothing could stop
    that once it is under way."""

    intercepted_binops = frozenset(("*", "**"))

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self.filters["tojson"] = _tojson
        self.globals.update(
            raise_exception=_raise_exception, strftime_now=_strftime_now, dict=_dict, namespace=_Namespace
        )

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if _is_too_much(operator, left, right):
            raise SecurityError(f"the result of {operator} is too large")
        return super().call_binop(context, operator, left, right)


def _is_too_much(operator: str, left: Any, right: Any) -> bool:
    if operator == "*":
        for many, times in ((left, right), (right, left)):
            if isinstance(many, Sequence) and isinstance(times, int):
                return len(many) * times > MOST_ITEMS
        if isinstance(left, int) and isinstance(right, int):
            return left.bit_length() + right.bit_length() > MOST_BITS
        return False
    return isinstance(left, int) and isinstance(right, int) and left.bit_length() * abs(right) > MOST_BITS


def _refuse_private(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"a namespace has no {name!r}")


def _raise_exception(message: Any) -> NoReturn:
    raise TemplateError(message)


def _strftime_now(form: str) -> str:
    return datetime.now().strftime(form)


def _dict(*args: Any, **kwargs: Any) -> dict[Any, Any]:
    return dict(*args, **kwargs)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is, where jinja2's own filter would escape it for HTML."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )
