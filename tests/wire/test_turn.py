"""Whole responses wait for the end of the reactor's turn, and never out of order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import capturedLogs

from llmdsim.wire.transport import DirectServer, DirectUnixServer, Turn
from tests.wire.test_transport import FULL, flush
from tests.wire.test_transport import connected as plain


def connected(kind: type[Any], *takes: int | OSError, turn: Turn | None = None) -> tuple[Any, Any, Turn, Any]:
    """A transport of a reactor that has `turn`, or one of its own."""
    turn = turn or Turn()
    transport, fake, reactor = plain(kind, *takes, turn=turn)
    return transport, fake, turn, reactor


KINDS = pytest.mark.parametrize("kind", [DirectServer, DirectUnixServer])


@KINDS
def test_it_is_sent_when_the_turn_ends(kind: type[Any]) -> None:
    transport, fake, turn, _ = connected(kind)
    transport.write_soon(b"one")
    assert fake.taken == []
    turn.end()
    assert fake.taken == [b"one"]
    turn.end()
    assert fake.taken == [b"one"]


@KINDS
def test_a_second_one_does_not_wait_and_takes_the_first_along(kind: type[Any]) -> None:
    transport, fake, _, _ = connected(kind)
    transport.write_soon(b"one")
    transport.write_soon(b"two")
    assert fake.taken == [b"onetwo"]


@KINDS
def test_a_reactor_without_turns_sends_at_once(kind: type[Any]) -> None:
    transport, fake, _ = plain(kind)
    transport.write_soon(b"one")
    assert fake.taken == [b"one"]


@KINDS
def test_what_is_written_meanwhile_goes_behind_it(kind: type[Any]) -> None:
    transport, fake, turn, _ = connected(kind)
    transport.write_soon(b"one")
    transport.write(b"two")
    assert fake.taken == [b"onetwo"]
    turn.end()
    assert fake.taken == [b"onetwo"]


def test_no_more_than_a_few_wait() -> None:
    turn = Turn()
    connections = [connected(DirectServer, turn=turn)[:2] for _ in range(Turn.MOST)]
    for transport, _ in connections[:-1]:
        transport.write_soon(b"x")
    assert all(fake.taken == [] for _, fake in connections)
    connections[-1][0].write_soon(b"x")
    assert all(fake.taken == [b"x"] for _, fake in connections)


@KINDS
@pytest.mark.parametrize("close", ["loseConnection", "loseWriteConnection", "abortConnection"])
def test_closing_sends_it_first(kind: type[Any], close: str) -> None:
    transport, fake, turn, _ = connected(kind)
    transport.write_soon(b"one")
    getattr(transport, close)()
    assert fake.taken == [b"one"]
    turn.end()
    assert fake.taken == [b"one"]


@KINDS
def test_a_full_socket_gets_it_later(kind: type[Any]) -> None:
    transport, fake, turn, reactor = connected(kind, FULL, 2)
    transport.write_soon(b"first")
    turn.end()
    assert fake.taken == []
    transport.write_soon(b"second")
    turn.end()
    flush(transport, reactor)
    assert b"".join(fake.taken) == b"firstsecond"


def test_a_connection_that_broke_meanwhile_stops_no_other() -> None:
    gone, broken, turn, _ = connected(DirectServer)
    other, fake, _, _ = connected(DirectServer, turn=turn)
    gone.write_soon(b"x")
    other.write_soon(b"y")
    gone.connectionLost(_failure())
    turn.end()
    assert (broken.taken, fake.taken) == ([], [b"y"])


def test_a_connection_that_fails_to_send_is_ended_and_logged() -> None:
    bad, _, turn, _ = connected(DirectServer, ValueError("on purpose"))  # type: ignore[arg-type]
    other, fake, _, _ = connected(DirectServer, turn=turn)
    bad.write_soon(b"x")
    other.write_soon(b"y")
    with capturedLogs() as events:
        turn.end()
    assert (len(events), fake.taken, bad._aborting) == (1, [b"y"], True)


@given(
    st.lists(st.tuples(st.sampled_from(["write", "write_soon", "end"]), st.binary(min_size=1, max_size=9)))
)
def test_whatever_the_mixture_order_is_kept(steps: list[tuple[str, bytes]]) -> None:
    transport, fake, turn, _ = connected(DirectServer)
    expected = b""
    for step, data in steps:
        if step == "end":
            turn.end()
        else:
            getattr(transport, step)(data)
            expected += data
    turn.end()
    assert b"".join(fake.taken) == expected


def _failure() -> Any:
    from twisted.internet.error import ConnectionDone
    from twisted.python.failure import Failure

    return Failure(ConnectionDone())
