"""The end of start-up: what was started is told, and new requests are welcome."""

from __future__ import annotations

import gc
import json
import shlex
import sys
from collections.abc import Callable, Sequence
from typing import Any

from twisted.application.service import Service
from twisted.internet.address import UNIXAddress
from twisted.internet.defer import Deferred, succeed
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger

from llmdsim.config import OPTIONS, shown
from llmdsim.logs.lines import JsonLines
from llmdsim.services.rank import Rank
from llmdsim.web.loading import Loading

log = Logger()

#: New objects after which Python's collector looks at them; its own 700 is for programs with more cycles.
YOUNG = 5000


class Readiness(Service):
    """Marks the rank ready once the reactor runs, its dataset is open and `--startup-duration` is over.

    Then it prints where the rank is and a request to try. `clock` is an `IReactorTime`; `dataset` fires when
    there is no dataset to wait for any more.
    """

    def __init__(
        self,
        rank: Rank,
        clock: Any,
        ports: Callable[[], Sequence[IListeningPort]],
        reactor: Any,
        admin_ports: Callable[[], Sequence[IListeningPort]] = tuple,
        dataset: Deferred[None] | None = None,
    ) -> None:
        self._rank = rank
        self._config = rank.config
        self._context = rank.context
        self._clock = clock
        self._ports = ports
        self._admin_ports = admin_ports
        self._reactor = reactor
        self._dataset = succeed(None) if dataset is None else dataset
        #: When start-up is over at the earliest.
        self._until = 0.0
        self._loaded: Any = None

    def startService(self) -> None:
        super().startService()  # type: ignore[no-untyped-call]
        config = self._config
        log.info("configuration: {shown}", shown=json.dumps(shown(config)))
        idle = [
            f"--{option.name}"
            for option in OPTIONS.values()
            if option.field in config.given and not option.effective
        ]
        if idle:
            log.warn("not yet effective in this version: {names}", names=" ".join(idle))
        if config.speed != 1.0:
            log.info("all latencies run {speed:g} times faster than configured", speed=config.speed)
        if config.ignored_flags:
            names = " ".join(config.ignored_flags)
            log.warn("accepted for vLLM's sake, without effect here: {names}", names=names)
        self._reactor.callWhenRunning(self._open)

    def stopService(self) -> None:
        super().stopService()  # type: ignore[no-untyped-call]
        if self._loaded is not None and self._loaded.active():
            self._loaded.cancel()

    def _open(self) -> None:
        # Nothing made so far will go away, so the collector need not look at it again.
        gc.collect()
        gc.freeze()
        # Requests leave hardly any garbage in cycles; each look for it costs, now a fifth of a millisecond.
        gc.set_threshold(YOUNG)
        addresses: list[Any] = [port.getHost() for port in self._ports()]
        tcp_ports = [address.port for address in addresses if not isinstance(address, UNIXAddress)]
        if tcp_ports:
            self._context.serve_on(tcp_ports[0])
        for port in self._admin_ports():
            log.info("administration at {where}", where=_where(port.getHost()))
        self._until = self._clock.seconds() + self._config.startup_duration / self._config.speed
        if not self._dataset.called:
            self._hold()
        self._dataset.addCallback(lambda _: self._load(addresses))
        self._dataset.addErrback(lambda failure: log.failure("start-up failed", failure))

    def _load(self, addresses: Sequence[Any]) -> None:
        seconds = self._until - self._clock.seconds()
        if seconds <= 0:
            self._ready(addresses)
            return
        where = ", ".join(_where(address) for address in addresses)
        log.info("loading for {seconds:g} seconds at {where}", seconds=seconds, where=where)
        self._loaded = self._clock.callLater(seconds, self._ready, addresses)
        if self._config.startup_serves:
            self._release()
        else:
            self._hold()

    def _hold(self) -> None:
        loading = Loading(self._until, self._clock.seconds)
        for router in self._rank.routers:
            router.hold(loading.admits)

    def _release(self) -> None:
        for router in self._rank.routers:
            router.release()

    def _ready(self, addresses: Sequence[Any]) -> None:
        if self._context.draining:
            return
        self._context.ready = True
        self._release()
        self._announce(addresses)

    def _announce(self, addresses: Sequence[Any]) -> None:
        model = json.dumps(self._context.model)
        for address in addresses:
            where = _where(address)
            if isinstance(address, UNIXAddress):
                path = where.removeprefix("unix:")
                curl = f"curl --unix-socket {shlex.quote(path)} http://localhost"
            else:
                curl = f"curl {where}"
            body = f'{{"model": {model}, "messages": [{{"role": "user", "content": "Hello!"}}]}}'
            line = (
                f"llmdsim serves {model} at {where} - try: {curl}/v1/chat/completions -d {shlex.quote(body)}"
            )
            log.info("ready at {where}", where=where)
            if self._config.log_format == "json":
                line = JsonLines().line({"log_namespace": __name__, "log_format": "{line}", "line": line})
                line = line.removesuffix("\n")
            if sys.__stderr__ is not None:
                print(line, file=sys.__stderr__, flush=True)


def _where(address: Any) -> str:
    """An address as people write it."""
    if isinstance(address, UNIXAddress):
        return f"unix:{(address.name or b'').decode(errors='replace')}"
    host = {"::": "localhost", "0.0.0.0": "localhost"}.get(address.host, address.host)
    return f"http://[{host}]:{address.port}" if ":" in host else f"http://{host}:{address.port}"
