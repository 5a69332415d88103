"""Consumers of KV events, by pyzmq: one that subscribes, and one that asks for what it missed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, NamedTuple

import msgspec
import zmq

#: Seconds to wait for a message that must come, and to see that none comes.
PATIENCE = 10.0
QUIET = 0.3

END = b"\xff" * 8


class Batch(NamedTuple):
    """One message as a consumer sees it."""

    topic: bytes
    number: int
    payload: bytes

    @property
    def document(self) -> Any:
        """Time, events and rank."""
        return msgspec.msgpack.decode(self.payload)

    @property
    def events(self) -> list[Any]:
        events: list[Any] = self.document[1]
        return events


def batch(frames: list[bytes]) -> Batch:
    """Of the three frames of a message."""
    topic, number, payload = frames
    assert len(number) == 8
    return Batch(topic, int.from_bytes(number, "big"), payload)


class Socket:
    """One socket in a context of its own; use it in a `with`."""

    def __init__(self, kind: int, address: str, bind: bool = False, **options: int | bytes) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(kind)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 20)
        if "[" in address:
            self.socket.setsockopt(zmq.IPV6, 1)
        for name, value in options.items():
            self.socket.setsockopt(getattr(zmq, name), value)
        (self.socket.bind if bind else self.socket.connect)(address)

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close(0)
        self.context.term()

    def receive(self, patience: float = PATIENCE) -> list[bytes]:
        assert self.socket.poll(int(patience * 1000)), f"nothing in {patience} s"
        frames: list[bytes] = self.socket.recv_multipart()
        return frames


class Subscriber(Socket):
    """Takes batches whose topic begins with `topic`."""

    def __init__(self, address: str, bind: bool = False, topic: bytes = b"kv@", **options: int) -> None:
        super().__init__(zmq.SUB, address, bind, SUBSCRIBE=topic, **options)

    def next(self, patience: float = PATIENCE) -> Batch:
        """The next batch, which must come."""
        return batch(self.receive(patience))

    def take(self, number: int) -> list[Batch]:
        """So many batches."""
        return [self.next() for _ in range(number)]

    def rest(self, quiet: float = QUIET) -> list[Batch]:
        """All that come until none has come for so long."""
        found = []
        while self.socket.poll(int(quiet * 1000)):
            found.append(batch(self.socket.recv_multipart()))
        return found


class Replayer(Socket):
    """Asks for batches that were sent before."""

    def __init__(self, address: str, **options: int) -> None:
        super().__init__(zmq.DEALER, address, **options)

    def ask(self, start: int) -> None:
        self.socket.send_multipart([b"", start.to_bytes(8, "big")])

    def answer(self) -> Iterator[Batch]:
        """The batches of one answer."""
        while True:
            delimiter, *frames = self.receive()
            assert delimiter == b""
            if frames[1] == END:
                assert frames == [b"", END, b""]
                return
            yield batch(frames)

    def replay(self, start: int) -> list[Batch]:
        self.ask(start)
        return list(self.answer())


def joined(
    subscriber: Subscriber, provoke: Callable[[], Callable[[Batch], bool]], patience: float = PATIENCE
) -> list[Batch]:
    """Call `provoke` until the subscriber gets anything, since joining takes a moment, and then once more.

    Returns what it got, up to the batch of the last call, which is the one that `provoke` gave a test for.
    """
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        provoke()
        if subscriber.socket.poll(50):
            is_last = provoke()
            found = [subscriber.next()]
            while not is_last(found[-1]):
                found.append(subscriber.next())
            return found
    raise AssertionError(f"nothing in {patience} s")
