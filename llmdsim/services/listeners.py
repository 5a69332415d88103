"""Opens the ports: of `--port`, `--grpc-port`, `--listen` and `--admin-listen`, and those of systemd."""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet import error
from twisted.internet.address import UNIXAddress
from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.endpoints import (
    AdoptedStreamServerEndpoint,
    TLSMemoryBIOFactory,
    UNIXServerEndpoint,
    serverFromString,
)
from twisted.internet.interfaces import IListeningPort
from twisted.internet.protocol import Factory
from twisted.logger import Logger
from twisted.python.failure import Failure

from llmdsim.config import Config
from llmdsim.services.start_failure import StartFailure, give_up_start
from llmdsim.services.tls import TLS
from llmdsim.services.unix_socket import adopt_unix_socket, remove_own_remains
from llmdsim.wire.transport import BACKLOG, use_direct_send

log = Logger()


class Listeners(Service):
    """The listening ports of a rank's sites. `inherited` are descriptors of sockets that listen already.

    The first of `sites` is the public one; the second, where there is one, is for `--admin-listen`.
    `foreground` decides how a failure ends the process. With `tls` all are encrypted but Unix sockets.
    """

    def __init__(
        self,
        config: Config,
        sites: Sequence[Factory],
        inherited: Sequence[int],
        reactor: Any,
        foreground: bool,
        tls: TLS | None = None,
    ) -> None:
        self._config = config
        self._site, self._admin_site = sites[0], sites[-1]
        self._inherited = inherited
        self._reactor = reactor
        self._foreground = foreground
        self._tls = tls
        self.ports: list[IListeningPort] = []
        self.admin_ports: list[IListeningPort] = []
        #: Where these are or were, as Twisted tells it.
        self.addresses: list[Any] = []
        self.admin_addresses: list[Any] = []
        #: Those of them where TLS is spoken.
        self.encrypted: set[Any] = set()

    def privilegedStartService(self) -> None:
        super().privilegedStartService()  # type: ignore[no-untyped-call]
        try:
            raise_file_limit()
            self._open()
        except StartFailure as failure:
            for port in self._all:
                port.stopListening()
            give_up_start(failure, self._foreground)
        for port in self._all:
            use_direct_send(port)
        self.addresses = [port.getHost() for port in self.ports]
        self.admin_addresses = [port.getHost() for port in self.admin_ports]
        self.encrypted = {port.getHost() for port in self._all if _encrypts(port)}

    @property
    def tcp_port(self) -> int | None:
        """That of the first public port that is no Unix socket."""
        ports = [address.port for address in self.addresses if not isinstance(address, UNIXAddress)]
        return ports[0] if ports else None

    @property
    def _all(self) -> list[IListeningPort]:
        return self.ports + self.admin_ports

    def stopService(self) -> Deferred[Any]:
        """Fires when all ports are closed, and with them the files of Unix sockets gone."""
        super().stopService()  # type: ignore[no-untyped-call]
        return self.close()

    def close(self) -> Deferred[Any]:
        """Take no more connections; fires when all ports are closed."""
        ports = self._all
        self.ports, self.admin_ports = [], []
        return gatherResults([maybeDeferred(port.stopListening) for port in ports])

    def _open(self) -> None:
        config = self._config
        for descriptor in self._inherited:
            self._adopt(descriptor)
        for description in config.listen:
            self.ports.append(self._listen("--listen", description, self._site))
        if not self._inherited and (not config.listen or "port" in config.given):
            self._open_port(config.host, config.port)
        if config.grpc_port:
            self._open_port(config.host, config.grpc_port)
        for description in config.admin_listen:
            self.admin_ports.append(self._listen("--admin-listen", description, self._admin_site))

    def _adopt(self, descriptor: int) -> None:
        what = f"socket {descriptor} of systemd"
        try:
            with socket.socket(fileno=os.dup(descriptor)) as probe:
                family = probe.family
        except OSError as problem:
            raise StartFailure(f"{what}: {_short(problem)}") from None
        if family == socket.AF_UNIX:
            with socket.socket(fileno=descriptor) as opened:
                opened.setblocking(False)
                self.ports.append(adopt_unix_socket(self._reactor, descriptor, self._site))
            return
        endpoint = AdoptedStreamServerEndpoint(self._reactor, descriptor, family)  # type: ignore[no-untyped-call]
        opened = endpoint.listen(self._over_tcp(self._site))  # type: ignore[no-untyped-call]
        self.ports.append(_result(opened, what))

    def _listen(self, flag: str, description: str, site: Factory) -> IListeningPort:
        what = f"{flag} {description}"
        try:
            endpoint = serverFromString(self._reactor, description)  # type: ignore[no-untyped-call]
            if isinstance(endpoint, UNIXServerEndpoint):
                remove_own_remains(endpoint._address)
            opened = endpoint.listen(self._over_tcp(site) if _is_plain_tcp(description) else site)
        except Exception as problem:
            raise StartFailure(f"{what}: not an endpoint: {_short(problem)}") from None
        return _result(opened, what)

    def _open_port(self, host: str, port: int) -> None:
        where = f"port {port}" if not host else f"{host} port {port}"
        # The IPv6 wildcard takes IPv4 as well; a machine without IPv6 has the other one.
        for interface in [host] if host else ["::", "0.0.0.0"]:
            try:
                site = self._over_tcp(self._site)
                opened = self._reactor.listenTCP(port, site, backlog=BACKLOG, interface=interface)
            except error.CannotListenError as problem:
                cause = problem.socketError
                if not host and interface == "::" and _no_ipv6(cause):
                    continue
                raise StartFailure(f"cannot listen on {where}: {_short(cause)}") from None
            except OSError as problem:
                raise StartFailure(f"cannot listen on {where}: {_short(problem)}") from None
            self.ports.append(opened)
            return

    def _over_tcp(self, site: Factory) -> Factory:
        return site if self._tls is None else self._tls.encrypted(site)


def _result(opened: Deferred[IListeningPort], what: str) -> IListeningPort:
    """The port of an endpoint, all of which listen at once."""
    outcome: list[Any] = []
    opened.addBoth(outcome.append)
    if not outcome:
        raise StartFailure(f"{what}: this kind of endpoint does not listen at once")
    port = outcome[0]
    if isinstance(port, Failure):
        cause = getattr(port.value, "socketError", port.value)
        raise StartFailure(f"{what}: {_short(cause)}")
    if not IListeningPort.providedBy(port):
        raise StartFailure(f"{what}: this kind of endpoint has no port")
    return port


def _is_plain_tcp(description: str) -> bool:
    """Whether an endpoint takes TCP connections, and leaves encryption to us."""
    kind, _, rest = description.removeprefix("haproxy:").partition(":")
    return kind not in ("unix", "ssl", "tls") and "domain=UNIX" not in rest


def _encrypts(port: Any) -> bool:
    # None where there is nothing to encrypt with.
    return TLSMemoryBIOFactory is not None and isinstance(getattr(port, "factory", None), TLSMemoryBIOFactory)


def _no_ipv6(cause: object) -> bool:
    return isinstance(cause, OSError) and cause.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def _short(cause: object) -> str:
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    return str(cause) or type(cause).__name__


def raise_file_limit() -> None:
    """Allow as many open connections as the system does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError) as problem:
            log.info("open files stay limited to {soft}: {problem}", soft=soft, problem=problem)
