"""Listening ports that the main process opens and the process of a rank serves."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory

from llmdsim.config import Config
from llmdsim.services.listeners import Listeners
from llmdsim.services.messages import FIRST_SOCKET
from llmdsim.services.tls import TLS
from llmdsim.services.unix_socket import adopt_unix_socket


class HeldListeners(Listeners):
    """The ports of a rank that has a process of its own: open from the start, and served there alone.

    Who connects before that process is up waits in the kernel's queue.
    """

    def __init__(
        self,
        config: Config,
        inherited: Sequence[int],
        reactor: Any,
        foreground: bool,
        tls: TLS | None = None,
    ) -> None:
        super().__init__(config, [Factory()], inherited, reactor, foreground, tls)
        self.config = config
        self.inherited = len(inherited)

    def privilegedStartService(self) -> None:
        super().privilegedStartService()
        for port in self._all:
            port.stopReading()  # type: ignore[attr-defined]

    @property
    def sockets(self) -> list[int]:
        """The descriptors, in the order in which they were opened."""
        return [port.fileno() for port in self._all]  # type: ignore[attr-defined]

    def hand_over(self) -> None:
        """Give our hold on them up: they end with the process that has them now."""
        for port in self._all:
            # Not `stopListening`, which would stop it there too.
            port.socket.close()  # type: ignore[attr-defined]

    def close(self) -> Deferred[Any]:
        """Remove what is left of Unix sockets."""
        for port in self._all:
            lock = getattr(port, "lockFile", None)
            if lock is not None:
                with suppress(OSError):
                    os.unlink(lock.name.removesuffix(b".lock"))
                lock.unlock()
        self.ports, self.admin_ports = [], []
        return succeed(None)


class HandedOver:
    """A reactor whose ports another process has opened: each asked for is the next of `descriptors`."""

    def __init__(self, reactor: Any, descriptors: Sequence[int]) -> None:
        self._reactor = reactor
        self._descriptors = iter(descriptors)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reactor, name)

    def listenTCP(
        self, port: int, factory: Factory, backlog: int = 50, interface: str = ""
    ) -> IListeningPort:
        return self._adopt(factory)

    def listenUNIX(
        self, address: str, factory: Factory, backlog: int = 50, mode: int = 0o666, wantPID: int = 0
    ) -> IListeningPort:
        with self._next() as opened:
            return adopt_unix_socket(self._reactor, opened.fileno(), factory)

    def listenSSL(
        self, port: int, factory: Factory, contextFactory: Any, backlog: int = 50, interface: str = ""
    ) -> IListeningPort:
        from twisted.protocols.tls import TLSMemoryBIOFactory  # noqa: PLC0415 - as slow as OpenSSL

        return self._adopt(TLSMemoryBIOFactory(contextFactory, False, factory))

    def _adopt(self, factory: Any) -> IListeningPort:
        with self._next() as opened:
            port: IListeningPort = self._reactor.adoptStreamPort(opened.fileno(), opened.family, factory)
        return port

    def _next(self) -> socket.socket:
        # A port that adopts it has a descriptor of its own.
        return socket.socket(fileno=next(self._descriptors))


def handed_over(reactor: Any, sockets: int, inherited: int) -> tuple[HandedOver, list[int]]:
    """The reactor to open a rank's ports with in its own process, and the descriptors that systemd opened."""
    descriptors = range(FIRST_SOCKET, FIRST_SOCKET + sockets)
    return HandedOver(reactor, descriptors[inherited:]), list(descriptors[:inherited])
