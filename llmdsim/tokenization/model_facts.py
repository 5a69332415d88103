"""What the files of a model say of it besides its tokenizer: its kind, special ids, and usual sampling."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from llmdsim.tokenization.files import GENERATION, MODEL
from llmdsim.tokenization.loading import document

#: What a generation config may say of sampling that clients heed (vLLM), in the order it is told.
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


class ModelFacts(NamedTuple):
    """Nothing, or 0, where the files do not say."""

    model_type: str = ""
    architectures: tuple[str, ...] = ()
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int = 0
    pad_token_id: int = 0
    sampling_defaults: Mapping[str, float] = {}


def model_facts(folder: str) -> ModelFacts:
    """Read from a folder; what cannot be read says nothing."""
    model = _read(Path(folder) / MODEL)
    architectures = model.get("architectures")
    defaults = _read(Path(folder) / GENERATION)
    return ModelFacts(
        _text(model.get("model_type")),
        tuple(filter(None, map(_text, architectures))) if isinstance(architectures, list) else (),
        _ids(model, "eos_token_id"),
        next(iter(_ids(model, "bos_token_id")), 0),
        next(iter(_ids(model, "pad_token_id")), 0),
        {name: defaults[name] for name in _SAMPLING if _is_number(defaults.get(name))},
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        return document(path)
    except (OSError, ValueError, RecursionError):
        return {}


def _text(value: object) -> str:
    # Half a surrogate pair is no text that others could read.
    return value.encode(errors="replace").decode() if isinstance(value, str) else ""


def _ids(model: Mapping[str, Any], name: str) -> tuple[int, ...]:
    """One id or a list of them; models of more than text may have it with what they say of the text."""
    for part in (model, model.get("text_config")):
        found = part.get(name) if isinstance(part, dict) else None
        if found is not None:
            return tuple(item for item in (found if isinstance(found, list) else [found]) if _is_id(item))
    return ()


def _is_id(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**31


def _is_number(value: object) -> bool:
    # All that doubles have exactly, which leaves out what JSON has no word for.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**53
