"""A transport in memory: what is sent is kept, and queues are full when a test says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred, succeed

from llmdsim.kvevents.transport import Outcome, TransportError


class MemorySocket:
    """Both kinds of sockets; `room` is how many messages it takes yet (of each client), None all."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, ...]] = []
        self.answers: dict[bytes, list[tuple[bytes, ...]]] = {}
        self.room: dict[bytes, int] = {}
        self.gone: set[bytes] = set()
        self.full = False

    def publish(self, frames: Sequence[bytes]) -> bool:
        self.sent.append(tuple(frames))
        return not self.full

    def answer(self, client: bytes, frames: Sequence[bytes]) -> Outcome:
        if client in self.gone:
            return "gone"
        if self.room.get(client, 1) <= 0:
            return "full"
        if client in self.room:
            self.room[client] -= 1
        self.answers.setdefault(client, []).append(tuple(frames))
        return "sent"


class MemoryPublishing(MemorySocket):
    send = MemorySocket.publish

    def watch(self, topic: bytes, told: Callable[[bool], object]) -> None:
        self.told = told
        told(True)


class MemoryAnswering(MemorySocket):
    send = MemorySocket.answer


class MemoryTransport:
    """`Transport`; addresses in `taken` cannot be used."""

    def __init__(self, taken: Sequence[str] = ()) -> None:
        self.taken = taken
        self.asked: list[tuple[object, ...]] = []
        self.publishing = MemoryPublishing()
        self.answering = MemoryAnswering()
        self.received: Callable[[list[bytes]], None]
        self.closed = False

    def publish(self, address: str, *, bind: bool, hwm: int, attempts: int) -> tuple[MemoryPublishing, str]:
        self._ask("publish", address, bind, hwm, attempts)
        return self.publishing, address.replace(":0", ":4321")

    def answer(self, address: str, received: Callable[[list[bytes]], None]) -> tuple[MemoryAnswering, str]:
        self._ask("answer", address)
        self.received = received
        return self.answering, address

    def close(self) -> Deferred[None]:
        self.closed = True
        return succeed(None)

    def _ask(self, *asked: object) -> None:
        self.asked.append(asked)
        if asked[1] in self.taken:
            raise TransportError("Address already in use")


def numbers(messages: Sequence[tuple[bytes, ...]]) -> list[int]:
    """The sequence numbers of messages, which stand before their payloads."""
    return [int.from_bytes(message[-2], "big") for message in messages]
