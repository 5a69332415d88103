"""Which descriptors are taken for systemd's."""

from __future__ import annotations

import os

import pytest

from llmdsim.services.inherited import inherited_sockets

ME = str(os.getpid())


@pytest.mark.parametrize(
    ("environ", "descriptors"),
    [
        ({"LISTEN_PID": ME, "LISTEN_FDS": "1"}, (3,)),
        ({"LISTEN_PID": ME, "LISTEN_FDS": "3"}, (3, 4, 5)),
        ({"LISTEN_PID": ME, "LISTEN_FDS": "2", "LISTEN_FDNAMES": "http:admin"}, (3, 4)),
        ({"LISTEN_PID": f" {ME} ", "LISTEN_FDS": " 1\n"}, (3,)),
        ({"LISTEN_PID": ME, "LISTEN_FDS": "0"}, ()),
        ({"LISTEN_PID": ME, "LISTEN_FDS": "-1"}, ()),
        # Meant for a parent of ours, or another child.
        ({"LISTEN_PID": str(os.getppid()), "LISTEN_FDS": "1"}, ()),
        ({"LISTEN_PID": "1", "LISTEN_FDS": "1"}, ()),
        ({"LISTEN_PID": ME}, ()),
        ({"LISTEN_FDS": "1"}, ()),
        ({}, ()),
        ({"LISTEN_PID": "", "LISTEN_FDS": "1"}, ()),
        ({"LISTEN_PID": ME, "LISTEN_FDS": ""}, ()),
        ({"LISTEN_PID": ME, "LISTEN_FDS": "one"}, ()),
        ({"LISTEN_PID": ME, "LISTEN_FDS": "1.0"}, ()),
        ({"LISTEN_PID": "self", "LISTEN_FDS": "1"}, ()),
    ],
)
def test_sockets_are_those_addressed_to_this_process(
    environ: dict[str, str], descriptors: tuple[int, ...]
) -> None:
    given = dict(environ)
    assert inherited_sockets(environ) == descriptors
    assert environ == given
