"""Which address is told where none is given."""

from __future__ import annotations

import socket
from ipaddress import ip_address

import pytest

from llmdsim.kvevents.topic import host_address, topic_of


def test_r4_the_topic_is_as_routers_split_it() -> None:
    assert topic_of("10.0.0.1", 8000, "org/m").split("@") == ["kv", "10.0.0.1:8000", "org/m"]


@pytest.mark.parametrize("host", ["10.0.0.1", "::1", "fd00::1"])
def test_an_address_listened_on_is_the_one(host: str) -> None:
    assert host_address(host) == host


@pytest.mark.parametrize("host", ["", "0.0.0.0", "::", "localhost"])
def test_else_it_is_one_of_this_machines(host: str) -> None:
    assert not ip_address(host_address(host)).is_unspecified


def test_a_machine_without_routes_has_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object) -> None:
        raise OSError("Network is unreachable")

    monkeypatch.setattr(socket, "socket", unreachable)
    assert host_address("") == "127.0.0.1"
