"""Draining: what may finish, what is refused, what is aborted, and that the reactor is stopped once."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from typing import Any

import pytest
from twisted.logger import capturedLogs

from llmdsim.services.drain import FLUSH, LOOK_EVERY, OVERSTAY, Drain
from tests.services.drain_rig import PACED, DrainRig
from tests.web.access.rig import admin_port
from tests.web.clients import CHAT, events, finishes, post, reply_of
from tests.web.rig import PassClock, RankRig
from tests.wire.channel import Client, get, read_replies


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_daemon_stops_at_once(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    rig = DrainRig(monkeypatch)
    rig.kill(number)
    assert rig.reactor.stops == 1
    assert rig.clock.getDelayedCalls() == []
    # What comes after that is nothing to it.
    with capturedLogs() as logged:
        rig.drain.begin("SIGINT")
    assert logged == []
    rig.drain.stopService()
    assert rig.reactor.stops == 1


def test_idle_connections_are_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DrainRig(monkeypatch)
    idle = [rig.connect(), rig.connect().send(get(b"/version"))]
    rig.kill()
    rig.wait(0.25)
    assert [client.fate for client in idle] == ["closed", "closed"]
    assert rig.reactor.stops == 1


def test_who_comes_in_at_the_very_end_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DrainRig(monkeypatch)
    post(rig, CHAT, max_tokens=1)
    rig.kill()
    assert rig.open
    rig.wait(1)
    rig.clock.advance(LOOK_EVERY)
    late, silent = rig.connect(), rig.connect()
    rig.clock.advance(LOOK_EVERY)
    assert not rig.open
    assert rig.reactor.stops == 0
    late.send(get(b"/health"))
    assert reply_of(late).status == 200
    assert late.fate == "closed"
    rig.wait(0.125)
    assert rig.reactor.stops == 1
    assert silent.fate == "open"


@pytest.mark.parametrize("stream", [False, True])
def test_what_runs_or_waits_finishes_and_what_comes_is_refused(
    monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    rig = DrainRig(monkeypatch)
    running, waiting = (post(rig, CHAT, stream=stream, max_tokens=3) for _ in range(2))
    assert (rig.rank.stats.running, rig.rank.stats.waiting) == (1, 1)
    assert rig.status(b"/ready") == 200
    rig.kill()
    assert (rig.status(b"/ready"), rig.status(b"/health/ready")) == (503, 503)
    assert (rig.status(b"/health"), rig.status(b"/metrics")) == (200, 200)
    refused = post(rig, CHAT, stream=stream)
    # The next try must not come over the same connection, behind which there is nobody to serve it.
    assert (reply_of(refused).status, reply_of(refused).headers[b"connection"]) == (503, b"close")
    rig.settle()
    assert refused.fate == "closed"
    rig.wait(5.5)
    assert rig.reactor.stops == 0
    rig.wait(1)
    for client in (running, waiting):
        reply = reply_of(client)
        assert (reply.status, reply.complete) == (200, True)
        if stream:
            assert finishes(events(reply.body)) == [(0, "length")]
    rig.wait(FLUSH)
    assert rig.reactor.stops == 1
    assert (rig.rank.stats.finished["length"], rig.rank.stats.finished["abort"]) == (2, 0)


def test_the_port_for_administration_is_served_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DrainRig(monkeypatch, *PACED, "--admin-listen", "tcp:0")
    admin = admin_port(rig)
    post(rig, CHAT, max_tokens=3)
    client, idle = admin.connect().send(get(b"/admin/config")), admin.connect()
    rig.kill()
    for _ in range(5):
        client.send(get(b"/admin/config"), get(b"/ready"))
        rig.wait(0.5)
    replies = read_replies(client.received, [], ended=False)
    assert [reply.status for reply in replies] == [200, *[200, 503] * 5]
    assert (client.fate, idle.fate, rig.open) == ("open", "open", True)
    rig.wait(1)
    assert (client.fate, idle.fate, rig.reactor.stops) == ("closed", "closed", 1)


def test_a_slow_reader_of_the_port_for_administration_has_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DrainRig(monkeypatch, *PACED, "--admin-listen", "tcp:0", timeout=20.0)
    client = admin_port(rig).connect()
    client.transport.stop_reading()
    client.send(get(b"/metrics"))
    rig.kill()
    rig.wait(10)
    assert rig.reactor.stops == 0
    client.transport.client_reads = True
    client.transport.drain()
    rig.wait(0.25)
    (reply,) = read_replies(client.received, [b"GET"], ended=True)
    assert (reply.status, reply.complete, rig.reactor.stops) == (200, True, 1)


def test_a_connection_ends_with_its_reply_once_all_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DrainRig(monkeypatch)
    client = post(rig, CHAT, max_tokens=1)
    rig.kill()
    rig.wait(1.25)
    assert reply_of(client).status == 200
    assert client.fate == "closed"
    assert rig.reactor.stops == 1, "there is nobody to wait for"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("timeout", [0.0, 2.5])
def test_when_the_time_is_over_the_rest_is_told_and_aborted(
    monkeypatch: pytest.MonkeyPatch, stream: bool, timeout: float
) -> None:
    rig = DrainRig(monkeypatch, timeout=timeout)
    clients = [post(rig, CHAT, stream=stream, max_tokens=50) for _ in range(2)]
    rig.kill()
    if timeout:
        rig.wait(timeout - 0.125)
        assert rig.rank.stats.running == 1
    rig.wait(0.5)
    assert rig.rank.engine.idle
    assert rig.rank.stats.finished["abort"] == 2
    assert rig.reactor.stops == 1
    for client in clients:
        reply = reply_of(client)
        assert reply.complete
        assert client.fate == "closed"
        if stream:
            error, done = events(reply.body)[-2:]
            assert (error["error"]["code"], done) == (503, "[DONE]")
        else:
            assert (reply.status, reply.error["error"]["code"]) == (503, 503)
            assert reply.headers[b"connection"] == b"close"


def test_scrapes_and_probes_keep_their_connections_while_requests_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = DrainRig(monkeypatch)
    post(rig, CHAT, max_tokens=3)
    scraper = rig.connect().send(get(b"/metrics"))
    rig.kill()
    for _ in range(5):
        scraper.send(get(b"/metrics"), get(b"/ready"))
        rig.wait(0.5)
    replies = read_replies(scraper.received, [], ended=False)
    assert [reply.status for reply in replies] == [200, *[200, 503] * 5]
    assert all(b"connection" not in reply.headers for reply in replies)
    assert scraper.fate == "open"
    rig.wait(1)
    assert (scraper.fate, rig.reactor.stops) == ("closed", 1)


@pytest.mark.parametrize("seconds", [1.0, 5.0])
def test_a_request_that_is_prepared_while_nothing_runs_is_waited_for_or_told(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Long prompts are read elsewhere, and come to the engine when that is done."""
    rig = DrainRig(monkeypatch, timeout=4.0)
    handle = rig.site.handle
    held: list[Any] = []
    rig.site.handle = held.append
    client = post(rig, CHAT, max_tokens=round(seconds))
    rig.kill()
    rig.wait(1)
    assert (rig.rank.engine.idle, rig.reactor.stops) == (True, 0)
    # What was let in before is not refused for what came since.
    monkeypatch.setattr(type(rig.rank.context), "refuse_unavailable", lambda context: None)
    with capturedLogs():
        handle(held[0])
    rig.wait(4)
    assert rig.rank.engine.idle
    assert (reply_of(client).status, reply_of(client).complete) == (200 if seconds == 1.0 else 503, True)
    assert (client.fate, rig.reactor.stops) == ("closed", 1)


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_stops_at_once(monkeypatch: pytest.MonkeyPatch, second: int) -> None:
    rig = DrainRig(monkeypatch)
    post(rig, CHAT)
    rig.kill()
    rig.wait(1)
    assert rig.reactor.stops == 0
    rig.kill(second)
    assert rig.reactor.stops == 1
    rig.kill(second)
    rig.wait(70)
    assert rig.reactor.stops == 1


