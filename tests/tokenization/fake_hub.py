"""A Hugging Face hub on the loopback, well or ill."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub(ThreadingHTTPServer):
    """Serves the files of one model; what it was asked for is in `asked`, with the tokens in `tokens`.

    Large files come from another server, as those of the real hub do. `status` refuses everything, `delay`
    are seconds before each answer, and a file of `cut` ends too early.
    """

    daemon_threads = True

    def __init__(self, model: str, files: Mapping[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        self.model, self.files = model, dict(files)
        self.asked: list[str] = []
        self.tokens: list[str | None] = []
        self.status = 200
        self.delay = 0.0
        self.cut: set[str] = set()
        self.large: dict[str, str] = {}
        self.token = ""
        self.told: Any = None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients may leave early."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Request(BaseHTTPRequestHandler):
    server: FakeHub

    def do_GET(self) -> None:
        hub = self.server
        path = unquote(urlsplit(self.path).path)
        hub.asked.append(path)
        hub.tokens.append(self.headers["Authorization"])
        time.sleep(hub.delay)
        if hub.token and self.headers["Authorization"] != f"Bearer {hub.token}":
            return self._answer(401)
        if hub.status != 200:
            return self._answer(hub.status)
        if path.startswith(f"/api/models/{hub.model}/revision/"):
            told = {"sha": COMMIT, "siblings": [{"rfilename": name} for name in hub.files]}
            return self._answer(200, json.dumps(told if hub.told is None else hub.told).encode())
        name = path.removeprefix(f"/{hub.model}/resolve/{COMMIT}/")
        if name in hub.large:
            return self._answer(302, location=hub.large[name])
        if name in hub.files:
            return self._answer(200, hub.files[name], missing=10 if name in hub.cut else 0)
        return self._answer(404)

    def _answer(self, status: int, body: bytes = b"", location: str = "", missing: int = 0) -> None:
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        self.send_header("Content-Length", str(len(body) + missing))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        pass


@contextmanager
def running(server: FakeHub) -> Iterator[FakeHub]:
    """Have it serve."""
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def black_hole() -> Iterator[str]:
    """The URL of what takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield f"http://127.0.0.1:{silent.getsockname()[1]}"
