"""Carries events over ZeroMQ, with libzmq's sockets in Twisted's reactor by txzmq."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import zmq
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from txzmq import ZmqConnection  # type: ignore[import-untyped]

from llmdsim.kvevents.transport import LINGER, Outcome, TransportError

log = Logger()

#: Milliseconds between attempts to connect: at first, and in the end.
FIRST_RETRY, LAST_RETRY = 100, 1000

#: Messages of a client of replay that may wait to be sent, and to be read.
ANSWER_HWM = 1000
REQUEST_HWM = 16

#: Bytes of a frame of a request; a client that sends more is cut off.
LONGEST_FRAME = 1024

#: Bytes of what somebody subscribes to, likewise: libzmq takes fifty times as many to remember it.
LONGEST_SUBSCRIPTION = 1 << 14

#: Messages read in one turn of the reactor.
READS = 32


class _Factory:
    """What txzmq's connections ask of their factory. Not to be made before a fork: it has a thread."""

    lingerPeriod = 0

    def __init__(self, reactor: Any) -> None:
        self.reactor = reactor
        self.context = zmq.Context()
        self.connections: set[ZmqConnection] = set()


class _Socket(ZmqConnection):  # type: ignore[misc] # txzmq has no types
    """A socket in the reactor; `received` gets its messages. Options are set before it has an address."""

    reconnectInterval = FIRST_RETRY
    reconnectIntervalMax = LAST_RETRY

    def __init__(
        self,
        factory: _Factory,
        kind: int,
        hwm: int,
        options: Mapping[zmq.SocketOption, int],
        received: Callable[[list[bytes]], object] | None = None,
    ) -> None:
        self.socketType = kind
        self.highWaterMark = hwm
        self._received = received
        self._again: Any = None
        super().__init__(factory)
        for option, value in options.items():
            self.socket.set(option, value)

    def doRead(self) -> None:
        """Read some messages. txzmq's own would go on for as long as clients send."""
        if self._again is not None:
            if self._again.active():
                self._again.cancel()
            self._again = None
        for _ in range(READS):
            # Asking for events is also what has libzmq see to new subscribers.
            if self.factory is None or not self.socket.get(zmq.EVENTS) & zmq.POLLIN:
                return
            message = self.socket.recv_multipart(zmq.NOBLOCK)
            if self._received is not None:
                try:
                    self._received(message)
                except Exception:
                    log.failure("KV events: a message was not understood")
        self.read_soon()

    def read_soon(self) -> None:
        """Look for messages in the next turn: the descriptor tells only once, and sending may take that."""
        if self._again is None:
            self._again = self.factory.reactor.callLater(0, self.doRead)

    def open(self, address: str, bind: bool) -> str:
        """Bind or connect; the address as it came out. Raises TransportError."""
        self.read_soon()
        try:
            if "[" in address or "::" in address:
                self.socket.set(zmq.IPV6, 1)
            if not bind:
                self.socket.connect(address)
                return address
            self.socket.bind(address)
            return self.socket.get(zmq.LAST_ENDPOINT).rstrip(b"\0").decode()  # type: ignore[no-any-return]
        except zmq.ZMQError as problem:
            raise TransportError(zmq.strerror(problem.errno or 0)) from None

    def close(self) -> None:
        if self._again is not None and self._again.active():
            self._again.cancel()
        self.shutdown()


