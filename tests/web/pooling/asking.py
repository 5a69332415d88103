"""Requests to the pooling routes of a rank in memory, and their answers."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from tests.web.rig import PassRig
from tests.wire.channel import Reply, post, read_replies

EMBEDDINGS = "/v1/embeddings"
COHERE = "/v2/embed"
POOLING = "/pooling"
CLASSIFY = "/classify"
SCORES = ("/score", "/v1/score")
RERANKS = ("/rerank", "/v1/rerank", "/v2/rerank")


class Answer(NamedTuple):
    """A reply, and its body if that is JSON."""

    reply: Reply
    body: Any

    @property
    def error(self) -> tuple[int, str, str | None]:
        """Status, type and parameter of a refusal."""
        error = self.body["error"]
        assert error["code"] == self.reply.status
        return self.reply.status, error["type"], error["param"]


def ask(rig: PassRig, path: str, body: dict[str, Any], *headers: str) -> Answer:
    """The answer to one request, once it is there."""
    lines = [header.encode() for header in headers]
    client = rig.connect().send(post(json.dumps(body).encode(), *lines, path=path.encode()))
    rig.finish()
    (reply,) = read_replies(client.received, [b"POST"], client.fate != "open")
    assert reply.complete
    is_json = reply.headers[b"content-type"] == b"application/json"
    return Answer(reply, json.loads(reply.body) if is_json else None)


def vectors(rig: PassRig, **body: Any) -> list[list[float]]:
    """The embeddings of a request."""
    answer = ask(rig, EMBEDDINGS, body)
    assert answer.reply.status == 200, answer.body
    assert [item["index"] for item in answer.body["data"]] == list(range(len(answer.body["data"])))
    return [item["embedding"] for item in answer.body["data"]]
