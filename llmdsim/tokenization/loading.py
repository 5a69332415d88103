"""Loads a tokenizer, and what else belongs to it, from the folder its files are in."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from llmdsim.tokenization.builtin import BuiltinTokenizer
from llmdsim.tokenization.files import (
    MODEL,
    MORE_TEMPLATES,
    OLD_TEMPLATE,
    SETTINGS,
    SPECIAL_TOKENS,
    TEMPLATE,
    TOKENIZER,
)
from llmdsim.tokenization.loaded import Loaded
from llmdsim.tokenization.pretrained import PretrainedTokenizer, gave_up

#: The name of the template that is used where none is asked for.
DEFAULT = "default"

#: What a tokenizer must have tokens for, and what it need only take.
_WORDS = ("The", "!")
_UNSEEN = "\U0010fffd\u0378"


class LoadError(Exception):
    """`str()` is one clear line."""


def load_builtin() -> Loaded:
    """The built-in tokenizer."""
    return Loaded(BuiltinTokenizer(), {}, {})


def load(folder: str) -> Loaded:
    """The tokenizer in a folder; it takes a quarter of a second, or a whole one. Raises LoadError."""
    # Its threads would be lost where the process forks, and the reactor needs their core.
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from tokenizers import Tokenizer  # noqa: PLC0415 - slow to load, and mostly there is none

    path = Path(folder)
    try:
        settings = document(path / SETTINGS)
        tokenizer = PretrainedTokenizer(
            Tokenizer.from_file(str(path / TOKENIZER)), _vocabulary(document(path / MODEL)), settings
        )
        # Some raise for what they have never seen.
        tokenizer.encode(_UNSEEN)
        if not all(map(tokenizer.encode, _WORDS)):
            raise ValueError("it has no tokens for plain English")
        special = {**document(path / SPECIAL_TOKENS), **settings}
        return Loaded(tokenizer, dict(_templates(path, settings)), dict(_special_tokens(special)))
    except BaseException as problem:
        # The library's errors have no type of their own.
        if not gave_up(problem):
            raise
        raise LoadError(f"{path}: {problem}") from None


def document(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty where there is none."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as problem:
        raise ValueError(f"{path.name}: {problem}") from None
    return found if isinstance(found, dict) else {}


def _vocabulary(model: dict[str, Any]) -> int:
    """How many ids the model knows: often more than its tokenizer has, for the sake of round numbers."""
    for part in (model, model.get("text_config")):
        size = part.get("vocab_size") if isinstance(part, dict) else None
        if isinstance(size, int) and 0 < size < 2**31:
            return size
    return 0


def _special_tokens(settings: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Names and texts, as in `"eos_token": "</s>"` or `"eos_token": {"content": "</s>", …}`."""
    for name, value in settings.items():
        if name.endswith("_token"):
            text = value.get("content") if isinstance(value, dict) else value
            if isinstance(text, str):
                yield name, text


def _templates(folder: Path, settings: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Chat templates and their names; of two with one name the last counts."""
    for given in (document(folder / OLD_TEMPLATE), settings):
        found = given.get("chat_template")
        if isinstance(found, str):
            yield DEFAULT, found
        elif isinstance(found, list):
            for each in found:
                if isinstance(each, dict):
                    name, template = each.get("name"), each.get("template")
                    if isinstance(name, str) and isinstance(template, str):
                        yield name, template
    for path in sorted((folder / MORE_TEMPLATES).glob("*.jinja")):
        yield path.stem, path.read_text()
    if (folder / TEMPLATE).is_file():
        yield DEFAULT, (folder / TEMPLATE).read_text()