class _Publishing:
    def __init__(self, factory: _Factory, hwm: int) -> None:
        # XPUB is a PUB that lets us know who listens.
        options = {
            zmq.XPUB_NODROP: 1,
            zmq.LINGER: int(LINGER * 1000),
            zmq.MAXMSGSIZE: LONGEST_SUBSCRIPTION,
        }
        self.socket = _Socket(factory, zmq.XPUB, hwm, options, self._subscribed)
        #: Beginnings of the topic that somebody listens to.
        self._prefixes: set[bytes] = set()
        self._topic = b""
        self._told: Callable[[bool], object] | None = None

    def send(self, frames: Sequence[bytes]) -> bool:
        socket = self.socket.socket
        try:
            socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            # It is with no subscriber yet; now it goes to all that have room, which alone would not be told.
            socket.set(zmq.XPUB_NODROP, 0)
            socket.send_multipart(frames, zmq.NOBLOCK)
            socket.set(zmq.XPUB_NODROP, 1)
            return False
        finally:
            if socket.get(zmq.EVENTS) & zmq.POLLIN:
                self.socket.read_soon()
        return True

    def watch(self, topic: bytes, told: Callable[[bool], object]) -> None:
        self._topic, self._told = topic, told
        told(False)

    def _subscribed(self, frames: list[bytes]) -> None:
        told = self._told
        kind, prefix = frames[0][:1], frames[0][1:]
        if told is None or not self._topic.startswith(prefix):
            return
        prefixes = self._prefixes
        listened = bool(prefixes)
        if kind == b"\1":
            prefixes.add(prefix)
        elif kind == b"\0":
            prefixes.discard(prefix)
        if listened != bool(prefixes):
            told(not listened)


class _Answering:
    def __init__(self, socket: _Socket) -> None:
        self._socket = socket

    def send(self, client: bytes, frames: Sequence[bytes]) -> Outcome:
        try:
            self._socket.socket.send_multipart((client, *frames), zmq.NOBLOCK)
        except zmq.Again:
            return "full"
        except zmq.ZMQError as problem:
            if problem.errno != zmq.EHOSTUNREACH:
                raise
            return "gone"
        finally:
            self._socket.read_soon()
        return "sent"


class _Attempts:
    """Tells how connecting goes, and ends it after `most` attempts in a row if that is not 0."""

    EVENTS = zmq.EVENT_CONNECTED | zmq.EVENT_CONNECT_RETRIED | zmq.EVENT_DISCONNECTED

    def __init__(self, factory: _Factory, socket: _Socket, address: str, most: int) -> None:
        self._socket = socket
        self._address = address
        self._most = most
        self._failed = 0
        self._lost = False
        watched = f"inproc://attempts-{id(self)}"
        socket.socket.monitor(watched, self.EVENTS)
        self.monitor = _Socket(factory, zmq.PAIR, 0, {}, self._happened)
        self.monitor.open(watched, bind=False)

    def _happened(self, frames: list[bytes]) -> None:
        event, _ = struct.unpack("=HI", frames[0])
        if event == zmq.EVENT_CONNECTED:
            self._failed, self._lost = 0, False
            log.info("KV events: connected to {address}", address=self._address)
        elif event == zmq.EVENT_DISCONNECTED:
            # What follows at once is the wait before the first attempt, which looks like one that failed.
            self._lost = True
            log.info("KV events: the connection to {address} is lost", address=self._address)
        elif self._lost:
            self._lost = False
        else:
            self._fail()

    def _fail(self) -> None:
        self._failed += 1
        if self._failed == self._most:
            log.warn(
                "KV events: {address} is left alone after {attempts} attempts to connect to it "
                "(--zmq-max-connect-attempts); events are published to nobody",
                address=self._address,
                attempts=self._failed,
            )
            self._socket.socket.disconnect(self._address)
        elif self._failed == 1:
            log.info("KV events: nobody listens at {address} yet; trying on", address=self._address)


class TxzmqTransport:
    """`Transport` over libzmq."""

    def __init__(self, reactor: Any) -> None:
        self._factory = _Factory(reactor)

    def publish(self, address: str, *, bind: bool, hwm: int, attempts: int) -> tuple[_Publishing, str]:
        publishing = _Publishing(self._factory, hwm)
        if not bind:
            _Attempts(self._factory, publishing.socket, address, attempts)
        return publishing, publishing.socket.open(address, bind)

    def answer(self, address: str, received: Callable[[list[bytes]], None]) -> tuple[_Answering, str]:
        options = {
            zmq.ROUTER_MANDATORY: 1,
            zmq.RCVHWM: REQUEST_HWM,
            zmq.MAXMSGSIZE: LONGEST_FRAME,
        }
        socket = _Socket(self._factory, zmq.ROUTER, ANSWER_HWM, options, received)
        return _Answering(socket), socket.open(address, bind=True)

    def close(self) -> Deferred[None]:
        for socket in list(self._factory.connections):
            socket.close()
        # This waits for what is still to leave.
        return deferToThread(self._factory.context.term)
