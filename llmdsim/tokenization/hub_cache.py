"""The cache of the Hugging Face libraries: where it is, and where in it a model is by its name."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from llmdsim.tokenization.files import TOKENIZER

_HUB_ID = re.compile(r"(?:[\w-][\w.-]*/)?[\w-][\w.-]*", re.ASCII)
_LONGEST_HUB_ID = 96


def is_hub_id(name: str) -> bool:
    """Whether a repository of the hub may have this name."""
    return (
        _HUB_ID.fullmatch(name) is not None
        and len(name) <= _LONGEST_HUB_ID
        and not any(part in name for part in ("--", ".."))
        and not name.endswith((".git", ".", "-"))
    )


def hub_cache(environ: Mapping[str, str]) -> Path:
    """Where the Hugging Face libraries keep what they download."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environ.get(name):
            return expanded(environ[name])
    return hub_home(environ) / "hub"


def hub_home(environ: Mapping[str, str]) -> Path:
    """Where the Hugging Face libraries keep all that is theirs."""
    if environ.get("HF_HOME"):
        return expanded(environ["HF_HOME"])
    return expanded(environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"


def expanded(path: str) -> Path:
    """A path that may begin with `~`; as it is where nobody knows whose home that is."""
    return Path(os.path.expanduser(path))


def repository(cache: Path, name: str) -> Path:
    """Where a cache has a model of the hub."""
    return cache / f"models--{name.replace('/', '--')}"


def cached(folder: Path, revision: str) -> Path | None:
    """The snapshot in a repository's folder that has a tokenizer, if there is one of this revision."""
    try:
        commit = (folder / "refs" / revision).read_text().strip()
    except (OSError, ValueError):
        commit = revision
    snapshot = folder / "snapshots" / commit
    return snapshot if os.path.isfile(snapshot / TOKENIZER) else None
