"""Requests to the Messages routes of a rank in memory, and their judged answers."""

from __future__ import annotations

import json
from typing import Any

from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter

from tests.web.anthropic.answers import assembled, events, message
from tests.web.anthropic.requests import MESSAGES, fields
from tests.web.clients import reply_of as response_of
from tests.web.clients import watched
from tests.web.rig import RankRig
from tests.wire.channel import Client, post
from tests.wire.channel import Reply as Response

EVENT: TypeAdapter[Any] = TypeAdapter(RawMessageStreamEvent)
PACED = ("--time-to-first-token", "1s", "--inter-token-latency", "1s")


def ask(rig: RankRig, path: str = MESSAGES, *headers: bytes, **more: Any) -> Client:
    return watched(rig).send(post(json.dumps(fields(**more)).encode(), *headers, path=path.encode()))


def response(rig: RankRig, path: str = MESSAGES, **more: Any) -> Response:
    client = ask(rig, path, **more)
    rig.clock.pump([0.001] * 100)
    return response_of(client)


def whole(rig: RankRig, **more: Any) -> Any:
    found = response(rig, **more)
    assert (found.status, found.headers[b"content-type"]) == (200, b"application/json"), found.body
    Message.model_validate_json(found.body)
    return message(json.loads(found.body))


def streamed(rig: RankRig, **more: Any) -> Any:
    found = response(rig, stream=True, **more)
    assert found.status == 200, found.body
    assert found.headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    stream = events(found.body)
    for event in stream:
        EVENT.validate_python(event.data)
    return assembled(stream)
