"""Whoever operates a rank in memory: one call, one answer."""

from __future__ import annotations

import json
from typing import Any

from tests.web.rig import RankRig
from tests.wire.channel import Client, Reply, read_replies

SLEEPY = ("--enable-sleep-mode", "--vllm-server-dev-mode")
PACED = ("--time-to-first-token", "1s", "--inter-token-latency", "1s")

_NOTHING = object()


def begin(rig: RankRig, method: str, path: str, body: Any = _NOTHING, *headers: bytes) -> Client:
    """Send a request; `body` is JSON, or bytes as they are."""
    data = b""
    if body is not _NOTHING:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1".encode(), b"Host: a", b"Content-Length: %d" % len(data), *headers]
    return rig.connect().send(b"\r\n".join(lines) + b"\r\n\r\n" + data)


def answer(client: Client, method: str = "POST") -> Reply:
    """The one response so far."""
    client.settle()
    (reply,) = read_replies(client.received, [method.encode()], client.fate != "open")
    assert reply.complete
    return reply


def call(rig: RankRig, method: str, path: str, body: Any = _NOTHING, *headers: bytes) -> Reply:
    """A request that is answered at once."""
    return answer(begin(rig, method, path, body, *headers), method)


def told(rig: RankRig, method: str, path: str, body: Any = _NOTHING) -> Any:
    """The JSON of an answer, which must be a 200."""
    reply = call(rig, method, path, body)
    assert reply.status == 200, reply
    return json.loads(reply.body)
