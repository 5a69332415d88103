"""The end of start-up: what was started is told, and new requests are welcome."""

from __future__ import annotations

import gc
import json
import shlex
import sys
from collections.abc import Callable, Sequence, Set
from typing import Any, Protocol

from twisted.application.service import Service
from twisted.internet.address import UNIXAddress
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from llmdsim.config import OPTIONS, Config, shown
from llmdsim.logs.lines import JsonLines
from llmdsim.services.rank import Rank
from llmdsim.web.loading import Loading

log = Logger()

#: New objects after which Python's collector looks at them; its own 700 is for programs with more cycles.
YOUNG = 5000


class Opened(Protocol):
    """Where one rank is to be found: as Twisted's ports tell it, public ones and those for administration.

    `encrypted` are those of both where TLS is spoken.
    """

    @property
    def addresses(self) -> Sequence[Any]: ...
    @property
    def admin_addresses(self) -> Sequence[Any]: ...
    @property
    def encrypted(self) -> Set[Any]: ...


class Readiness(Service):
    """Marks `ranks` ready once the reactor runs, their dataset is open and `--startup-duration` is over.

    And once those of other processes are ready, when `others` fires. Then it prints where each rank is and a
    request to try; with `tell` it calls that in place of telling people. `listeners` are those of all
    ranks, beginning with `ranks`. `clock` is an `IReactorTime`; `dataset` fires when there is no dataset to
    wait for any more. A `warning` of what was found before the log was open is told with the configuration.
    """

    def __init__(
        self,
        config: Config,
        ranks: Sequence[Rank],
        listeners: Sequence[Opened],
        clock: Any,
        reactor: Any,
        *,
        dataset: Deferred[None] | None = None,
        others: Deferred[None] | None = None,
        tell: Callable[[], object] | None = None,
        warning: str = "",
    ) -> None:
        self._warning = warning
        self._config = config
        self._ranks = ranks
        self._listeners = listeners
        self._clock = clock
        self._reactor = reactor
        self._dataset = succeed(None) if dataset is None else dataset
        #: When start-up is over at the earliest.
        self._until = 0.0
        self._others = succeed(None) if others is None else others
        self._tell = tell
        self._loaded: Any = None

    def startService(self) -> None:
        super().startService()  # type: ignore[no-untyped-call]
        if self._tell is None:
            self._tell_configuration()
        self._reactor.callWhenRunning(self._open)

    def _tell_configuration(self) -> None:
        """Log what was asked for, and what of it has no effect."""
        config = self._config
        log.info("configuration: {shown}", shown=json.dumps(shown(config)))
        idle = [
            f"--{option.name}"
            for option in OPTIONS.values()
            if option.field in config.given and not option.effective
        ]
        if idle:
            log.warn("not yet effective in this version: {names}", names=" ".join(idle))
        if config.max_model_len < config.asked_max_model_len:
            log.warn(
                "the context is {capped} tokens, not {asked}: the KV cache has {blocks} blocks of {size}",
                capped=config.max_model_len,
                asked=config.asked_max_model_len,
                blocks=config.kv_cache_size,
                size=config.block_size,
            )
        if self._warning:
            log.warn("{warning}", warning=self._warning)
        if config.ssl_ca_certs and not config.ssl_cert_reqs:
            log.warn("clients are asked for no certificate: --ssl-ca-certs is without --ssl-cert-reqs 1 or 2")
        if config.speed != 1.0:
            log.info("all latencies run {speed:g} times faster than configured", speed=config.speed)
        if config.ignored_flags:
            names = " ".join(config.ignored_flags)
            log.warn("accepted for vLLM's sake, without effect here: {names}", names=names)

    def stopService(self) -> None:
        super().stopService()  # type: ignore[no-untyped-call]
        if self._loaded is not None and self._loaded.active():
            self._loaded.cancel()

    def _open(self) -> None:
        for rank in self._ranks:
            rank.calls.load()
        # Nothing made so far will go away, so the collector need not look at it again.
        gc.collect()
        gc.freeze()
        # Requests leave hardly any garbage in cycles; each look for it costs, now a fifth of a millisecond.
        gc.set_threshold(YOUNG)
        for rank, listeners in zip(self._ranks, self._listeners, strict=False):
            addresses = listeners.addresses
            tcp_ports = [address.port for address in addresses if not isinstance(address, UNIXAddress)]
            if tcp_ports:
                rank.context.serve_on(tcp_ports[0])
        for listeners in self._listeners:
            for address in listeners.admin_addresses:
                log.info("administration at {where}", where=self._where(address))
        self._until = self._clock.seconds() + self._config.startup_duration / self._config.speed
        if not self._dataset.called:
            self._hold()
        self._dataset.addCallback(lambda _: self._load())
        self._dataset.addErrback(lambda failure: log.failure("start-up failed", failure))

    def _load(self) -> None:
        seconds = self._until - self._clock.seconds()
        if seconds <= 0:
            self._wait_for_others()
            return
        where = ", ".join(self._where(address) for address in self._addresses)
        log.info("loading for {seconds:g} seconds at {where}", seconds=round(seconds, 2), where=where)
        self._loaded = self._clock.callLater(seconds, self._wait_for_others)
        if self._config.startup_serves:
            self._release()
        else:
            self._hold()

    def _hold(self) -> None:
        loading = Loading(self._until, self._clock.seconds)
        for rank in self._ranks:
            for router in rank.routers:
                router.hold(loading.admits)
            rank.calls.hold(loading.refusal)

    def _release(self) -> None:
        for rank in self._ranks:
            for router in rank.routers:
                router.release()
            rank.calls.release()

    @property
    def _addresses(self) -> list[Any]:
        return [address for listeners in self._listeners for address in listeners.addresses]

    def _wait_for_others(self) -> None:
        self._others.addCallback(lambda _: self._ready())

    def _ready(self) -> None:
        if any(rank.context.draining for rank in self._ranks):
            return
        for rank in self._ranks:
            rank.context.ready = True
        self._release()
        if self._tell is None:
            self._announce()
        else:
            self._tell()

    def _announce(self) -> None:
        """Tell people where the ranks are."""
        model = json.dumps(self._ranks[0].context.model)
        for address in self._addresses:
            where = self._where(address)
            if isinstance(address, UNIXAddress):
                path = where.removeprefix("unix:")
                curl = f"curl --unix-socket {shlex.quote(path)} http://localhost"
            elif where.startswith("https:"):
                # The certificate is rarely of a CA that curl knows, or of this name.
                curl = f"curl --insecure {where}"
            else:
                curl = f"curl {where}"
            body = f'{{"model": {model}, "messages": [{{"role": "user", "content": "Hello!"}}]}}'
            line = (
                f"llmdsim serves {model} at {where} - try: {curl}/v1/chat/completions -d {shlex.quote(body)}"
            )
            if self._config.api_key:
                # Keys are told to nobody, so the word is for people to replace.
                line += " -H 'Authorization: Bearer KEY'"
            if self._config.ssl_cert_reqs == 2 and where.startswith("https:"):
                line += " --cert CERT --key KEY"
            log.info("ready at {where}", where=where)
            if self._config.log_format == "json":
                line = JsonLines().line({"log_namespace": __name__, "log_format": "{line}", "line": line})
                line = line.removesuffix("\n")
            if sys.__stderr__ is not None:
                # In one piece: others write there too.
                print(f"{line}\n", end="", file=sys.__stderr__, flush=True)

    def _where(self, address: Any) -> str:
        """An address as people write it."""
        if isinstance(address, UNIXAddress):
            return f"unix:{(address.name or b'').decode(errors='replace')}"
        host = {"::": "localhost", "0.0.0.0": "localhost"}.get(address.host, address.host)
        secure = any(address in listeners.encrypted for listeners in self._listeners)
        scheme = "https" if secure else "http"
        return f"{scheme}://[{host}]:{address.port}" if ":" in host else f"{scheme}://{host}:{address.port}"
