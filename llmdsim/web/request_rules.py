"""Rules for both routes over a request whose types are right: output constraints, repetition, thinking."""

from __future__ import annotations

import json
from typing import Any

from llmdsim.web.decoding import Path, Problem, nested_too_deeply
from llmdsim.web.errors import ApiError
from llmdsim.web.generation_request import (
    GenerationRequest,
    RepetitionDetection,
    ResponseFormat,
    StructuredOutputs,
)

#: Objects and arrays inside one another in a JSON schema, and in a structural tag, which wraps one.
MAX_SCHEMA_NESTING = 64
MAX_TAG_NESTING = 80

_KINDS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")


def settle(request: GenerationRequest) -> None:
    """Raise the 400 for what vLLM refuses after the types are right, on either route."""
    if request.structured_outputs is not None or request.response_format is not None:
        _check_constraints(request)
    if request.repetition_detection is not None:
        _check_repetition_detection(request.repetition_detection)


def read_thinking_token_budget(value: Any, path: Path, problems: list[Problem]) -> Any:
    """An int and nothing that could be one; -1 is no limit. Refused at once, apart from type errors."""
    if value is not None and (type(value) is not int or value < -1):
        message = "`thinking_token_budget` must be a non-negative integer, or -1 for no limit."
        raise ApiError.parameter(message, "thinking_token_budget", value)
    return value


def _check_repetition_detection(wanted: RepetitionDetection) -> None:
    if not 0 <= wanted.min_pattern_size <= wanted.max_pattern_size:
        raise ApiError(
            400, "repetition_detection needs 0 <= min_pattern_size <= max_pattern_size; both 0 is off."
        )
    if wanted.max_pattern_size > 0 and wanted.min_count < 2:
        raise ApiError(400, "repetition_detection needs min_count >= 2; max_pattern_size 0 is off.")


def _check_constraints(request: GenerationRequest) -> None:
    """Raise a 400 (no `param`, as vLLM) unless at most one constraint is on the output, and it can work."""
    wanted = request.structured_outputs
    kinds = set() if wanted is None else {kind for kind in _KINDS if getattr(wanted, kind) is not None}
    if wanted is not None and len(kinds) != 1:
        raise ApiError(
            400, f"structured_outputs takes exactly one kind of constraint of {', '.join(_KINDS)}."
        )
    if request.response_format is not None:
        kinds |= _check_format(request.response_format)
        if len(kinds) > 1:
            raise ApiError(
                400,
                "response_format and structured_outputs together ask for more than one kind of constraint.",
            )
    if wanted is not None:
        _check_contents(wanted)


def _check_format(wanted: ResponseFormat) -> set[str]:
    if wanted.type == "json_schema" and wanted.json_schema is not None:
        _check_nesting(wanted.json_schema.schema, MAX_SCHEMA_NESTING)
        return {"json"}
    if wanted.type == "structural_tag":
        _check_nesting([wanted.format, wanted.structures], MAX_TAG_NESTING + 1)
        return {"structural_tag"}
    return {"json_object"} if wanted.type == "json_object" else set()


def _check_contents(wanted: StructuredOutputs) -> None:
    if wanted.choice == []:
        raise ApiError(400, "structured_outputs.choice cannot be an empty list.")
    for kind, text in (
        ("grammar", wanted.grammar),
        ("json", wanted.json),
        ("structural_tag", wanted.structural_tag),
    ):
        if isinstance(text, str) and not text.strip():
            raise ApiError(400, f"structured_outputs.{kind} cannot be an empty string.")
    _check_nesting(wanted.json, MAX_SCHEMA_NESTING)
    _check_nesting(wanted.structural_tag, MAX_TAG_NESTING)
    if wanted.json_object is False:
        raise ApiError(400, "structured_outputs.json_object must be true where given.")
    if wanted.regex is not None and "\0" in wanted.regex:
        raise ApiError(400, "structured_outputs.regex must not contain a NUL character.")


def _check_nesting(schema: Any, limit: int) -> None:
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except RecursionError:
            raise _too_deep() from None
        except ValueError:  # whoever reads the schema will say so
            return
    if nested_too_deeply(schema, limit):
        raise _too_deep()


def _too_deep() -> ApiError:
    return ApiError(400, f"The JSON schema is nested too deeply: at most {MAX_SCHEMA_NESTING} levels.")
