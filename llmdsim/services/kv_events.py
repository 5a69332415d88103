"""Publishes the events of one rank's KV cache, over ZeroMQ and to those in this process that listen."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.logger import Logger

from llmdsim.config import Config
from llmdsim.config.kv_events import binds, kv_event_settings, why_nothing_is_published
from llmdsim.kvevents.batching import Batcher
from llmdsim.kvevents.faults import EventFaults
from llmdsim.kvevents.publisher import Publisher
from llmdsim.kvevents.replay import Replay
from llmdsim.kvevents.topic import host_address, topic_of
from llmdsim.kvevents.transport import Publishing, Transport, TransportError
from llmdsim.kvevents.window import Window
from llmdsim.kvevents.wire import encoder
from llmdsim.services.listeners import Listeners
from llmdsim.services.rank import Rank
from llmdsim.services.start_failure import StartFailure, give_up_start

log = Logger()


def over_zeromq(reactor: Any) -> Transport:
    """Sockets of ZeroMQ."""
    # Takes 40 ms to load, and the reactor that is there by then.
    from llmdsim.kvevents.txzmq_transport import TxzmqTransport  # noqa: PLC0415

    return TxzmqTransport(reactor)


class KvEvents(Service):
    """Takes what the engine of `rank` tells of its blocks, where events are configured.

    `listeners` are the rank's, `clock` is an `IReactorTime`. `foreground` decides how a failure ends the
    process; `transport` makes the sockets, as the service starts.
    """

    def __init__(
        self,
        rank: Rank,
        listeners: Listeners,
        clock: Any,
        reactor: Any,
        foreground: bool,
        transport: Callable[[Any], Transport] = over_zeromq,
    ) -> None:
        self._rank = rank
        self._listeners = listeners
        self._clock = clock
        self._reactor = reactor
        self._foreground = foreground
        self._make_transport = transport
        self._settings = kv_event_settings(rank.config)
        self._transport: Transport | None = None
        #: The ways in which somebody listens.
        self._ways: set[str] = set()
        self._faults: EventFaults
        self._publisher: Publisher
        self._batcher: Batcher
        self._replay: Replay

    def startService(self) -> None:
        super().startService()  # type: ignore[no-untyped-call]
        settings = self._settings
        why_not = why_nothing_is_published(self._rank.config)
        if why_not:
            log.warn("{why_not}", why_not=why_not)
        if not settings.enabled:
            return
        if settings.publishes:
            self._transport = self._make_transport(self._reactor)
        try:
            self._open()
        except StartFailure as failure:
            give_up_start(failure, self._foreground)

    def stopService(self) -> Deferred[None] | None:
        """Fires when events that were still to be sent have left."""
        super().stopService()  # type: ignore[no-untyped-call]
        if self._rank.event_feed.is_open:
            self._rank.driver.on_records = None
            self._flush()
        transport, self._transport = self._transport, None
        if transport is None:
            return None
        self._replay.stop()
        return transport.close()

    def _flush(self) -> None:
        """Send what there is to be sent."""
        self._batcher.flush()
        self._publisher.release()

    def _open(self) -> None:
        """Open the sockets and have events go there. Raises StartFailure."""
        rank, config, settings, clock = self._rank, self._rank.config, self._settings, self._clock
        counts = rank.event_counts
        window = Window(settings.buffer_steps if settings.replay_endpoint else 0)
        topic = endpoint = replay_endpoint = ""
        socket = None
        if self._transport is not None:
            topic = self._topic()
            self._replay = Replay(window, topic.encode(), counts, clock)
            socket, endpoint, replay_endpoint = self._open_sockets(self._transport)
        self._faults = EventFaults(config, counts)
        encode = encoder(config, rank.number).batch
        self._publisher = Publisher(
            lambda records: encode(records, time.time()),
            topic.encode(),
            socket,
            window,
            self._faults,
            counts,
            clock,
        )
        self._batcher = Batcher(config.event_batch_size, clock, self._publisher.publish)
        self._configure(config)
        rank.context.on_config.append(self._configure)
        rank.event_feed.open(self._publisher, window, partial(self._listened, "feed"), self._flush)
        if self._transport is not None:
            rank.driver.on_records = self._batcher.add
            self._publish(socket, topic, endpoint, replay_endpoint)

    def _publish(self, socket: Publishing | None, topic: str, endpoint: str, replay_endpoint: str) -> None:
        """Have what there is to be told be found over ZeroMQ."""
        rank, settings = self._rank, self._settings
        if settings.replay_endpoint:
            self._ways.add("replay")
        elif socket is not None:
            socket.watch(topic.encode(), partial(self._listened, "socket"))
        if socket is not None:
            rank.context.kv_event_sources[str(rank.number)] = {
                "enable_kv_cache_events": True,
                "publisher": "zmq",
                "endpoint": endpoint,
                "replay_endpoint": replay_endpoint or None,
                "buffer_steps": settings.buffer_steps,
                "hwm": settings.hwm,
                "max_queue_size": settings.max_queue_size,
                "topic": topic,
            }
        log.info(
            "KV events: topic {topic}, published at {endpoint}, replay at {replay}",
            topic=json.dumps(topic, ensure_ascii=False),
            endpoint=endpoint or "no address",
            replay=replay_endpoint or "no address",
        )

    def _open_sockets(self, transport: Transport) -> tuple[Publishing | None, str, str]:
        """The socket to publish by, and where that and replay are to be found, "" for nowhere."""
        config, settings = self._rank.config, self._settings
        socket, endpoint, replay_endpoint = None, "", ""
        address = settings.endpoint
        try:
            if address:
                socket, opened = transport.publish(
                    address,
                    bind=binds(config, address),
                    hwm=settings.hwm,
                    attempts=config.zmq_max_connect_attempts,
                )
                endpoint = _told(address, opened)
            address = settings.replay_endpoint
            if address:
                self._replay.socket, opened = transport.answer(address, self._replay.received)
                replay_endpoint = _told(address, opened)
        except TransportError as problem:
            raise StartFailure(f"KV events: {address}: {problem}") from None
        return socket, endpoint, replay_endpoint

    def _listened(self, way: str, listened: bool) -> None:
        """Somebody has begun to listen in a way, or nobody does any more."""
        cache = self._rank.engine.cache
        assert cache is not None
        (self._ways.add if listened else self._ways.discard)(way)
        cache.announces = bool(self._ways)
        if listened:
            # Without ZeroMQ nobody takes anything until the first one comes.
            self._rank.driver.on_records = self._batcher.add
            if cache.missed:
                cache.missed = False
                self._publisher.skip()

    def _configure(self, config: Config) -> None:
        """Follow `config` in what may change."""
        self._faults.configure(config)
        self._publisher.speed = config.speed
        self._batcher.interval = config.event_flush_interval / config.speed

    def _topic(self) -> str:
        rank, settings = self._rank, self._settings
        if settings.topic is not None:
            return settings.topic
        ip = rank.config.pod_ip
        if not ip:
            ip = host_address(rank.config.host)
            log.warn("KV events: POD_IP is not set; the topic tells {ip}", ip=ip)
        model = rank.context.model
        if "@" in model:
            log.warn(
                "KV events: the model's name {model} has an @, by which llm-d's router cannot tell the "
                "topic's parts apart",
                model=model,
            )
        return topic_of(ip, self._listeners.tcp_port or rank.config.port, model)


def _told(address: str, opened: str) -> str:
    """`address`, or where the system chose a port, with that and a host to connect to (as vLLM tells it)."""
    if not address.startswith("tcp://") or not address.endswith(":0"):
        return address
    host, port = address.removeprefix("tcp://").removesuffix(":0"), opened.rpartition(":")[2]
    if host in ("*", "[::]", "0.0.0.0"):
        own = host_address("")
        host = f"[{own}]" if ":" in own else own
    return f"tcp://{host}:{port}"
