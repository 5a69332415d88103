"""What a rank publishes by sockets in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.internet.address import IPv4Address, UNIXAddress
from twisted.logger import LogEvent

from llmdsim.services.start_failure import StartFailure
from tests.kvevents.transport import numbers
from tests.services.events_rig import ON, EventsRig
from tests.web.admin.operator import call


def test_nothing_is_made_before_the_service_starts_nor_where_there_are_no_events() -> None:
    assert EventsRig(*ON).made == 0
    assert EventsRig(*ON).start().made == 1
    off = EventsRig().start()
    assert (off.made, off.rank.driver.on_records) == (0, None)
    assert off.service.stopService() is None
    assert EventsRig(*ON, "--zmq-endpoint=").start().made == 0


def test_what_the_sockets_are_asked_for() -> None:
    rig = EventsRig(
        *(*ON, "--zmq-endpoint", "tcp://a:6000", "--zmq-hwm", "5", "--zmq-max-connect-attempts", "3"),
        *("--kv-events-replay-endpoint", "tcp://*:6100"),
    ).start()
    assert rig.transport.asked == [("publish", "tcp://a:6000", False, 5, 3), ("answer", "tcp://*:6100")]
    rig = EventsRig(*ON, "--zmq-endpoint", "tcp://*:6000").start()
    assert rig.transport.asked == [("publish", "tcp://*:6000", True, 100_000, 0)]


def test_r4_the_topic_has_address_port_and_the_name_that_requests_use() -> None:
    rig = EventsRig(*ON, "--served-model-name", "first", "second", "--port", "8123").start()
    rig.tell()
    assert rig.topics == {b"kv@10.0.0.1:8123@first"}


def test_r4_each_rank_tells_its_own_port_and_uses_its_own_address() -> None:
    flags = (*ON, "--data-parallel-size", "2", "--port", "8123", "--zmq-endpoint", "tcp://*:6000")
    rig = EventsRig(*flags, rank=1).start()
    rig.tell()
    assert rig.topics == {b"kv@10.0.0.1:8124@m"}
    assert rig.transport.asked[0][1] == "tcp://*:6001"
    alone = EventsRig(*ON, "--data-parallel-rank", "1", "--zmq-endpoint", "tcp://*:6000").start()
    alone.tell()
    assert alone.topics == {b"kv@10.0.0.1:8000@m"}
    assert alone.transport.asked[0][1] == "tcp://*:6001"


def test_the_port_in_the_topic_is_the_one_that_is_listened_on() -> None:
    rig = EventsRig(*ON)
    rig.listeners.addresses = [UNIXAddress("/x"), IPv4Address("TCP", "0.0.0.0", 4711)]
    rig.start().tell()
    assert rig.topics == {b"kv@10.0.0.1:4711@m"}


@pytest.mark.parametrize(
    ("ip", "model", "topic"),
    [
        ("fd00::1", "org/m", "kv@fd00::1:8000@org/m"),
        ("10.0.0.1", "модель", "kv@10.0.0.1:8000@модель"),
    ],
)
def test_nothing_in_the_topic_is_escaped(ip: str, model: str, topic: str, logged: list[LogEvent]) -> None:
    rig = EventsRig(*ON, "--model", model, environ={"POD_IP": ip}).start()
    rig.tell()
    assert rig.topics == {topic.encode()}
    assert not [event for event in logged if event["log_level"].name == "warn"]


def test_a_name_with_the_sign_that_parts_the_topic_is_kept_and_told(logged: list[LogEvent]) -> None:
    rig = EventsRig(*ON, "--model", "m@v1").start()
    rig.tell()
    assert rig.topics == {b"kv@10.0.0.1:8000@m@v1"}
    (told,) = [event for event in logged if event["log_level"].name == "warn"]
    assert told["model"] == "m@v1"


def test_without_pod_ip_the_topic_has_the_hosts_address_and_that_is_told_once(
    logged: list[LogEvent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmdsim.services.kv_events.host_address", lambda host: host or "192.168.7.7")
    rig = EventsRig(*ON, environ={}).start()
    rig.tell()
    assert rig.topics == {b"kv@192.168.7.7:8000@m"}
    (told,) = [event for event in logged if event["log_level"].name == "warn"]
    assert "POD_IP" in told["log_format"]
    named = EventsRig(*ON, "--host", "10.1.1.1", environ={}).start()
    named.tell()
    assert named.topics == {b"kv@10.1.1.1:8000@m"}


@pytest.mark.parametrize(
    ("flags", "document", "topic"),
    [
        ((*ON, "--kv-events-topic", "mine"), None, b"mine"),
        ((), {"enable_kv_cache_events": True}, b""),
        ((), {"enable_kv_cache_events": True, "topic": "kv@a@b"}, b"kv@a@b"),
        (("--kv-events-topic", "mine"), {"enable_kv_cache_events": True}, b"mine"),
    ],
)
def test_another_topic(
    flags: tuple[str, ...], document: dict[str, Any] | None, topic: bytes, logged: list[LogEvent]
) -> None:
    rig = EventsRig(*flags, document=document, environ={}).start()
    rig.tell()
    assert rig.topics == {topic}
    assert not [event for event in logged if event["log_level"].name == "warn"]


def test_what_publishes_nothing_is_told_once(logged: list[LogEvent]) -> None:
    EventsRig("--zmq-endpoint", "tcp://*:1").start()
    (told,) = logged
    assert told["why_not"] == "--zmq-endpoint: no events are published without --enable-kvcache"


def test_batches_and_the_end() -> None:
    rig = EventsRig(*ON, "--event-batch-size", "2", "--event-flush-interval", "1s", "--speed", "2").start()
    rig.tell(1, 2, 3)
    assert rig.sent == [0]
    rig.clock.advance(0.5)
    assert rig.sent == [0, 1]
    rig.tell(4)
    assert rig.sent == [0, 1]
    rig.service.stopService()
    assert rig.sent == [0, 1, 2]
    assert rig.transport.closed
    assert rig.rank.driver.on_records is None
    assert not rig.clock.getDelayedCalls()


def test_r66_replay_has_what_was_sent_even_to_nobody() -> None:
    rig = EventsRig(*ON, "--zmq-endpoint=", "--kv-events-replay-endpoint", "tcp://*:6100").start()
    rig.tell()
    rig.tell()
    rig.transport.received([b"c", b"", bytes(8)])
    rig.clock.advance(0)
    *batches, end = rig.transport.answering.answers[b"c"]
    assert numbers(batches) == [0, 1]
    assert end == (b"", b"", b"\xff" * 8, b"")
    assert rig.transport.asked == [("answer", "tcp://*:6100")]
    assert call(rig, "GET", "/kv_event_sources").body == b"{}"


@pytest.mark.parametrize("address", ["tcp://*:6000", "tcp://*:6100"])
def test_a_taken_address_ends_the_start_with_one_line(address: str) -> None:
    flags = (*ON, "--zmq-endpoint", "tcp://*:6000", "--kv-events-replay-endpoint", "tcp://*:6100")
    with pytest.raises(StartFailure) as failed:
        EventsRig(*flags, taken=(address,), foreground=False).start()
    assert str(failed.value) == f"KV events: {address}: Address already in use"
    with pytest.raises(SystemExit) as ended:
        EventsRig(*flags, taken=(address,)).start()
    assert ended.value.code == 1


def test_faults_can_be_changed_while_it_runs() -> None:
    rig = EventsRig(*ON, "--seed", "1").start()
    rig.tell()
    rig.admin(kv_event_fault_rate=100, kv_event_faults=["drop; times=2"])
    rig.tell()
    rig.tell()
    rig.tell()
    assert rig.sent == [0, 3]
    rig.admin(kv_event_faults=["restart; times=1"])
    rig.tell()
    assert rig.sent == [0, 3, 0]
    assert rig.metric("llmdsim:kv_event_faults_injected_total", 'engine="0",kind="drop"') == 2
    reply = call(rig, "POST", "/admin/config", {"kv-event-faults": ["explode"]})
    assert reply.status == 400
    assert b"'explode' is not a kind of fault" in reply.body


def test_what_metrics_tell() -> None:
    rig = EventsRig(*ON, "--kv-events-replay-endpoint", "tcp://*:6100").start()
    rig.tell(1, 2)
    rig.transport.publishing.full = True
    rig.tell(3)
    rig.transport.received([b"c", b"", bytes(8)])
    rig.clock.advance(0)
    assert rig.metric("llmdsim:kv_event_batches_total") == 2
    assert rig.metric("llmdsim:kv_events_total") == 3
    assert rig.metric("llmdsim:kv_event_subscriber_overflows_total") == 1
    assert rig.metric("llmdsim:kv_event_replays_total") == 1
    assert rig.metric("llmdsim:kv_event_replays_refused_total") == 0
    assert b"kv_event" not in call(EventsRig(), "GET", "/metrics").body


def test_kv_event_sources_tells_where_this_rank_publishes() -> None:
    assert call(EventsRig().start(), "GET", "/kv_event_sources").body == b"{}"
    document = {"enable_kv_cache_events": True, "endpoint": "tcp://*:6000", "topic": "kv@a@b"}
    rig = EventsRig("--data-parallel-size", "2", rank=1, document=document).start()
    assert json.loads(call(rig, "GET", "/kv_event_sources").body) == {
        "1": {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": "tcp://*:6001",
            "replay_endpoint": None,
            "buffer_steps": 10_000,
            "hwm": 100_000,
            "max_queue_size": 100_000,
            "topic": "kv@a@b",
        }
    }


def test_a_port_that_the_system_chose_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmdsim.services.kv_events.host_address", lambda _: "fd00::7")
    rig = EventsRig(*ON, "--zmq-endpoint", "tcp://*:0").start()
    (source,) = json.loads(call(rig, "GET", "/kv_event_sources").body).values()
    assert source["endpoint"] == "tcp://[fd00::7]:4321"
