"""Sockets handed over to a daemon as systemd does."""

import socket
import sys
from collections.abc import Sequence

#: systemd's side of socket activation: LISTEN_PID must name the process that execs.
_HAND_OVER = """
import fcntl, os, sys
names, count = sys.argv[1], sys.argv[2]
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=count, LISTEN_FDNAMES=names)
descriptors = [int(d) for d in sys.argv[3].split(",")]
# High, so that putting one in its place cannot close another.
copies = [fcntl.fcntl(d, fcntl.F_DUPFD_CLOEXEC, 100) for d in descriptors]
for place, copy in enumerate(copies, start=3):
    os.dup2(copy, place, inheritable=True)
os.execv(sys.argv[4], sys.argv[4:])
"""


def handing_over(sockets: Sequence[socket.socket], command: Sequence[str]) -> tuple[str, ...]:
    """The command line that runs `command` with these listening sockets, which it has to inherit."""
    names = ":".join(f"s{index}" for index in range(len(sockets)))
    descriptors = ",".join(str(one.fileno()) for one in sockets)
    return (sys.executable, "-c", _HAND_OVER, names, str(len(sockets)), descriptors, *command)
