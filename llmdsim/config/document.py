"""A JSON or YAML object, written inline or kept in a file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import msgspec

from llmdsim.config.option import ConfigError

_SUFFIXES = (".json", ".yaml", ".yml")


def read_document(text: str) -> object:
    """The data of `text`, or of the file it names: `@path`, or a path that ends in .json, .yaml or .yml.

    Raises ConfigError for a file that cannot be used, with its name, and ValueError for wrong inline text.
    """
    path = _path(text)
    if path is None:
        try:
            return _data(text, "")
        except ConfigError:
            raise ValueError(text) from None
    shown = path if path.isprintable() else repr(path)
    try:
        # The daemon reads it again, and a pipe would have it wait.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise ConfigError(f"{shown}: no regular file")
        return _data(Path(path).read_text(encoding="utf-8"), shown)
    except OSError as error:
        raise ConfigError(f"{shown}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{shown}: cannot be read: {error}") from None


def _path(text: str) -> str | None:
    if text.startswith("@"):
        return text[1:]
    inline = any(mark in text for mark in ("{", "\n", ": "))
    return text if text.endswith(_SUFFIXES) and not inline else None


def _data(text: str, shown: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        from llmdsim.config.yaml_file import yaml_object  # noqa: PLC0415 - yaml costs 15 ms

        return yaml_object(text, shown)
