"""How clients are named."""

from __future__ import annotations

from typing import Any


def peer_name(transport: Any) -> str:
    """The address and port of the other side, or `unix`."""
    address = transport.getPeer()
    host = getattr(address, "host", None)
    if host is None:
        return "unix"
    # On a socket for both, IPv4 comes as a form of IPv6.
    host = host.removeprefix("::ffff:")
    return f"[{host}]:{address.port}" if ":" in host else f"{host}:{address.port}"
