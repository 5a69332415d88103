"""Changes to a configuration while the daemon runs, all of them or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from llmdsim.config.durations import LONGEST, NANOSECONDS
from llmdsim.config.fake_metrics import patched
from llmdsim.config.option import ConfigError, Option
from llmdsim.config.table import OPTIONS, Config
from llmdsim.config.validation import validate
from llmdsim.config.values import expected, quoted, read


def updated(config: Config, changes: Mapping[str, object]) -> Config:
    """`config` with `changes`: JSON values by the names of options that may change at run time.

    Durations are text as in flags, with their unit, or whole nanoseconds, as llm-d-inference-sim has them.
    null leaves an option as it is, and empties a list. Members of `fake-metrics` are changed one by one.
    Raises ConfigError that names the option.
    """
    values: dict[str, Any] = {}
    for name, raw in changes.items():
        option = OPTIONS.get(name)
        if option is None or not option.runtime:
            raise ConfigError(f"{quoted(name)} is not admin-configurable: {_why_not(name)}")
        if raw is None and not option.many:
            continue
        if option.many:
            values[option.field] = tuple(_read(option, item) for item in _items(option, raw))
        elif option.field == "fake_metrics":
            values[option.field] = _read(option, _merged(config.fake_metrics, raw))
        else:
            values[option.field] = _read(option, raw)
    changed = replace(config, **values, given=config.given | values.keys())
    validate(changed)
    return changed


def _why_not(name: str) -> str:
    """What is to be said of the name of an option that cannot be changed while the daemon runs."""
    if name in OPTIONS:
        return "changing it takes a restart"
    meant = name.lower().replace("_", "-")
    return f"did you mean {meant}?" if meant in OPTIONS else "there is no such option"


def reread(config: Config, fresh: Config) -> Config:
    """`config` with the options that may change at run time as `fresh` has them.

    Scripted metrics are neither begun nor ended. Raises ConfigError where the whole does not pass the checks.
    """
    fields = {option.field for option in OPTIONS.values() if option.runtime}
    if (config.fake_metrics is None) != (fresh.fake_metrics is None):
        fields.remove("fake_metrics")
    values = {field: getattr(fresh, field) for field in fields}
    changed = replace(config, **values, given=(config.given - fields) | (fresh.given & fields))
    validate(changed)
    return changed


def differing(before: Config, after: Config) -> list[str]:
    """Names of the options that have different values."""
    return [
        name
        for name, option in OPTIONS.items()
        if getattr(before, option.field) != getattr(after, option.field)
    ]


def _merged(known: dict[str, Any] | None, changes: object) -> object:
    if known is None:
        raise ConfigError("fake-metrics: the daemon was not started with --fake-metrics")
    if not isinstance(changes, dict):
        return changes
    return patched(known, changes)


def _items(option: Option, raw: object) -> list[object]:
    if raw is None:
        return []
    if not isinstance(raw, list):
        raise ConfigError(f"{option.name}: {quoted(raw)} is not a list")
    return raw


def _read(option: Option, raw: object) -> object:
    text = _text(option, raw)
    if text is None:
        what = _IN_JSON.get(option.kind) or expected(option)
        raise ConfigError(f"{option.name}: {quoted(raw)} is not {what}")
    return read(option, text, option.name)


#: What is expected where flags would take more, or other things.
_IN_JSON = {"duration": "a duration such as 250ms, or whole nanoseconds", "document": "a JSON object"}


def _text(option: Option, raw: object) -> object:
    """The value as `read` takes it from flags; None where its JSON type is wrong."""
    match option.kind:
        case "json" | "document":
            return raw if isinstance(raw, dict) else None
        case "duration" if isinstance(raw, str):
            return raw if raw == "0" or raw.endswith(tuple(NANOSECONDS)) else None
        case "duration" if type(raw) is int:
            return f"{raw}ns" if abs(raw) <= LONGEST * 1e9 else None
        case "int" if type(raw) is int:
            return str(raw) if abs(raw) < 1 << 63 else None
        case "float" if type(raw) in (int, float):
            return str(raw)
        case "str" if isinstance(raw, str):
            return raw
    return None
