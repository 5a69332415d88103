"""A configuration as plain data for people: the start-up log and `GET /admin/config`."""

from typing import Final

import msgspec

from llmdsim.config.durations import format_duration
from llmdsim.config.option import Option
from llmdsim.config.table import OPTIONS, Config

MASK: Final = "********"


def shown(config: Config) -> dict[str, object]:
    """Every option by its name, in the table's order: JSON-ready, durations as Go text, secrets masked."""
    return {name: _plain(option, getattr(config, option.field)) for name, option in OPTIONS.items()}


def _plain(option: Option, value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(option, item) for item in value]
    if option.secret and value:
        return MASK
    if option.kind == "duration" and isinstance(value, float):
        return format_duration(value)
    return msgspec.to_builtins(value)
