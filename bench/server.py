"""The server under measurement: started on a free loopback port, watched through /proc, stopped again."""

from __future__ import annotations

import http.client
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

READY_WITHIN = 30.0  # seconds
STOP_WITHIN = 15.0


def processes(pid: int) -> Iterator[int]:
    """`pid` and its living descendants."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found = children.read_text().split()
        except OSError:  # the thread ended meanwhile
            continue
        for child in found:
            yield from processes(int(child))


def cpu_seconds(pid: int) -> float:
    """CPU time of `pid` and its living descendants, all threads."""
    total = 0.0
    for each in processes(pid):
        try:
            # What clock_getcpuclockid gives for a process: nanoseconds, where /proc/PID/stat counts 10 ms.
            total += time.clock_gettime((~each << 3) | 2)
        except OSError:  # it ended meanwhile
            continue
    return total


def memory_mb(pid: int) -> float:
    """Resident memory of `pid` and its living descendants, MiB."""
    pages = 0
    for each in processes(pid):
        try:
            pages += int(Path(f"/proc/{each}/statm").read_text().split()[1])
        except OSError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody listens on just now.

    None is among those that systems give to clients: any of these may be taken before it is used.
    """
    while True:
        first = random.randrange(20000, 32000)
        try:
            with ExitStack() as held:
                for port in range(first, first + count):
                    held.enter_context(socket.create_server(("127.0.0.1", port)))
        except OSError:
            continue
        return first


class Server:
    """A running server; `boot` is the seconds from its start to the first 200 on /v1/models.

    It has `ports` in a row for itself, from `port` on.
    """

    def __init__(self, command: str, flags: Sequence[str], cpu: int | None, ports: int = 1) -> None:
        self.port = free_ports(ports)
        argv = [*shlex.split(command), *flags, "--port", str(self.port)]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115, closed in __exit__
        mine = os.sched_getaffinity(0)
        if cpu is not None:  # inherited: some runtimes size their thread pools by it when they start
            os.sched_setaffinity(0, {cpu})
        started = time.monotonic()
        try:
            self._process = subprocess.Popen(
                argv,
                # What is measured has nothing to do with a network.
                env={**os.environ, "HF_HUB_OFFLINE": "1"},
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
        finally:
            os.sched_setaffinity(0, mine)
        self.pid = self._process.pid
        try:
            while not self._answers():
                if self._process.poll() is not None or time.monotonic() - started > READY_WITHIN:
                    self._log.seek(0)
                    tail = self._log.read()[-2000:].decode(errors="replace")
                    sys.exit(f"the server did not come up: {shlex.join(argv)}\n{tail}")
                time.sleep(0.005)
        except BaseException:
            self.stop()
            raise
        self.boot = time.monotonic() - started

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=1)
        try:
            connection.request("GET", "/v1/models")
            return connection.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    @property
    def exit_code(self) -> int | None:
        """Of the process, once it has ended."""
        return self._process.poll()

    def wait(self) -> int | None:
        """The exit code of a process that was told to end, or None when it does not."""
        try:
            return self._process.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            return None

    def output(self) -> str:
        """What it has written so far."""
        return os.pread(self._log.fileno(), os.fstat(self._log.fileno()).st_size, 0).decode(errors="replace")

    def stop(self) -> None:
        """Ends the process group that this object started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._process.poll() is not None:
                break
            os.killpg(self.pid, number)
            try:
                self._process.wait(STOP_WITHIN)
            except subprocess.TimeoutExpired:
                continue
        self._log.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
