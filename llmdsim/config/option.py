"""One row of the option table: what an option is called, takes, allows and does."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin

import msgspec

Duration: TypeAlias = Annotated[float, "ms"]
"""Seconds; written as Go duration text, or as a bare number of milliseconds."""

DurationInSeconds: TypeAlias = Annotated[float, "s"]
"""Seconds; written as Go duration text, or as a bare number of seconds (as vLLM and web servers have it)."""

Json: TypeAlias = dict[str, Any]

Document: TypeAlias = Annotated[dict[str, Any], "document"]
"""An object; written as JSON or YAML, inline or in a file."""

JsonTexts: TypeAlias = Annotated[tuple[str, ...], "json"]
"""Texts; written as one JSON list, where vLLM has it so."""

Kind: TypeAlias = Literal["bool", "int", "float", "str", "duration", "json", "document", "texts", "lora"]


class LoraModule(msgspec.Struct, frozen=True):
    """A LoRA adapter known at start: `{"name": ..., "path": ..., "base_model_name": ...}` or `name=path`.

    Keys of vLLM that mean nothing here (`is_3d_lora_weight`) are let through.
    """

    name: str
    path: str = ""
    base_model_name: str | None = None


class ConfigError(Exception):
    """The configuration cannot be used; `str()` is one clear line for stderr."""


@dataclass(frozen=True, slots=True)
class Option:
    """What `option()` was given, and what the field's name and annotation add to it."""

    field: str
    name: str
    kind: Kind
    many: bool
    optional: bool
    seconds: bool
    default: Any
    help: str
    group: str
    low: float | None
    high: float | None
    choices: tuple[str | int, ...]
    aliases: tuple[str, ...]
    env: str
    secret: bool
    runtime: bool
    effective: bool
    hint: str


def option(
    default: object,
    help: str,
    *,
    group: str,
    low: float | None = None,
    high: float | None = None,
    aliases: tuple[str, ...] = (),
    env: str = "",
    secret: bool = False,
    runtime: bool = False,
    effective: bool = False,
    hint: str = "",
) -> Any:
    """A dataclass field that is an option.

    `low` and `high` are inclusive, in the field's own unit (seconds for durations). `aliases` are further
    spellings with their dashes. `env` names the environment variable that beats the YAML file. `runtime`
    allows changing it while the daemon runs; `effective` is false while its behaviour has not landed; `hint`
    ends the message about a wrong value.
    """
    row = {
        "default": default,
        "help": help,
        "group": group,
        "low": low,
        "high": high,
        "aliases": aliases,
        "env": env,
        "secret": secret,
        "runtime": runtime,
        "effective": effective,
        "hint": hint,
    }
    return field(default=default, metadata={"option": row})


def flag_of(field: str) -> str:
    """How a field's option is written on the command line."""
    return "--" + field.replace("_", "-")


def row(name: str, annotation: object, given: dict[str, Any]) -> Option:
    """The row of the field `name`; its annotation says what it takes, so nothing is written twice."""
    optional = type(None) in get_args(annotation)
    if optional:
        (annotation,) = (part for part in get_args(annotation) if part is not type(None))
    many = get_origin(annotation) is tuple
    if many:
        annotation = get_args(annotation)[0]
    seconds = annotation == DurationInSeconds
    choices: tuple[str | int, ...] = ()
    kind: Kind
    if get_origin(annotation) is Literal:
        choices = get_args(annotation)
        kind = "int" if isinstance(choices[0], int) else "str"
    else:
        kind = _KINDS[annotation]
    return Option(
        field=name,
        name=name.replace("_", "-"),
        kind=kind,
        many=many,
        optional=optional,
        seconds=seconds,
        choices=choices,
        **given,
    )


_KINDS: dict[object, Kind] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    Duration: "duration",
    DurationInSeconds: "duration",
    Json: "json",
    Document: "document",
    JsonTexts: "texts",
    LoraModule: "lora",
}
