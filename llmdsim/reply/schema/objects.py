"""Objects: which members there are, and what applies to each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from llmdsim.reply.effort import DeadEndError, TooHardError
from llmdsim.reply.schema.keywords import MAX_MEMBERS, Part, highest, listing, lowest, mapping, strings
from llmdsim.reply.schema.words import WORDS

if TYPE_CHECKING:
    from llmdsim.reply.schema.writing import Writer

_MOST_MAPPED = 3
"""Members of an object that maps any names to values of one kind."""
_A_STRING: Part = {"type": "string"}

Names = dict[str, None]
"""In order, each once."""


def write_object(writer: Writer, parts: Sequence[Part]) -> dict[str, object]:
    """Members come in the order of the schema's `properties`. Raises DeadEndError and TooHardError."""
    least, most = highest(parts, "minProperties") or 0, lowest(parts, "maxProperties")
    required = _names(strings(part, "required") for part in parts)
    declared = _names(mapping(part, "properties") for part in parts)
    listed = sum(len(listing(part, "required")) + len(mapping(part, "patternProperties")) for part in parts)
    writer.effort.spend(len(required) + len(declared) + (listed >> 4))
    optional = [name for name in declared if name not in required]
    chosen = _chosen(writer, optional, None if most is None else most - len(required))
    for part in parts:
        if "dependentRequired" in part:
            _add_dependents(chosen, required, mapping(part, "dependentRequired"))
    members: dict[str, object] = {}
    for name in declared | required:
        if name in required or name in chosen:
            _add(writer, parts, members, name, name in required)
    if len(members) < least:
        left = [name for name in optional if name not in members]
        for name in writer.random.sample(left, len(left)):
            if len(members) < least:
                _add(writer, parts, members, name, False)
        members = {name: members[name] for name in declared | required if name in members}
    _add_undeclared(writer, parts, members, declared, least, most)
    if not writer.forgiving and (len(members) < least or (most is not None and len(members) > most)):
        raise DeadEndError
    return members


def _names(lists: Iterable[Iterable[str]]) -> Names:
    return {name: None for names in lists for name in islice(names, MAX_MEMBERS)}


def _chosen(writer: Writer, optional: list[str], room: int | None) -> Names:
    """The optional members that are given."""
    if writer.frugal:
        return {}
    settings = writer.settings
    percentage = (
        settings.tool_call_not_required_param_probability
        if writer.depth == 1
        else settings.object_tool_call_not_required_field_probability
    )
    draw = writer.random.random
    chosen = [name for name in optional if draw() * 100.0 < percentage]
    if room is not None and len(chosen) > room:
        chosen = writer.random.sample(chosen, max(room, 0))
    return dict.fromkeys(chosen)


def _add_dependents(chosen: Names, required: Names, dependents: dict[str, object]) -> None:
    """Requires what must come along with what is given."""
    pending = [*required, *chosen]
    for name in pending:
        for other in strings(dependents, name):
            if other not in required:
                required[other] = None
                pending.append(other)


def _add(
    writer: Writer, parts: Sequence[Part], members: dict[str, object], name: str, is_required: bool
) -> None:
    if writer.spent:
        return
    try:
        value = writer.value(list(_member_schemas(writer, parts, name)), name)
    except DeadEndError:
        if is_required:
            raise
        return
    writer.say(len(name))
    members[name] = value


def _member_schemas(writer: Writer, parts: Sequence[Part], name: str) -> Iterator[object]:
    for part in parts:
        members = mapping(part, "properties")
        is_named = name in members
        if is_named:
            yield members[name]
        if "patternProperties" in part:
            for pattern, schema in mapping(part, "patternProperties").items():
                if _matches(writer, pattern, name):
                    is_named = True
                    yield schema
        if not is_named and "additionalProperties" in part:
            yield part["additionalProperties"]


def _matches(writer: Writer, pattern: str, name: str) -> bool:
    try:
        return writer.checker.matches(pattern, name)
    except TooHardError:
        if writer.spent:
            raise
        return False


def _add_undeclared(
    writer: Writer,
    parts: Sequence[Part],
    members: dict[str, object],
    declared: Names,
    least: int,
    most: int | None,
) -> None:
    """Members with other names: as many as must be, some more in mappings."""
    patterns = [pattern for part in parts for pattern in mapping(part, "patternProperties")]
    wanted = least
    is_mapping = patterns or any(isinstance(part.get("additionalProperties"), dict) for part in parts)
    if is_mapping and not declared and not writer.frugal:
        wanted = max(least, len(members) + writer.random.randint(1, _MOST_MAPPED))
    if most is not None:
        wanted = min(wanted, most)
    if len(members) >= wanted:
        return
    closed = any(part.get("additionalProperties") is False for part in parts)
    for _ in range(min(4 * wanted, MAX_MEMBERS)):
        writer.effort.spend(2)
        name = _undeclared_name(writer, parts, patterns, closed, len(members))
        if name is None:
            break
        if name not in members and name not in declared:
            _add(writer, parts, members, name, False)
            if len(members) >= wanted:
                break


def _undeclared_name(
    writer: Writer, parts: Sequence[Part], patterns: list[str], closed: bool, number: int
) -> str | None:
    """A name that may do, None where there is none."""
    rules = [part["propertyNames"] for part in parts if "propertyNames" in part]
    if rules:
        try:
            name = writer.value([*rules, _A_STRING])
        except DeadEndError:
            return None
        return name if isinstance(name, str) else None
    if patterns:
        pattern = writer.random.choice(patterns)
        try:
            written = writer.checker.compiled(pattern).write(writer.random, whole=False, effort=writer.effort)
        except TooHardError:
            return None
        return written.text if written.conforming else None
    if closed:
        return None
    word = writer.random.choice(WORDS)
    return word if number < len(WORDS) // 4 else f"{word}_{number}"
