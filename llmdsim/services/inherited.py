"""Listening sockets that systemd opened for us."""

from __future__ import annotations

import os
from collections.abc import Mapping

#: sd_listen_fds(3): the first descriptor handed over.
FIRST = 3


def inherited_sockets(environ: Mapping[str, str]) -> tuple[int, ...]:
    """The descriptors handed over to this process.

    Must be called before `twisted.internet.endpoints` is imported, which takes them out of the environment,
    and before a fork, which changes the process they are addressed to.
    """
    try:
        addressee, count = int(environ["LISTEN_PID"]), int(environ["LISTEN_FDS"])
    except (KeyError, ValueError):
        return ()
    return tuple(range(FIRST, FIRST + count)) if addressee == os.getpid() else ()
