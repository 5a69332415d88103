"""The topic under which routers find out whose events they are."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import ip_address

#: Addresses of documentation, which no route is made for; nothing is sent there.
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))


def topic_of(ip: str, port: int, model: str) -> str:
    """`kv@IP:PORT@MODEL`. Nothing in it is escaped or put in brackets, since routers compare it as it is."""
    return f"kv@{ip}:{port}@{model}"


def host_address(host: str) -> str:
    """The address by which this server can be reached: `host` if that is one, else what others would see."""
    try:
        if not ip_address(host).is_unspecified:
            return host
    except ValueError:
        pass
    return next(_own_addresses(), "127.0.0.1")


def _own_addresses() -> Iterator[str]:
    for family, elsewhere in _ELSEWHERE:
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:
                # Has the system choose our address for that way, and sends nothing.
                probe.connect((elsewhere, 9))
                yield probe.getsockname()[0]
        except OSError:
            continue
