"""How answers to calls are made up, as far as faults need to know."""

from __future__ import annotations

from llmdsim.rpc.call import fail
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.web.errors import ApiError
from llmdsim.wire.grpc import OK_LINES, PREFIX
from llmdsim.wire.request import Request

#: What no message begins with: there is no field 0.
_NO_FIELD = b"\x07"


class MessageForm:
    """One message, or with `streamed` one for each token and, for each choice, one that completes it."""

    def __init__(self, streamed: bool) -> None:
        self._streamed = streamed

    def is_stream(self, request: Request, head: bytes, data: bytes) -> bool:
        return self._streamed and (bool(data) or not self.is_error(request))

    def is_error(self, request: Request) -> bool:
        return OK_LINES not in request.trailers

    def events(self, data: bytes) -> list[bytes]:
        found = []
        while data:
            end = PREFIX + int.from_bytes(data[1:PREFIX], "big")
            found.append(data[:end])
            data = data[end:]
        return found

    def carries_token(self, event: bytes) -> bool:
        return pb.GenerateResponse.FromString(event[PREFIX:]).HasField("chunk")

    def is_last(self, event: bytes) -> bool:
        return pb.GenerateResponse.FromString(event[PREFIX:]).HasField("complete")

    def garbled(self, data: bytes) -> bytes:
        # The first message of those there are.
        return data[:PREFIX] + _NO_FIELD + data[PREFIX + 1 :] if data else data

    def fail(self, request: Request, error: ApiError) -> None:
        fail(request, error)