def test_two_signals_before_the_reactors_turn_stop_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DrainRig(monkeypatch)
    post(rig, CHAT)
    rig.installed[signal.SIGTERM](signal.SIGTERM, None)
    rig.installed[signal.SIGINT](signal.SIGINT, None)
    assert rig.reactor.stops == 0
    rig.kill()
    assert rig.reactor.stops == 1


def test_a_client_that_leaves_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DrainRig(monkeypatch)
    client = post(rig, CHAT, max_tokens=50)
    rig.kill()
    rig.wait(1)
    client.rst()
    rig.wait(0.25)
    assert rig.reactor.stops == 1


def unread_stream(rig: RankRig) -> Client:
    client = post(rig, CHAT, stream=True)
    client.transport.stop_reading()
    return client


@pytest.mark.parametrize(("timeout", "until"), [(20.0, 20.0), (5.25, 5.0 + FLUSH), (3.0, 3.0 + FLUSH)])
def test_a_client_that_does_not_read_is_waited_for_in_the_time_there_is(
    monkeypatch: pytest.MonkeyPatch, timeout: float, until: float
) -> None:
    """The rest of the time for draining, and a moment in any case."""
    rig = DrainRig(monkeypatch, timeout=timeout)
    unread_stream(rig)
    rig.kill()
    rig.wait(until - 0.25)
    assert rig.rank.engine.idle
    assert rig.reactor.stops == 0
    rig.wait(0.5)
    assert rig.reactor.stops == 1


