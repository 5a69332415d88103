"""Where a client is, as text."""

from __future__ import annotations

from typing import Any

import pytest
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress

from tests.wire.channel import Server


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (IPv4Address("TCP", "192.0.2.1", 1234), "192.0.2.1:1234"),
        (IPv6Address("TCP", "2001:db8::1", 1234), "[2001:db8::1]:1234"),
        (IPv6Address("TCP", "::ffff:192.0.2.1", 1234), "192.0.2.1:1234"),
        (UNIXAddress(None), "unix"),
        (UNIXAddress("/run/client"), "unix"),
    ],
)
def test_it_is_asked_for_once(address: Any, shown: str) -> None:
    client = Server().connect()
    asked: list[None] = []

    def get_peer() -> Any:
        asked.append(None)
        return address

    client.send(b"GET")
    client.transport.getPeer = get_peer  # type: ignore[method-assign]
    assert client.protocol.peer == client.protocol.peer == shown
    assert len(asked) == 1
