"""What is asked of the library that carries events, so that another one can take its place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from twisted.internet.defer import Deferred

#: What came of sending to one client: it left, the client's queue is full, or the client is not there.
Outcome = Literal["sent", "full", "gone"]

#: Seconds that messages for subscribers may take to leave at the end.
LINGER = 1.0


class TransportError(Exception):
    """An address cannot be used; `str()` says why, in one line."""


class Publishing(Protocol):
    """Sends to all subscribers, and never waits for one."""

    def send(self, frames: Sequence[bytes]) -> bool:
        """Whether there was room in the queue of each subscriber.

        One without room does not get this message, nor those after it until it has read half of its queue.
        """

    def watch(self, topic: bytes, told: Callable[[bool], object]) -> None:
        """Have `told` called when somebody begins to listen to `topic`, and when nobody does any more."""


class Answering(Protocol):
    """Answers clients one by one, and never waits for one."""

    def send(self, client: bytes, frames: Sequence[bytes]) -> Outcome:
        """Send one message to `client`, unless its queue is full."""


class Transport(Protocol):
    """Sockets of one rank. `publish` and `answer` raise TransportError."""

    def publish(self, address: str, *, bind: bool, hwm: int, attempts: int) -> tuple[Publishing, str]:
        """A socket for subscribers, `hwm` messages of each of which may wait, and its address as it came out.

        With `bind` it waits for them at `address`; else it connects to it, again and again, but for
        `attempts` times in a row at most if that is not 0.
        """

    def answer(self, address: str, received: Callable[[list[bytes]], None]) -> tuple[Answering, str]:
        """A socket that waits at `address` for requests, and its address as it came out.

        `received` is given the frames of each, that of the client first.
        """

    def close(self) -> Deferred[None]:
        """Close all sockets; fires when what was sent has left, or after LINGER seconds."""
