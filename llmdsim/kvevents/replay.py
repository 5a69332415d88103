"""Answers requests for batches that were sent before, a few at a time and without waiting for any client."""

from __future__ import annotations

from collections import deque
from typing import Any

from twisted.logger import Logger

from llmdsim.kvevents.counts import EventCounts
from llmdsim.kvevents.transport import Answering
from llmdsim.kvevents.window import Batch, Window

log = Logger()

#: What ends an answer, in place of a number: -1 in 8 bytes.
END = b"\xff" * 8

#: Batches sent in one turn of the reactor: about a third of a millisecond.
SLICE = 32

#: Seconds after which a client whose queue was full is tried again, and after which it is given up.
RETRY = 0.02
PATIENCE = 10.0

#: Clients that are answered at the same time, and requests of one that may wait for its answer; others are
#: not heard.
MOST_CLIENTS = 64
MOST_WAITING = 4


class _Answer:
    """What a client is still to get: `batches` from `position` on, and then what it asked for meanwhile."""

    __slots__ = ("batches", "client", "position", "progress", "waiting")

    def __init__(self, client: bytes, batches: list[Batch], now: float) -> None:
        self.client = client
        self.batches = batches
        self.position = 0
        self.waiting: deque[int] = deque()
        #: When it was last sent anything.
        self.progress = now


class Replay:
    """Sends what `window` holds to whoever asks for it.

    `socket` is to be set before the first request. `clock` is an `IReactorTime`.
    """

    def __init__(self, window: Window, topic: bytes, counts: EventCounts, clock: Any) -> None:
        self.socket: Answering
        self._window = window
        self._topic = topic
        self._counts = counts
        self._clock = clock
        self._answers: dict[bytes, _Answer] = {}
        self._ready: deque[_Answer] = deque()
        self._stalled: list[_Answer] = []
        self._turn_call: Any = None
        self._retry_call: Any = None

    def received(self, frames: list[bytes]) -> None:
        """Take a request: the client, a delimiter, and the first number in 8 bytes. All else is ignored."""
        if len(frames) != 3 or len(frames[2]) < 8:
            return
        client, start = frames[0], int.from_bytes(frames[2][:8], "big")
        known = self._answers.get(client)
        if known is not None:
            if len(known.waiting) < MOST_WAITING:
                known.waiting.append(start)
            else:
                self._refuse("a client asks again and again without waiting for its answer")
        elif len(self._answers) < MOST_CLIENTS:
            answer = _Answer(client, self._window.since(start), self._clock.seconds())
            self._answers[client] = answer
            self._ready.append(answer)
            self._arm()
        else:
            self._refuse(f"{MOST_CLIENTS} clients are being answered already")

    def stop(self) -> None:
        """Give up whatever is under way."""
        for call in (self._turn_call, self._retry_call):
            if call is not None and call.active():
                call.cancel()
        self._turn_call = self._retry_call = None
        self._answers.clear()
        self._ready.clear()
        self._stalled.clear()

    def _refuse(self, why: str) -> None:
        self._counts.refused_replays += 1
        log.debug("KV events: a request for replay is ignored: {why}", why=why)

    def _arm(self) -> None:
        if self._ready and self._turn_call is None:
            self._turn_call = self._clock.callLater(0, self._turn)
        if self._stalled and self._retry_call is None:
            self._retry_call = self._clock.callLater(RETRY, self._retry)

    def _turn(self) -> None:
        self._turn_call = None
        answer = self._ready.popleft()
        match self._go_on(answer):
            case "gone":
                self._counts.refused_replays += 1 + len(answer.waiting)
                del self._answers[answer.client]
            case "full":
                self._stalled.append(answer)
            case "more":
                self._ready.append(answer)
            case _:
                del self._answers[answer.client]
        self._arm()

    def _go_on(self, answer: _Answer) -> str:
        """Send a few batches; says whether there are more, none, or that the client cannot be sent any."""
        client, batches, send = answer.client, answer.batches, self.socket.send
        for _ in range(SLICE):
            if answer.position < len(batches):
                number, payload = batches[answer.position]
                outcome = send(client, (b"", self._topic, number.to_bytes(8, "big"), payload))
            else:
                outcome = send(client, (b"", b"", END, b""))
            if outcome != "sent":
                return outcome
            answer.progress = self._clock.seconds()
            answer.position += 1
            if answer.position > len(batches):
                self._counts.replays += 1
                if not answer.waiting:
                    return "done"
                answer.batches = batches = self._window.since(answer.waiting.popleft())
                answer.position = 0
        return "more"

    def _retry(self) -> None:
        self._retry_call = None
        overdue = self._clock.seconds() - PATIENCE
        for answer in self._stalled:
            if answer.progress > overdue:
                self._ready.append(answer)
                continue
            self._counts.refused_replays += 1 + len(answer.waiting)
            del self._answers[answer.client]
            log.warn(
                "KV events: a client does not read its replay and is given up after {sent} of {all} batches",
                sent=answer.position,
                all=len(answer.batches),
            )
        self._stalled.clear()
        self._arm()
