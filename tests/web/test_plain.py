"""Requests that are known to be plain are those whose headers have no say in the answer."""

from __future__ import annotations

import json

import pytest

from llmdsim.web.plain import UNUSUAL, are_plain
from tests.web.rig import RankRig
from tests.wire.channel import Reply, post

BODY = {"model": "m", "max_tokens": 3, "seed": 1, "messages": [{"role": "user", "content": "hello"}]}

#: A header that has a say for each that may, and what tells that it was heard.
HEARD = {
    b"x-return-error": (b"503", b'"code":503'),
    b"x-fault": (b"error", b"injected on purpose"),
    b"x-cache-threshold-finish-reason": (b"true", b'"finish_reason":"cache_threshold"'),
    b"endpoint-load-metrics-format": (b"TEXT", b"endpoint-load-metrics: TEXT"),
    b"x-request-id": (b"mine", b'"id":"chatcmpl-mine"'),
    b"content-type": (b"multipart/form-data", b"HTTP/1.1 400"),
}


@pytest.mark.parametrize(
    ("headers", "plain"),
    [
        ({}, True),
        ({b"host": b"sim", b"content-type": b"application/json", b"x-other": b"1"}, True),
        ({b"content-type": b"application/json; charset=utf-8"}, False),
        ({b"content-type": b"text/plain"}, False),
        *[({name: b"1"}, False) for name in UNUSUAL],
    ],
)
def test_which_headers_are_plain(headers: dict[bytes, bytes], plain: bool) -> None:
    assert are_plain(headers) is plain


def answered(rig: RankRig, *headers: bytes) -> Reply:
    client = rig.connect().send(post(json.dumps(BODY).encode(), *headers, path=b"/v1/chat/completions"))
    rig.clock.pump([1] * 10)
    (reply,) = client.replies(b"POST")
    return reply


def test_every_header_that_is_not_plain_is_tried_here() -> None:
    assert HEARD.keys() == UNUSUAL | {b"content-type"}


@pytest.mark.parametrize("name", HEARD)
def test_they_are_heard_when_their_head_is_met_again(name: bytes) -> None:
    value, sign = HEARD[name]
    rig = RankRig()
    header = b"%b: %b" % (name, value)
    for _ in range(3):
        client = rig.connect().send(post(json.dumps(BODY).encode(), header, path=b"/v1/chat/completions"))
        rig.clock.pump([1] * 10)
        assert sign in client.received
    assert [known.plain for known in rig.site.known_heads.values()] == [False]


def test_plain_requests_are_answered_the_same_again() -> None:
    rig = RankRig()
    first, *others = [answered(rig, b"Content-Type: application/json") for _ in range(3)]
    assert first.status == 200
    text = json.loads(first.body)["choices"]
    assert [json.loads(other.body)["choices"] for other in others] == [text, text]
    assert [known.plain for known in rig.site.known_heads.values()] == [True]
