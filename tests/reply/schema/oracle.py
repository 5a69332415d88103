"""Whether a text is valid JSON for a schema, by the jsonschema library and what it leaves out."""

import json
import re
from typing import Any

import jsonschema
from jsonschema import Draft202012Validator

FORMATS = jsonschema.FormatChecker(Draft202012Validator.FORMAT_CHECKER.checkers)
_TIME = r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]\d\d:\d\d)"
for _name, _pattern in {
    # The library checks these only with more packages than it needs.
    "date-time": rf"\d{{4}}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T{_TIME}",
    "time": _TIME,
    "duration": r"P(\d+W|(?=\d|T)(\d+Y)?(\d+M)?(\d+D)?(T(?=\d)(\d+H)?(\d+M)?(\d+S)?)?)",
    "uri": r"[a-z][a-z0-9+.-]*://[a-z0-9.-]+(/[\w./-]*)?",
    "uri-reference": r"[\w./-]+",
    "hostname": r"[a-z0-9-]+(\.[a-z0-9-]+)*",
    "json-pointer": r"(/[^/~]*)*",
}.items():
    FORMATS.checks(_name)(
        lambda value, shape=re.compile(_pattern): not isinstance(value, str) or bool(shape.fullmatch(value))
    )


def problem(text: str, schema: Any, validator: Any = Draft202012Validator) -> str | None:
    """What is wrong with the text: not compact, or not valid."""
    value = json.loads(text)
    if json.dumps(value, separators=(",", ":"), ensure_ascii=False) != text and "e" not in text:
        return f"not compact: {text}"
    errors = [error.message for error in validator(schema, format_checker=FORMATS).iter_errors(value)]
    return errors[0] if errors else None
