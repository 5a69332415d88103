"""What a request says its answer's text must be, as a constraint for the author."""

from __future__ import annotations

import json
from typing import Any

from twisted.logger import Logger

from llmdsim.reply.plan import Constraint
from llmdsim.reply.regex import InvalidRegexError, regex
from llmdsim.web.errors import ApiError, shown
from llmdsim.web.generation_request import GenerationRequest, ResponseFormat, StructuredOutputs

log = Logger()

#: Characters of a text to choose, which is made into tokens at once.
LONGEST_CHOICE = 65_536


def constraint_of(request: GenerationRequest) -> Constraint | None:
    """The constraint on a valid request's answer, whichever of its fields holds it.

    Raises ApiError 400 for a schema that is no JSON and for what is no regular expression.
    """
    if request.structured_outputs is not None:
        return _structured(request.structured_outputs)
    if request.response_format is not None:
        return _format(request.response_format)
    return _guided(request)


def is_constrained(request: GenerationRequest) -> bool:
    """Whether any field may hold a constraint."""
    return (
        request.response_format is not None
        or request.structured_outputs is not None
        or request.guided_json is not None
        or request.guided_regex is not None
        or request.guided_choice is not None
        or request.guided_grammar is not None
    )


def _format(wanted: ResponseFormat) -> Constraint | None:
    if wanted.type == "json_schema":
        schema = None if wanted.json_schema is None else wanted.json_schema.schema
        return Constraint("json_object") if schema is None else Constraint("json", schema)
    if wanted.type == "json_object":
        return Constraint("json_object")
    return _grammar("structural_tag") if wanted.type == "structural_tag" else None


def _structured(wanted: StructuredOutputs) -> Constraint:
    if wanted.json is not None:
        return _json(wanted.json)
    if wanted.regex is not None:
        return _regex(wanted.regex)
    if wanted.choice is not None:
        return _choice(wanted.choice)
    if wanted.json_object is not None:
        return Constraint("json_object")
    return _grammar("grammar" if wanted.grammar is not None else "structural_tag")


def _guided(request: GenerationRequest) -> Constraint | None:
    if request.guided_json is not None:
        return _json(request.guided_json)
    if request.guided_regex is not None:
        return _regex(request.guided_regex)
    if request.guided_choice:
        return _choice(request.guided_choice)
    return None if request.guided_grammar is None else _grammar("guided_grammar")


def _json(schema: str | dict[str, Any]) -> Constraint:
    if isinstance(schema, str):
        try:
            return Constraint("json", json.loads(schema))
        except (ValueError, RecursionError):
            raise ApiError(400, "Invalid JSON grammar specification: the schema is no JSON.") from None
    return Constraint("json", schema)


def _choice(texts: list[str]) -> Constraint:
    if any(len(text) > LONGEST_CHOICE for text in texts):
        raise ApiError(400, f"A choice is at most {LONGEST_CHOICE} characters long.")
    return Constraint("choice", tuple(texts))


def _regex(pattern: str) -> Constraint:
    try:
        regex(pattern)
    except InvalidRegexError as problem:
        raise ApiError(400, f"{shown(pattern)} is no regular expression: {problem}") from None
    return Constraint("regex", pattern)


def _grammar(kind: str) -> Constraint:
    log.info("a {kind} was asked for: the answer is plain text and does not conform", kind=kind)
    return Constraint("grammar")
