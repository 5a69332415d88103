"""What the main process and those of its ranks tell each other over pipes: all they need, then lines."""

from __future__ import annotations

import os
import pickle
import signal
from typing import Any, NamedTuple

import msgspec

from llmdsim.config import Config
from llmdsim.services.tls import Setup

#: Descriptors of a rank's process beside the standard ones: what it tells, what it logs, and the first of
#: its listening sockets. What it is told comes by its standard input.
TOLD, LOGGED, FIRST_SOCKET = 3, 4, 5

#: Signals that a terminal or a supervisor may send to all processes of a group; the main one answers for all.
GROUP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)


class Server(NamedTuple):
    """What all ranks of a server have in common.

    `config` is what was made of `argv`, the environment and `file`, which may be read again. `engine_id` is
    as in `Rank`, and `twistds_own` says that lines go to a log of twistd's. `tokenizer` is the folder with
    the tokenizer's files, "" for the built-in one; `tls` is what connections are encrypted by.
    """

    config: Config
    argv: tuple[str, ...]
    file: str
    engine_id: str
    twistds_own: bool
    tokenizer: str = ""
    tls: Setup | None = None


class Handover(NamedTuple):
    """What the process of rank `number` begins with; `inherited` of its `sockets` were opened by systemd."""

    server: Server
    number: int
    sockets: int
    inherited: int

    def packed(self) -> bytes:
        """As it goes over the pipe."""
        data = pickle.dumps(self)
        return len(data).to_bytes(4, "big") + data


def receive(descriptor: int) -> Handover | None:
    """The handover that comes first; None where the other end was closed before it was complete."""
    size = _read(descriptor, 4)
    if size is None:
        return None
    data = _read(descriptor, int.from_bytes(size, "big"))
    # The pipe is of the process that started this one.
    return None if data is None else pickle.loads(data)


def _read(descriptor: int, size: int) -> bytes | None:
    """Exactly so many bytes: what comes behind them is for somebody else."""
    data = b""
    while len(data) < size:
        part = os.read(descriptor, size - len(data))
        if not part:
            return None
        data += part
    return data


def line(word: bytes, number: int, what: object) -> bytes:
    """A message about something that is known by a number, as one line."""
    return b"%b %d %b\n" % (word, number, msgspec.json.encode(what))


def read_line(rest: bytes, kind: Any) -> tuple[int, Any]:
    """The number and the object, which is of this `kind`, of such a message without its word."""
    number, _, what = rest.partition(b" ")
    return int(number), msgspec.json.decode(what, type=kind)


class LineBuffer:
    """Puts together the lines of a pipe."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are complete now, without their ends."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines
