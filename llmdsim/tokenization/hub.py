"""Fetches a tokenizer's files from the Hugging Face hub, in a process of its own.

    python -m llmdsim.tokenization.hub MODEL REVISION FOLDER ANSWER ALL

SIGALRM ends it when the hub has not answered after so many seconds, or not sent all. Nothing else holds a
network that swallows everything to a time-out: not even to look up a name can be given up in a thread. One
line is printed once the hub has answered, the commit; on failure one line that says why.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from llmdsim.tokenization.files import TOKENIZER, is_wanted
from llmdsim.tokenization.hub_cache import expanded, hub_home

#: Of each wait, in seconds; this process ends before.
_TIMEOUT = 30.0
#: Bytes of all files together; the largest known have a tenth.
_MOST_BYTES = 512 << 20

_COMMIT = re.compile(r"[0-9a-zA-Z]{1,64}")


class HubError(Exception):
    """`str()` is one clear line."""


class Hub:
    """The hub that `environ` names, with the token that it has."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.endpoint = environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"
        self._token = _token(environ)
        self._open = build_opener(_KeepsToken).open
        self._room = _MOST_BYTES

    def listing(self, model: str, revision: str) -> tuple[str, list[str]]:
        """The commit that a revision is, and the files in it that are wanted. Raises HubError."""
        path = f"api/models/{model}/revision/{quote(revision, safe='')}"
        try:
            told = json.loads(self._get(path))
            commit = told["sha"]
            names = [entry["rfilename"] for entry in told["siblings"]]
        except (ValueError, TypeError, KeyError):
            raise HubError(f"{self.endpoint} answers something else than a hub") from None
        if not isinstance(commit, str) or not _COMMIT.fullmatch(commit):
            raise HubError(f"{self.endpoint} tells no commit")
        if TOKENIZER not in names:
            raise HubError(f"it has no {TOKENIZER}")
        return commit, [name for name in names if isinstance(name, str) and is_wanted(name)]

    def fetch(self, model: str, commit: str, name: str, folder: Path) -> None:
        """Put a file into the folder. Raises HubError and OSError."""
        data = self._get(f"{model}/resolve/{commit}/{quote(name)}")
        target = folder / name
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(data)

    def _get(self, path: str) -> bytes:
        request = Request(f"{self.endpoint}/{path}", headers={"User-Agent": "llmdsim"})
        if self._token:
            # Not one of the headers that urllib takes along to wherever it is sent.
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        try:
            with self._open(request, timeout=_TIMEOUT) as response:
                data: bytes = response.read(self._room + 1)
                missing = response.length
        except HTTPError as answer:
            raise HubError(self._refusal(answer.code)) from None
        except URLError as problem:
            raise HubError(f"{self.endpoint} cannot be reached: {problem.reason}") from None
        except (OSError, http.client.HTTPException, ValueError) as problem:
            raise HubError(f"{self.endpoint}: {problem or type(problem).__name__}") from None
        self._room -= len(data)
        if self._room < 0:
            raise HubError("its files are too large")
        if missing:
            raise HubError(f"{self.endpoint} has ended the connection too early")
        return data

    def _refusal(self, status: int) -> str:
        said = f"{self.endpoint} answers {status}"
        if status in (401, 403, 404):
            given = "with this HF_TOKEN" if self._token else "without HF_TOKEN"
            return f"{said}: there is no such model, or it is not for everybody ({given})"
        return said


class _KeepsToken(HTTPRedirectHandler):
    """Follows redirections, with the token only where they stay on the same server."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        followed = super().redirect_request(req, fp, code, msg, headers, newurl)
        token = req.get_header("Authorization")
        if followed is not None and token and urlsplit(newurl)[:2] == urlsplit(req.full_url)[:2]:
            followed.add_unredirected_header("Authorization", token)
        return followed


def _token(environ: Mapping[str, str]) -> str:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if environ.get(name, "").strip():
            return environ[name].strip()
    path = environ.get("HF_TOKEN_PATH")
    try:
        return (expanded(path) if path else hub_home(environ) / "token").read_text().strip()
    except (OSError, ValueError):
        return ""


def main(model: str, revision: str, folder: str, answer: str, all_files: str) -> int:
    """Fill the folder; 0 if that went well."""
    # What this process was started by may block it.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, float(answer))
    hub = Hub(os.environ)
    try:
        commit, names = hub.listing(model, revision)
        print(commit, flush=True)
        signal.setitimer(signal.ITIMER_REAL, float(all_files))
        for name in names:
            hub.fetch(model, commit, name, Path(folder))
    except (HubError, OSError) as problem:
        print(problem, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