def test_a_client_that_reads_late_in_a_drain_has_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DrainRig(monkeypatch)
    client = unread_stream(rig)
    rig.kill()
    rig.wait(5.5)
    client.transport.client_reads = True
    client.transport.drain()
    rig.wait(0.25)
    assert finishes(events(reply_of(client).body)) == [(0, "length")]
    assert reply_of(client).complete
    assert (client.fate, rig.reactor.stops) == ("closed", 1)


@pytest.mark.parametrize(
    "sent", [b"", b"GET /versi", b"POST /v1/completions HTTP/1.1\r\nContent-Length: 9\r\n\r\n{"]
)
def test_a_half_sent_request_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    rig = DrainRig(monkeypatch)
    rig.connect().send(*([sent] if sent else []))
    rig.kill()
    rig.wait(FLUSH)
    assert rig.reactor.stops == 1


def test_a_pipelined_request_is_answered_though_the_rest_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been on its way before anybody knew."""
    rig = DrainRig(monkeypatch)
    client = post(rig, CHAT, max_tokens=2).send(get(b"/version"))
    rig.kill()
    rig.wait(2.5)
    first, second = read_replies(client.received, [b"POST", b"GET"], ended=True)
    assert (first.status, second.status) == (200, 200)
    assert rig.reactor.stops == 1


def test_a_drain_that_fails_stops_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DrainRig(monkeypatch, timeout=1.0)
    post(rig, CHAT, max_tokens=50)

    def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(rig.rank.driver, "give_up", broken)
    rig.kill()
    rig.wait(1.25)
    assert rig.reactor.stops == 1


def test_the_daemons_own_stop_ends_the_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reactor may be stopped by somebody else meanwhile."""
    rig = DrainRig(monkeypatch)
    post(rig, CHAT, max_tokens=50)
    rig.kill()
    rig.reactor.stop()
    rig.drain.stopService()
    rig.wait(70)
    assert rig.reactor.stops == 1


class Others:
    """Processes of other ranks, at work until told."""

    def __init__(self) -> None:
        self.at_work = True
        self.drains = self.kills = self.gives_up = 0
        self.on_loss: Callable[[], object] = list

    def drain(self, at_once: bool) -> None:
        self.drains += 1
        self.gives_up += at_once

    def kill(self) -> None:
        self.kills += 1


