"""`/abort_requests`: ending requests from outside."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from klein import Klein

from llmdsim.engine.sequence import Sequence
from llmdsim.web.admin.bodies import read_body
from llmdsim.web.context import Context
from llmdsim.web.errors import ApiError
from llmdsim.web.takes import takes
from llmdsim.wire.request import Request

json = msgspec.json.encode


class AbortRequest(msgspec.Struct):
    """Which requests to end: ids as replies show them, or as vLLM's engine calls them."""

    request_ids: list[str] | str | None = None


class Aborting:
    """Routes of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def mount(self, app: Klein) -> None:
        """Add the routes."""
        app.route("/abort_requests", methods=["POST"], endpoint="abort_requests")(self.abort)
        path = "/inference/v1/abort_requests"
        app.route(path, methods=["POST"], endpoint="inference_abort_requests")(self.abort_quietly)

    @takes(AbortRequest)
    def abort(self, request: Request) -> None:
        """End the requests named, or all of them, and tell how many there were."""
        body = read_body(AbortRequest, request)
        aborted = self._abort(_listed(body.request_ids))
        request.respond(200, json({"status": "aborted", "aborted": aborted}))

    @takes(AbortRequest)
    def abort_quietly(self, request: Request) -> None:
        """End the requests named; unknown ones are none (vLLM)."""
        body = read_body(AbortRequest, request)
        if body.request_ids is None:
            raise ApiError(400, "Missing 'request_ids' in the request body", type="Bad Request")
        if ids := _listed(body.request_ids):
            self._abort(ids)
        request.respond_empty(200)

    def _abort(self, ids: Collection[str]) -> int:
        driver = self._context.driver
        found = driver.engine.sequences
        if ids:
            found = named(found, ids)
        driver.cut_short(found)
        return len({sequence.request_id for sequence in found})


def _listed(ids: list[str] | str | None) -> list[str]:
    return [ids] if isinstance(ids, str) else ids or []


def named(sequences: Collection[Sequence], ids: Collection[str]) -> list[Sequence]:
    """Those that belong to any of the requests, or prompts, that `ids` name."""
    wanted = frozenset(ids)
    return [sequence for sequence in sequences if not wanted.isdisjoint(_names(sequence))]


def _names(sequence: Sequence) -> list[str]:
    """The request's id, and that by which vLLM's engine knows the prompt."""
    request_id = sequence.request_id
    if request_id.startswith("cmpl-"):
        family = sequence.family
        prompt = sequence.index // (1 if family is None else family.n)
        return [request_id, f"{request_id}-{prompt}"]
    if request_id.startswith("resp_"):
        return [request_id, f"{request_id}_0"]
    return [request_id]
