"""Where a rank publishes the events of its KV cache, by llm-d-inference-sim's flags and vLLM's JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from llmdsim.config.option import flag_of
from llmdsim.config.table import Config

#: Members of vLLM's --kv-events-config: what they hold, what vLLM takes for granted, and the flag here that
#: says the same.
_MEMBERS: Final[dict[str, tuple[type, Any, str]]] = {
    "enable_kv_cache_events": (bool, False, ""),
    "publisher": (str, None, ""),
    "endpoint": (str, "tcp://*:5557", "zmq_endpoint"),
    "replay_endpoint": (str, None, "kv_events_replay_endpoint"),
    "buffer_steps": (int, 10_000, "kv_events_replay_queue_size"),
    "hwm": (int, 100_000, "zmq_hwm"),
    "max_queue_size": (int, 100_000, ""),
    "topic": (str, "", "kv_events_topic"),
}
_KINDS: Final = {bool: "true or false", int: "an integer of at least 1", str: "text"}
_NULLABLE: Final = ("publisher", "replay_endpoint")
_PUBLISHERS: Final = ("null", "zmq")

_ADDRESS: Final = re.compile(r"tcp://(\[[^\[\]@;]+\]|[^\[\]@;/ ]+):([0-9]{1,5})|(?:ipc|inproc)://.+")
_TCP: Final = re.compile(r"(tcp://.*):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class KvEventSettings:
    """What one rank does with its events.

    Where they are `enabled`, they can be listened to over gRPC; over ZeroMQ they go only if it `publishes`.
    Addresses are its own ones, and empty where there are none. `topic` is None for `kv@IP:port@model`;
    `max_queue_size` is only told.
    """

    enabled: bool
    publishes: bool
    endpoint: str
    replay_endpoint: str
    buffer_steps: int
    hwm: int
    max_queue_size: int
    topic: str | None


def kv_event_settings(config: Config) -> KvEventSettings:
    """Those of the rank that `config` is of."""
    document = config.kv_events_config
    rank = max(config.data_parallel_rank, 0)

    def of(member: str) -> Any:
        return _chosen(config, member)

    enabled = config.enable_kvcache and (document is None or _enables(document))
    endpoint, replay = of("endpoint"), of("replay_endpoint") or ""
    return KvEventSettings(
        enabled=enabled,
        publishes=enabled and bool(endpoint or replay),
        endpoint=rank_address(endpoint, rank),
        replay_endpoint=rank_address(replay, rank),
        buffer_steps=of("buffer_steps"),
        hwm=of("hwm"),
        max_queue_size=of("max_queue_size"),
        # vLLM's topic is empty unless it is told one.
        topic=of("topic") or (None if document is None else ""),
    )


def binds(config: Config, address: str) -> bool:
    """Whether a publisher waits at `address` for subscribers, or connects to it: by default vLLM's rule."""
    if config.zmq_socket != "auto":
        return config.zmq_socket == "bind"
    return "*" in address or "::" in address or address.startswith(("ipc://", "inproc://"))


def rank_address(address: str, rank: int) -> str:
    """The address of a rank where rank 0 has `address`: the port after, or a name of its own."""
    if not address or rank == 0:
        return address
    if address.startswith("inproc://"):
        return f"{address}_dp{rank}"
    found = _TCP.fullmatch(address)
    # The system chooses a port for each where it is 0.
    return f"{found[1]}:{int(found[2]) + rank}" if found and int(found[2]) else address


def why_nothing_is_published(config: Config) -> str | None:
    """One sentence where something is configured for events that will not be there; None otherwise."""
    document = config.kv_events_config
    if document is not None and not _enables(document):
        if document.get("enable_kv_cache_events"):
            return '--kv-events-config: no events are published, since the publisher is "null"'
        if document.get("publisher") == "zmq" or "enable_kv_cache_events" not in document:
            return "--kv-events-config: no events are published, since enable_kv_cache_events is not true"
        return None
    if not config.enable_kvcache:
        for field in ("kv_events_config", "zmq_endpoint", "kv_events_replay_endpoint", "kv_events_topic"):
            if field in config.given and getattr(config, field):
                return f"{flag_of(field)}: no events are published without --enable-kvcache"
    elif not config.enable_prefix_caching and kv_event_settings(config).publishes:
        return "--enable-prefix-caching is off, so no blocks are ever published"
    return None