class OthersRig(DrainRig):
    """A rank beside those of other processes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *flags: str, timeout: float = 60.0) -> None:
        self.others = Others()
        super().__init__(monkeypatch, *flags, timeout=timeout, crew=self.others)


def test_other_processes_drain_at_the_same_time_and_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = OthersRig(monkeypatch)
    rig.kill()
    assert (rig.others.drains, rig.others.gives_up) == (1, 0)
    rig.wait(5)
    # It speaks for them all, to probes and scrapes.
    assert (rig.status(b"/health"), rig.status(b"/ready"), rig.open) == (200, 503, True)
    assert rig.reactor.stops == 0
    rig.others.at_work = False
    rig.wait(0.25)
    assert (rig.reactor.stops, rig.others.kills, rig.open) == (1, 0, False)


def test_those_that_overstay_are_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = OthersRig(monkeypatch, timeout=3.0)
    rig.kill()
    rig.wait(3.0 + OVERSTAY - 0.25)
    assert (rig.others.kills, rig.reactor.stops) == (0, 0)
    rig.wait(0.5)
    assert rig.others.kills > 0
    assert rig.reactor.stops == 0, "until they are gone"
    rig.others.at_work = False
    rig.wait(0.25)
    assert rig.reactor.stops == 1


def test_the_loss_of_one_ends_all_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = OthersRig(monkeypatch)
    client = post(rig, CHAT, max_tokens=50)
    with capturedLogs():
        rig.others.on_loss()
    assert (rig.others.drains, rig.others.gives_up, rig.exit_code.code) == (1, 1, 1)
    rig.wait(0.25)
    assert reply_of(client).status == 503
    assert rig.reactor.stops == 0
    rig.wait(OVERSTAY)
    assert rig.others.kills > 0
    rig.others.at_work = False
    rig.wait(0.25)
    assert rig.reactor.stops == 1


def test_a_second_signal_does_not_wait_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = OthersRig(monkeypatch)
    rig.kill()
    rig.kill()
    assert (rig.others.drains, rig.reactor.stops) == (1, 1)


def test_a_drain_without_signals_begins_when_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DrainRig(monkeypatch, noted=None)
    assert (rig.installed, rig.masked) == ({}, [])
    with capturedLogs():
        rig.drain.begin("end of input")
    assert rig.reactor.stops == 1


def test_all_ranks_of_a_process_drain_together(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DrainRig(monkeypatch, timeout=4.0)
    second = RankRig(*PACED)
    second.rank.context.ready = True
    rig.drain = Drain(
        [rig.rank, second.rank],
        4.0,
        rig.clock,
        rig.reactor,
        rig.close_ports,
        rig.exit_code,
    )
    client = post(second, CHAT, max_tokens=50)
    with capturedLogs() as logged:
        rig.drain.begin("SIGTERM")
    assert "1 running and 0 waiting" in logged[0]["log_format"].format(**logged[0])
    rig.wait(3.5)
    assert (second.rank.context.draining, rig.reactor.stops, rig.status(b"/health")) == (True, 0, 200)
    rig.wait(0.75)
    assert reply_of(client).status == 503
    rig.wait(FLUSH)
    assert rig.reactor.stops == 1


def test_the_log_tells_what_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DrainRig(monkeypatch, timeout=2.5)
    for _ in range(3):
        post(rig, CHAT)
    with capturedLogs() as logged:
        rig.drain.begin("SIGTERM")
    (event,) = logged
    told = event["log_format"].format(**event)
    assert "SIGTERM" in told
    assert "1 running and 2 waiting" in told
    assert "2.5 seconds" in told


def test_metrics_and_load_are_true_while_draining(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DrainRig(monkeypatch)
    for _ in range(3):
        post(rig, CHAT)
    rig.kill()
    client = rig.connect().send(get(b"/load"))
    assert json.loads(reply_of(client).body) == {"server_load": 3}


class SlowDrainRig(DrainRig):
    """Its clock passes as the real one does, so that a long prompt is still being counted after a few."""

    clock_type = PassClock


LONG = {"messages": [{"role": "user", "content": "世" * 100_000}]}
ROOM = (*PACED, "--max-model-len", "200000")


def test_a_long_prompt_taken_before_the_drain_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = SlowDrainRig(monkeypatch, *ROOM)
    client = post(rig, CHAT, **LONG, max_tokens=1)
    rig.kill()
    rig.wait(0.5)
    assert (rig.rank.engine.idle, rig.reactor.stops) == (True, 0)
    rig.wait(10)
    assert reply_of(client).status == 200
    assert (client.fate, rig.reactor.stops) == ("closed", 1)


def test_a_long_prompt_that_takes_longer_than_the_drain_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = SlowDrainRig(monkeypatch, *ROOM, timeout=0.5)
    client = post(rig, CHAT, **LONG, max_tokens=1)
    rig.kill()
    rig.wait(1)
    reply = reply_of(client)
    assert (reply.status, reply.error["error"]["code"]) == (503, 503)
    assert (client.fate, rig.reactor.stops) == ("closed", 1)
    assert not rig.rank.context.turns.busy
