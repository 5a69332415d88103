"""Finds a model's tokenizer: in a folder, in the Hugging Face cache, or else on the hub."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from llmdsim.tokenization.files import TOKENIZER
from llmdsim.tokenization.hub_cache import cached, expanded, hub_cache, is_hub_id, repository

#: Seconds until the hub must have answered, and from then on until all files must be there.
ANSWER = 3.0
ALL = 20.0

#: Seconds that a busy machine may take to start the process that asks.
_START = 10.0

_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
_TRUE = frozenset(("1", "ON", "YES", "TRUE"))


class Wanted(NamedTuple):
    """What is looked for: a folder, or a model of the hub in a revision; and where there may be a copy.

    "" is the hub's main branch, and the cache that the environment names.
    """

    name: str
    revision: str = ""
    cache: str = ""


class Found(NamedTuple):
    """The folder with the files, or "" and why there is none."""

    folder: str
    problem: str = ""


def find(wanted: Wanted, environ: Mapping[str, str]) -> Found:
    """Look for a tokenizer, which takes seconds where the hub is to be asked."""
    name = wanted.name
    folder = Path(name)
    try:
        if (folder / TOKENIZER).is_file():
            return Found(str(folder.absolute()))
        if folder.is_dir():
            return Found("", f"the folder {name} has no {TOKENIZER}")
    except (OSError, ValueError):
        pass  # no name of a folder then
    if not is_hub_id(name):
        return Found("", f"{name!r:.200} is neither a folder nor a model of the hub")
    cache = repository(expanded(wanted.cache) if wanted.cache else hub_cache(environ), name)
    revision = wanted.revision or "main"
    snapshot = cached(cache, revision)
    if snapshot is not None:
        return Found(str(snapshot.absolute()))
    offline = next((each for each in _OFFLINE if environ.get(each, "").upper() in _TRUE), None)
    if offline is not None:
        return Found("", f"{name} is in no cache, and {offline} is set")
    try:
        return Found(_downloaded(name, revision, cache))
    except DownloadError as problem:
        return Found("", f"{name}: {problem}")
    except OSError as problem:
        return Found("", f"{name}: {problem.filename or cache}: {problem.strerror}")


class DownloadError(Exception):
    """`str()` is one clear line."""


def _downloaded(name: str, revision: str, cache: Path) -> str:
    """The folder of a model's files, new in the cache. Raises DownloadError and OSError."""
    cache.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=cache, prefix=".llmdsim-") as parts:
        filled = Path(parts)
        commit = _fetch(name, revision, parts)
        snapshot = cache / "snapshots" / commit
        files = [path.relative_to(filled) for path in filled.rglob("*") if path.is_file()]
        # The tokenizer itself last: where it is, all the others are.
        for file in sorted(files, key=lambda file: file.name == TOKENIZER):
            (snapshot / file).parent.mkdir(parents=True, exist_ok=True)
            os.replace(filled / file, snapshot / file)
        reference = filled / "reference"
        reference.write_text(commit)
        (cache / "refs" / revision).parent.mkdir(parents=True, exist_ok=True)
        os.replace(reference, cache / "refs" / revision)
    return str(snapshot.absolute())


def _fetch(name: str, revision: str, folder: str) -> str:
    """Fill the folder from the hub, in a process that ends when it takes too long; the commit."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-P",
            "-m",
            "llmdsim.tokenization.hub",
            name,
            revision,
            folder,
            f"{ANSWER}",
            f"{ALL}",
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        said, _ = process.communicate(timeout=_START + ANSWER + ALL)
    except subprocess.TimeoutExpired:
        said = ""
    finally:
        process.kill()
        process.communicate()
    lines = said.split("\n")[:-1]
    if process.returncode in (-signal.SIGALRM, -signal.SIGKILL):
        if lines:
            raise DownloadError(f"its files are not there after {ALL:g} seconds")
        raise DownloadError(f"the hub does not answer within {ANSWER:g} seconds")
    if process.returncode or not lines:
        raise DownloadError(lines[-1] if lines else "asking the hub failed")
    return lines[0]