def wrong_kv_events(config: Config, ranks: range) -> Iterator[str]:
    """What is wrong with the options of events, one sentence each; `ranks` are those of this server."""
    document = config.kv_events_config
    if document is not None:
        wrong = _wrong_member(document)
        if wrong:
            yield f"--kv-events-config: {wrong}"
            return
        for member, (_, _, field) in _MEMBERS.items():
            if field in config.given and member in document and document[member] != getattr(config, field):
                yield (
                    f"--kv-events-config: {member} is {document[member]!r}, but {flag_of(field)} is "
                    f"{getattr(config, field)!r}"
                )
    endpoint, replay = _chosen(config, "endpoint"), _chosen(config, "replay_endpoint") or ""
    for member, address in (("endpoint", endpoint), ("replay_endpoint", replay)):
        if not address:
            continue
        what = f"{_origin(config, member)}: {address!r}"
        tcp = _TCP.fullmatch(address)
        if not _ADDRESS.fullmatch(address):
            yield f"{what} is not tcp://HOST:PORT, ipc://PATH or inproc://NAME"
        elif tcp and int(tcp[2]) + (ranks[-1] if int(tcp[2]) else 0) > 65535:
            yield f"{what} leads to a port beyond 65535"
        elif address.startswith("ipc://") and ranks[-1] > 0:
            yield f"{what} cannot be shared by ranks, or told apart: use tcp:// or inproc://"
        elif member == "endpoint" and tcp and not binds(config, address):
            if not int(tcp[2]):
                yield f"{what} is connected to, which takes a port"
            elif tcp[1].startswith(("tcp://*", "tcp://[::]")):
                yield f"{what} is every address here, which cannot be connected to"
    if _overlap(endpoint, replay, len(ranks)):
        yield (
            f"{_origin(config, 'replay_endpoint')}: {replay!r} uses a port of "
            f"{_origin(config, 'endpoint')} {endpoint!r} ({len(ranks)} each)"
        )


def _chosen(config: Config, member: str) -> Any:
    document = config.kv_events_config
    _, default, field = _MEMBERS[member]
    if document is not None and member in document:
        return document[member]
    if field and (document is None or field in config.given):
        return getattr(config, field)
    return default


def _enables(document: dict[str, Any]) -> bool:
    return document.get("enable_kv_cache_events") is True and document.get("publisher") != "null"


def _wrong_member(document: Mapping[str, object]) -> str | None:
    for member, value in document.items():
        if member not in _MEMBERS:
            return f"{member!r} is not one of {', '.join(_MEMBERS)}"
        if value is None and member in _NULLABLE:
            continue
        kind = _MEMBERS[member][0]
        if type(value) is not kind or (type(value) is int and value < 1):
            return f"{member}: {value!r} is not {_KINDS[kind]}"
    publisher = document.get("publisher")
    if publisher is not None and publisher not in _PUBLISHERS:
        return f"publisher: {publisher!r} is not one of {', '.join(_PUBLISHERS)}"
    return None


def _origin(config: Config, member: str) -> str:
    """The option that gives `member`."""
    document, field = config.kv_events_config, _MEMBERS[member][2]
    from_document = document is not None and (member in document or field not in config.given)
    return f"--kv-events-config: {member}" if from_document else flag_of(field)


def _overlap(publish: str, replay: str, ranks: int) -> bool:
    """Whether two TCP addresses share a port; each rank takes the next one."""
    ports = [_TCP.fullmatch(address) for address in (publish, replay)]
    if None in ports:
        return False
    first, second = (int(port[2]) for port in ports if port)
    return 0 not in (first, second) and abs(first - second) < ranks
