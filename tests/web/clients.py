"""Clients of a rank in memory: requests as bytes, each write by itself, and what streams say."""

from __future__ import annotations

import json
from typing import Any

from twisted.internet.task import Clock

from llmdsim.wire.http1 import HTTP1
from tests.web.rig import RankRig
from tests.wire import channel
from tests.wire.channel import Client, Reply, TCPTransport, read_replies

CHAT = "/v1/chat/completions"
TEXT = "/v1/completions"


class WatchedTransport(TCPTransport):
    """Keeps each write by itself, whether the client reads or not."""

    def __init__(self, clock: Clock, protocol: HTTP1) -> None:
        super().__init__(clock, protocol)
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        super().write(data)


def watched(rig: RankRig) -> Client:
    """A client whose `transport.writes` are the server's writes one by one."""
    return Client(rig, WatchedTransport)  # type: ignore[arg-type]


def fields(path: str, **more: Any) -> dict[str, Any]:
    """A body for either endpoint: five tokens, unless `more` says something else."""
    prompt = {"messages": [{"role": "user", "content": "one two"}]} if path == CHAT else {"prompt": "one two"}
    return {**prompt, "max_tokens": 5, "ignore_eos": True, **more}


def request(path: str, body: dict[str, Any], *headers: str) -> bytes:
    """A request that is sent as one packet."""
    lines = [header.encode() for header in headers]
    return channel.post(json.dumps(body).encode(), *lines, path=path.encode())


def post(rig: RankRig, path: str, *headers: str, **more: Any) -> Client:
    """A watched client that has sent one request, made by `fields`."""
    return watched(rig).send(request(path, fields(path, **more), *headers))


def reply_of(client: Client) -> Reply:
    """The one response a client has been sent."""
    (reply,) = read_replies(client.received, [b"POST"], client.fate != "open")
    return reply


def events(body: bytes) -> list[Any]:
    """The data of a stream's events: objects, and "[DONE]" as text. Strict about framing."""
    if not body:
        return []
    assert body.endswith(b"\n\n"), body[-80:]
    found = []
    for event in body[:-2].split(b"\n\n"):
        assert event.startswith(b"data: "), event
        assert b"\n" not in event, event
        data = event[6:]
        found.append("[DONE]" if data == b"[DONE]" else json.loads(data))
    return found


def choices_of(frames: list[Any]) -> list[Any]:
    """The choice of every frame that has one, in order."""
    return [choice for frame in frames if isinstance(frame, dict) for choice in frame.get("choices", ())]


def said(frames: list[Any], index: int = 0) -> str:
    """The text of one choice of a stream of either kind."""
    mine = [choice for choice in choices_of(frames) if choice["index"] == index]
    return "".join(choice["text"] if "text" in choice else choice["delta"]["content"] for choice in mine)


def finishes(frames: list[Any]) -> list[tuple[int, str]]:
    """(index, finish reason) of every frame that ends a choice."""
    return [(c["index"], c["finish_reason"]) for c in choices_of(frames) if c["finish_reason"] is not None]
