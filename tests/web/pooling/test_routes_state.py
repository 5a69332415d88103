"""When pooling routes serve and when they do not."""

from __future__ import annotations

import json

import pytest

from tests.web.rig import RankRig
from tests.wire.channel import post

BODIES = {
    "/v1/embeddings": {"input": "a"},
    "/v2/embed": {"model": "m", "texts": ["a"], "input_type": "x"},
    "/pooling": {"input": "a"},
    "/classify": {"input": "a"},
    "/score": {"text_1": "a", "text_2": "b"},
    "/v1/rerank": {"query": "a", "documents": ["b"]},
}


def status(rig: RankRig, path: str, *headers: bytes) -> int:
    body = json.dumps(BODIES[path]).encode()
    client = rig.connect().send(post(body, *headers, path=path.encode()))
    rig.clock.pump([0.001] * 3)
    return client.replies("POST")[0].status


@pytest.mark.parametrize("path", BODIES)
def test_a_sleeping_server_refuses(path: str) -> None:
    rig = RankRig()
    assert status(rig, path) == 200
    rig.rank.context.suspension.pause("abort", False)
    assert status(rig, path) == 503
    rig.rank.context.suspension.resume()
    assert status(rig, path) == 200


@pytest.mark.parametrize("path", BODIES)
def test_failures_on_purpose_are_for_generation(path: str) -> None:
    rig = RankRig("--failure-injection-rate", "100")
    assert status(rig, path, b"X-Return-Error: 500", b"X-Fault: status; code=500") == 200


@pytest.mark.parametrize("path", BODIES)
def test_a_draining_server_serves(path: str) -> None:
    rig = RankRig()
    rig.rank.context.draining = True
    assert status(rig, path) == 200
