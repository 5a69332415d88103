"""The forms in which clients send prompts: a text, texts, token ids, or lists of ids."""

from __future__ import annotations

from array import array
from typing import Any

from llmdsim.web import coercion, decoding
from llmdsim.web.decoding import Path, Problem
from llmdsim.web.errors import ApiError
from llmdsim.web.limits import Limits

Prompt = str | list[int]
#: As a struct declares it. More than one of the forms at once is none of them.
Prompts = str | list[str | int | list[int]]


def uniform(prompts: Any) -> bool:
    """Whether it is one of the four forms, exactly, and not empty; negative ids count as no form."""
    if type(prompts) is not list:
        return bool(prompts)
    if prompts and type(prompts[0]) is int:
        try:
            # Five times as fast as `_are_ids`, but takes booleans, of which there are none here.
            array("Q", prompts)
        except (TypeError, OverflowError):
            return _are_ids(prompts)
        return True
    kinds = set(map(type, prompts))
    if kinds == {str}:
        return True
    try:
        return kinds == {list} and all(not inner or min(inner) >= 0 for inner in prompts)
    except TypeError:  # not all of them numbers
        return False


def separate(prompts: Prompts, field: str, limits: Limits) -> list[Prompt]:
    """The prompts one by one, each a text or a non-empty list of ids below `limits.vocab_size`.

    Raises a 400 for more prompts than `limits.max_prompts`, which names `field`, an empty list of ids, and
    ids out of the vocabulary. Texts may be empty.
    """
    if isinstance(prompts, str):
        return [prompts]
    if isinstance(prompts[0], int):
        found: list[Any] = [prompts]
    else:
        found = prompts
        check_count(len(found), field, limits)
    for item in found:
        if type(item) is list:
            if not item:
                raise ApiError(400, "A prompt cannot be empty.")
            if max(item) >= limits.vocab_size:
                raise ApiError(400, f"Token id {max(item)} is out of vocabulary.")
    return found


def check_count(count: int, field: str, limits: Limits) -> None:
    """Refuse more prompts than one request may hold."""
    if count > limits.max_prompts:
        message = f"{field} holds {count} prompts, which exceeds the maximum of {limits.max_prompts}."
        raise ApiError.parameter(message, field)


def read(value: Any, path: Path, problems: list[Problem]) -> Any:
    """One of the four forms: as it is where it fits one exactly, else as ids read leniently."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and (all(isinstance(item, str) for item in value) or _are_ids(value)):
        return value
    found: list[Problem] = []
    for read_item in (_read_id, _read_id_list):
        own: list[Problem] = []
        result = _read_each(read_item, value, path, own)
        if not own:
            return result
        found += own
    found.append(Problem("string_type", path, "expected a string", value))
    _read_each(_read_text, value, path, found)
    problems += found
    return value


def _are_ids(values: list[Any]) -> bool:
    return set(map(type, values)) == {int} and min(values) >= 0


def _read_each(read_item: coercion.Reader, value: Any, path: Path, problems: list[Problem]) -> Any:
    """A list whose items `read_item` reads, until too many could not be."""
    if not isinstance(value, list):
        problems.append(Problem("list_type", path, "expected a list", value))
        return value
    most = len(problems) + decoding.MAX_PROBLEMS
    result = []
    for index, item in enumerate(value):
        result.append(read_item(item, (*path, index), problems))
        if len(problems) > most:
            break
    return result


def _read_id(value: Any, path: Path, problems: list[Problem]) -> Any:
    number = coercion.integer(value, path, problems)
    if isinstance(number, int) and number < 0:
        problems.append(Problem("greater_than_equal", path, "expected at least 0", value, {"ge": 0}))
    return number


def _read_id_list(value: Any, path: Path, problems: list[Problem]) -> Any:
    return _read_each(_read_id, value, path, problems)


def _read_text(value: Any, path: Path, problems: list[Problem]) -> Any:
    if not isinstance(value, str):
        problems.append(Problem("string_type", path, "expected a string", value))
    return value
