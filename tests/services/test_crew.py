"""The processes of ranks: what they are started with, how they are told of things, and how they end."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

import pytest
from twisted.logger import capturedLogs

from llmdsim.config import parse, rank_config
from llmdsim.services.crew import in_processes
from llmdsim.services.messages import GROUP_SIGNALS
from tests.services.ranks_rig import Ranks, handover_of
from tests.web.clients import CHAT, fields
from tests.wire.channel import read_replies


def started(*flags: str) -> Ranks:
    return Ranks("-dp", "3", *flags, processes=True).start()


@pytest.mark.parametrize(
    ("flags", "cores", "expected"),
    [
        ((), 8, False),
        (("-dp", "2"), 2, True),
        (("-dp", "2"), 1, False),
        (("-dp", "2", "--data-parallel-mode", "process"), 1, True),
        (("-dp", "2", "--data-parallel-mode", "inline"), 8, False),
        (("--data-parallel-mode", "process"), 8, False),
        (("-dp", "2", "-dpn", "1", "--data-parallel-mode", "process"), 8, False),
    ],
)
def test_ranks_have_processes_where_that_gains_something(
    flags: tuple[str, ...], cores: int, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    assert in_processes(parse(["--model", "m", *flags], {})) is expected


def test_a_process_is_started_with_its_sockets_and_no_secret() -> None:
    made = started("--api-key", "hush")
    for number, process in enumerate(made.processes, start=1):
        settings = process.settings
        assert settings["executable"] == sys.executable
        assert settings["args"] == [
            sys.executable, "-P", "-m", "llmdsim.services.rank_process", str(number)
        ]  # fmt: skip
        assert settings["childFDs"] == {0: "w", 1: 1, 2: 2, 3: "r", 4: "r", 5: 50 + number}
        assert "hush" not in str(settings)
        assert made.held[number - 1].handed_over == 1
        handover = handover_of(process)
        assert handover == (made.server, number, 1, 0)
        assert handover.server.config.api_key == ("hush",)
        assert rank_config(handover.server.config, number) == made.held[number - 1].config


def test_a_standard_stream_that_is_closed_is_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "__stdout__", None)
    assert 1 not in started().processes[0].settings["childFDs"]


def test_signals_wait_while_processes_are_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """They inherit the mask, and have not said yet that they ignore them."""
    made = Ranks("-dp", "2", processes=True)
    masks: list[Any] = []
    spawn = made.reactor.spawnProcess

    def spawning(*arguments: Any, **settings: Any) -> None:
        masks.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        spawn(*arguments, **settings)

    monkeypatch.setattr(made.reactor, "spawnProcess", spawning)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    made.crew.startService()
    assert masks[0] >= set(GROUP_SIGNALS)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def test_all_are_ready_when_the_last_is() -> None:
    made = Ranks("-dp", "3", processes=True)
    told: list[None] = []
    made.crew.ready.addCallback(told.append)
    made.crew.startService()
    for process in made.processes:
        assert told == []
        process.up(made.rigs[process.number])
        made.settle()
    assert told == [None]


@pytest.mark.parametrize("flags", [(), ("-dp", "3")])
def test_without_processes_there_is_nothing_to_wait_for(flags: tuple[str, ...]) -> None:
    made = Ranks(*flags).start()
    assert made.crew.ready.called
    assert not made.crew.at_work
    made.crew.drain()
    assert made.crew.stopService().called


def test_lines_of_a_process_are_written_as_they_come() -> None:
    made = started()
    made.processes[0].logs(b"0one\n1tw")
    made.processes[1].logs(b"2three\n")
    made.processes[0].logs(b"o\n0four\n0five\n")
    assert made.memory.writes == [b"one\n", b"three\n", b"two\n", b"four\nfive\n"]


def test_a_word_reaches_every_process() -> None:
    made = Ranks("-dp", "3", processes=True)
    made.crew.startService()
    heard: list[int] = []
    for process in made.processes:
        process.up(made.rigs[process.number], {b"reload": lambda n=process.number: heard.append(n)})  # type: ignore[misc]
    made.crew.broadcast(b"reload")
    made.settle()
    assert heard == [1, 2]


def test_draining_closes_their_input_and_waits_for_them() -> None:
    made = started()
    made.crew.drain()
    assert [process.input_open for process in made.processes] == [False, False]
    for process in made.processes:
        assert made.crew.at_work
        with capturedLogs() as logged:
            process.end()
        assert logged == []
    assert not made.crew.at_work
    assert made.losses == 0


@pytest.mark.parametrize(
    ("code", "number", "how"),
    [(None, 9, "killed by SIGKILL"), (3, None, "exit code 3"), (0, None, "exit code 0")],
)
def test_a_process_that_ends_by_itself_takes_the_server_down(
    code: int | None, number: int | None, how: str
) -> None:
    made = started()
    with capturedLogs() as logged:
        made.processes[1].end(code, number)
    (event,) = logged
    assert event["log_level"].name == "error"
    assert event["log_format"].format(**event) == (
        f"rank 2 (process 101) ended by itself, {how}: so does the server"
    )
    assert made.losses == 1
    gone = made.crew.stopService()
    assert made.processes[0].signals == ["KILL"]
    assert not gone.called
    with capturedLogs() as logged:
        made.processes[0].end(None, 9)
    assert logged == []
    assert gone.called
    assert made.losses == 1


def test_they_may_be_told_to_give_up_and_then_have_a_bad_exit_code() -> None:
    made = Ranks("-dp", "2", processes=True)
    made.crew.startService()
    (process,) = made.processes
    heard: list[str] = []
    process.up(made.rigs[1], {b"give-up": lambda: heard.append("give-up")})
    made.crew.drain(at_once=True)
    made.settle()
    assert (heard, process.input_open) == (["give-up"], False)
    with capturedLogs() as logged:
        process.end(1)
    assert (logged, made.losses) == ([], 0)


def test_one_that_dies_while_it_drains_is_told() -> None:
    made = started()
    made.crew.drain()
    with capturedLogs() as logged:
        made.processes[0].end(None, 11)
    (event,) = logged
    assert event["log_format"].format(**event) == "rank 1 (process 100) ended, killed by SIGSEGV"
    assert made.losses == 0


def test_those_that_stay_too_long_are_killed_once() -> None:
    made = started()
    made.crew.drain()
    made.processes[0].end()
    with capturedLogs() as logged:
        made.crew.kill()
        made.crew.kill()
    assert [event["log_format"].format(**event) for event in logged] == [
        "rank 2 (process 101) is still there: killed"
    ]
    assert [process.signals for process in made.processes] == [[], ["KILL"]]


def test_one_that_has_just_ended_need_not_be_killed() -> None:
    made = started()
    made.processes[0].ended = True
    with capturedLogs():
        made.crew.kill()
    assert made.processes[0].signals == []


@pytest.mark.parametrize("how", ["drained", "dead"])
@pytest.mark.parametrize("asked", [0, 2])
def test_a_rank_that_is_leaving_answers_for_nothing(how: str, asked: int) -> None:
    made = started()
    process = made.processes[0]
    with capturedLogs():
        if how == "drained":
            process.protocol.release()
        else:
            process.end(None, 9)
    reply = made.post(asked, "/pause?all_ranks=1")
    assert reply.status == 502
    assert "rank 1 answered 503: The rank has ended" in reply.error["error"]["message"]


def test_one_that_dies_while_it_is_asked_is_answered_for() -> None:
    made = started("--time-to-first-token", "1s")
    made.send(1, CHAT, fields(CHAT))
    client = made.send(0, "/pause?all_ranks=1&mode=wait")
    made.settle()
    assert client.received == b""
    with capturedLogs():
        made.processes[0].end(None, 9)
    (reply,) = read_replies(client.received, [b"POST"], ended=False)
    assert (reply.status, b"rank 1 answered 503" in reply.body) == (502, True)


def test_a_rank_whose_input_ends_hears_of_it_and_asks_no_more() -> None:
    made = started("--time-to-first-token", "1s")
    process = made.processes[0]
    assert process.control is not None
    made.send(0, CHAT, fields(CHAT))
    waiting = made.send(1, "/pause?all_ranks=1&mode=wait")
    made.settle()
    process.control.connectionLost()
    assert process.ends == 1
    late = made.send(1, "/resume?all_ranks=1")
    for client in (waiting, late):
        (reply,) = read_replies(client.received, [b"POST"], ended=client.fate != "open")
        assert reply.status == 503
