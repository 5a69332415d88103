"""Ranks in memory with a gate before them, and the ports they serve."""

from __future__ import annotations

import copy

from tests.web.rig import RankRig
from tests.wire.channel import Reply, get, read_replies


def ask(rig: RankRig, path: bytes, *headers: bytes, method: bytes = b"GET") -> Reply:
    """One request without a body, over a connection of its own, and its response."""
    client = rig.connect().send(get(path, *headers, method=method))
    (reply,) = read_replies(client.received, [method], client.fate != "open")
    assert reply.complete
    return reply


def admin_port(rig: RankRig) -> RankRig:
    """The same rank, reached by its port for administration."""
    other = copy.copy(rig)
    public, other.site = rig.rank.sites
    assert public is rig.site
    return other
