"""Requests for tokens, and what answers say."""

from __future__ import annotations

import json
from typing import Any

from tests.web.clients import events, reply_of
from tests.web.rig import RankRig
from tests.wire.channel import Reply

GENERATE = "/inference/v1/generate"
PREFIX = "generate-tokens-"
IDS = [11, 22, 33, 44, 55]


def ask(rig: RankRig, **fields: Any) -> Reply:
    """The reply to a request: with `IDS` for a prompt and no parameters, unless `fields` has others."""
    client = rig.post(GENERATE, {"token_ids": IDS, "sampling_params": {}, **fields})
    for _ in range(100):
        if rig.rank.engine.idle:
            break
        rig.clock.advance(0.001)
    return reply_of(client)


def answer(rig: RankRig, **fields: Any) -> Any:
    """The document of a whole reply, which must be one."""
    reply = ask(rig, **fields)
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


def frames_of(rig: RankRig, **fields: Any) -> list[Any]:
    """The frames of a stream, which must be one, without the last."""
    reply = ask(rig, stream=True, **fields)
    assert reply.status == 200, reply.body
    *frames, done = events(reply.body)
    assert done == "[DONE]"
    return frames


def error(rig: RankRig, **fields: Any) -> Any:
    """The error object of a refusal."""
    reply = ask(rig, **fields)
    assert reply.status == 400, reply.body
    return reply.error["error"]


def joined(frames: list[Any], index: int = 0) -> list[int]:
    """The ids of one choice of a stream."""
    choices = [choice for frame in frames for choice in frame["choices"] if choice["index"] == index]
    return [token for choice in choices for token in choice["token_ids"]]
