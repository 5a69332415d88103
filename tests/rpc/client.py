"""A gRPC client in memory: h2's own, over a connection to a tests.web.rig.RankRig."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar
from urllib.parse import unquote

from google.protobuf.message import Message
from h2.errors import ErrorCodes

from llmdsim.wire.grpc import PREFIX, Code, frame
from tests.web.rig import RankRig
from tests.wire.http2.client import Answer, H2Client

SERVICE = "vllm.grpc.engine.VllmEngine"

M = TypeVar("M", bound=Message)


@dataclass
class Call(Generic[M]):
    """One call, as far as its client has read; `messages` are those of the answer that have come whole."""

    client: RpcClient
    stream_id: int
    answers: type[M]

    @property
    def answer(self) -> Answer:
        return self.client.h2.answers[self.stream_id]

    @property
    def headers(self) -> dict[bytes, bytes]:
        """The initial metadata; of a call that failed at once, its trailers too."""
        return self.answer.headers

    @property
    def trailers(self) -> dict[bytes, bytes]:
        """What came behind the messages, or in their place."""
        return self.answer.trailers or self.answer.headers

    @property
    def messages(self) -> list[M]:
        return [self.answers.FromString(data) for data in self.data]

    @property
    def data(self) -> list[bytes]:
        """The messages as bytes."""
        found: list[bytes] = []
        rest = self.answer.body
        while len(rest) >= PREFIX:
            assert rest[0] == 0, "a compressed message"
            end = PREFIX + int.from_bytes(rest[1:PREFIX], "big")
            if len(rest) < end:
                return found
            found.append(rest[PREFIX:end])
            rest = rest[end:]
        return found

    @property
    def ended(self) -> bool:
        return self.answer.ended or self.answer.reset is not None

    @property
    def code(self) -> Code:
        """The status; of a stream that was reset without one, as gRPC's clients have it."""
        text = self.trailers.get(b"grpc-status")
        if text is not None:
            return Code(int(text))
        assert self.answer.reset is not None, "no status yet"
        return Code.UNAVAILABLE if self.answer.reset == ErrorCodes.REFUSED_STREAM else Code.INTERNAL

    @property
    def message(self) -> str:
        """The status's message."""
        return unquote(self.trailers.get(b"grpc-message", b"").decode())

    def ok(self) -> list[M]:
        """The messages of a call that has ended well."""
        assert self.ended, "not over"
        assert self.code is Code.OK, (self.code, self.message)
        return self.messages

    def send(self, message: Message, end: bool = False) -> None:
        """Send a further message, or with `end` the last."""
        self.client.h2.send(self.stream_id, frame(message.SerializeToString()), end)
        self.client.read()

    def close(self) -> None:
        """There are no further messages."""
        self.client.h2.h2.end_stream(self.stream_id)
        self.client.read()

    def cancel(self) -> None:
        """End the call from the client's side."""
        self.client.h2.h2.reset_stream(self.stream_id, ErrorCodes.CANCEL)
        self.client.read()


class RpcClient:
    """One connection. `read` takes in what the server has sent meanwhile, as time is moved by the rig.

    With `acknowledges` False, or a small `window`, it is a client that does not read.
    """

    def __init__(self, rig: RankRig, acknowledges: bool = True, window: int = 65535) -> None:
        self.rig = rig
        self.h2 = H2Client(rig, rig.connect(), acknowledges, window)  # type: ignore[arg-type]

    def read(self) -> None:
        """Read what has come."""
        self.h2.flush()

    def wait(self, seconds: float = 0.0) -> None:
        """Let time pass, and read what comes meanwhile."""
        self.rig.clock.advance(seconds)
        self.read()

    def call(
        self,
        path: str,
        message: Message | bytes | None,
        answers: type[M],
        *,
        metadata: Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]] = (),
        timeout: str | None = None,
        end: bool = True,
    ) -> Call[M]:
        """Begin a call of a method of VllmEngine, or of `/package.Service/Method`.

        `message` may be bytes, which are sent as a message, or None for none yet. `timeout` is the header's
        text, "50m" for instance.
        """
        headers = [(b"content-type", b"application/grpc"), (b"te", b"trailers")]
        if timeout is not None:
            headers.append((b"grpc-timeout", timeout.encode()))
        headers += metadata.items() if isinstance(metadata, Mapping) else metadata
        full = path if path.startswith("/") else f"/{SERVICE}/{path}"
        stream_id = self.h2.begin(full.encode(), b"POST", headers, end=False)
        if message is not None:
            data = message if isinstance(message, bytes) else message.SerializeToString()
            self.h2.send(stream_id, frame(data), end)
        elif end:
            self.h2.h2.end_stream(stream_id)
        self.read()
        return Call(self, stream_id, answers)

    def finish(self, call: Call[M], step: float = 0.05, most: int = 2000) -> Call[M]:
        """Let time pass until the call is over."""
        for _ in range(most):
            if call.ended:
                return call
            self.wait(step)
        raise AssertionError("never answered")

    def unary(
        self,
        path: str,
        message: Message | bytes,
        answers: type[M],
        *,
        metadata: Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]] = (),
    ) -> M:
        """The one message a method answers with, however long it takes."""
        (found,) = self.finish(self.call(path, message, answers, metadata=metadata)).ok()
        return found
