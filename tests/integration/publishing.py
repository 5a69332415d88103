"""A process that does nothing but publish over ZeroMQ, told what by lines on its standard input.

Run with `address bind|connect hwm attempts replay-address`; "-" is no replay. Lines are `N SIZE`, which
publishes N batches of SIZE bytes, and `end`; each is answered with a line of JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence

from twisted.internet import reactor, stdio
from twisted.internet.task import LoopingCall
from twisted.logger import globalLogBeginner, textFileLogObserver
from twisted.protocols.basic import LineOnlyReceiver

from llmdsim.config import Config
from llmdsim.engine.kvcache.records import Cleared, Record
from llmdsim.kvevents.counts import EventCounts
from llmdsim.kvevents.faults import EventFaults
from llmdsim.kvevents.publisher import Publisher
from llmdsim.kvevents.replay import Replay
from llmdsim.kvevents.txzmq_transport import TxzmqTransport
from llmdsim.kvevents.window import Window

TOPIC = b"kv@10.0.0.1:8000@m"

#: Seconds between two looks at how late the reactor is.
BEAT = 0.002


class Told(LineOnlyReceiver):
    """What this process is told, and what it does."""

    delimiter = b"\n"

    def __init__(self, address: str, how: str, hwm: str, attempts: str, replay: str) -> None:
        self.counts = EventCounts()
        window = Window(10_000)
        self.transport_ = TxzmqTransport(reactor)
        socket, self.address = self.transport_.publish(
            address, bind=how == "bind", hwm=int(hwm), attempts=int(attempts)
        )
        self.listened = False
        socket.watch(TOPIC, self.hear)
        answers = Replay(window, TOPIC, self.counts, reactor)
        if replay != "-":
            answers.socket, _ = self.transport_.answer(replay, answers.received)
        faults = EventFaults(Config(model="m"), self.counts)
        self.size = 0
        self.publisher = Publisher(self.encode, TOPIC, socket, window, faults, self.counts, reactor)
        self.latest = 0.0
        self.beats = LoopingCall(self.beat)
        self.beat_at = time.monotonic()

    def hear(self, listened: bool) -> None:
        self.listened = listened

    def beat(self) -> None:
        now = time.monotonic()
        self.latest = max(self.latest, now - self.beat_at - BEAT)
        self.beat_at = now

    def encode(self, records: Sequence[Record]) -> bytes:
        return b"x" * self.size

    def connectionMade(self) -> None:
        self.beats.start(BEAT)
        self.tell(address=self.address)

    def lineReceived(self, line: bytes) -> None:
        if line == b"end":
            began = time.monotonic()
            closed = self.transport_.close()
            closed.addCallback(lambda _: self.tell(closed=time.monotonic() - began))
            closed.addCallback(lambda _: reactor.callLater(0.1, reactor.stop))  # type: ignore[attr-defined]
            return
        number, self.size = map(int, line.split())
        began = time.monotonic()
        for _ in range(number):
            self.publisher.publish([Cleared()])
        took = time.monotonic() - began
        self.tell(
            took=took,
            batches=self.counts.batches,
            overflows=self.counts.overflows,
            replays=self.counts.replays,
            latest=self.latest,
            listened=self.listened,
        )
        self.latest, self.beat_at = 0.0, time.monotonic()

    def tell(self, **told: object) -> None:
        self.sendLine(json.dumps(told).encode())


if __name__ == "__main__":
    globalLogBeginner.beginLoggingTo([textFileLogObserver(sys.stderr)], redirectStandardIO=False)
    stdio.StandardIO(Told(*sys.argv[1:]))  # type: ignore[no-untyped-call]
    reactor.run()  # type: ignore[attr-defined]
