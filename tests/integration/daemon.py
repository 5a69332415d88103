"""A real daemon in a process of its own, on a free port of the loopback, and proof that it ended well."""

import contextlib
import itertools
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from tests.integration.client import Client

BIN = Path(sys.executable).parent
TWISTD = (str(BIN / "twistd"), "-n", "--pidfile=", "llmdsim")
CONSOLE_SCRIPT = (str(BIN / "llmdsim"),)
MODULE = (sys.executable, "-m", "llmdsim")

#: Seconds a daemon may take to come up or to end; far above what it needs, so that a busy machine will do.
PATIENCE = 20.0

#: What the output of a daemon that ran well has nothing of.
COMPLAINTS = ("Traceback", "Unhandled", " ERROR ", " CRITICAL ", '"level":"ERROR"', '"level":"CRITICAL"')


def _starts() -> Iterator[int]:
    """First ports in turn, each worker's its own.

    None of them is among those that systems give to clients, on Linux from 32,768, and elsewhere from 49,152:
    any of these may be taken between its choice and its use.
    """
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    mine = range(20000 + worker * PORTS_IN_A_ROW, 32000, WORKERS * PORTS_IN_A_ROW)
    at = random.randrange(len(mine))
    return itertools.cycle([*mine[at:], *mine[:at]])


#: Ports in a row that a test may ask for, and workers that have ports of their own.
PORTS_IN_A_ROW, WORKERS = 8, 16

_STARTS = _starts()

_OURS = re.compile(r"SIM_|POD_|VLLM_|PYTHONHASHSEED|LISTEN_|.*_proxy$", re.IGNORECASE)


def free_port() -> int:
    """A port nobody listens on just now."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """The first of so many ports in a row that nobody listens on just now."""
    assert count <= PORTS_IN_A_ROW
    while True:
        first = next(_STARTS)
        try:
            with contextlib.ExitStack() as held:
                for port in range(first, first + count):
                    held.enter_context(socket.socket()).bind(("0.0.0.0", port))
        except OSError:
            continue
        return first


def clean_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's environment without what the daemon would read from it, and `extra`."""
    kept = {name: value for name, value in os.environ.items() if not _OURS.match(name)}
    return {**kept, **(extra or {})}


def run(
    *arguments: str,
    command: Sequence[str] = TWISTD,
    environ: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `command` with `arguments` to its end, which must come by itself."""
    return subprocess.run(
        [*command, *arguments],
        env=clean_environment(environ),
        cwd=cwd or tempfile.gettempdir(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


class Daemon:
    """Use it in a `with`: it is up inside, and has ended in good order after.

    `flags` go to the daemon; `--model` and `--port` are added where they are not among them. With `ranks`,
    there are as many ports from `port` on.
    """

    def __init__(
        self,
        *flags: str,
        command: Sequence[str] = TWISTD,
        environ: Mapping[str, str] | None = None,
        model: str | None = "m",
        port: int | None = None,
        host: str = "127.0.0.1",
        inherit: Sequence[int] = (),
        ranks: int = 1,
    ) -> None:
        self.model = model or ""
        self.port = port or free_ports(ranks)
        self.client = Client(self.port, host)
        self.ended = False
        self._out, self._err = _new_file(), _new_file()
        given = list(flags)
        if model is not None:
            given += ["--model", model]
        if port is None:
            given += ["--port", str(self.port)]
        if ranks > 1:
            given += ["--data-parallel-size", str(ranks)]
        self.clients = [Client(self.port + rank, host) for rank in range(ranks)]
        self.process = subprocess.Popen(
            [*command, *given],
            env=clean_environment(environ),
            cwd=tempfile.gettempdir(),
            stdin=subprocess.DEVNULL,
            stdout=self._out,
            stderr=self._err,
            pass_fds=inherit,
            # A group of its own, to which a test can send a signal as a terminal does.
            process_group=0,
        )

    @property
    def base_url(self) -> str:
        return f"http://{self.client.host}:{self.port}"

    @property
    def stderr(self) -> str:
        """Its log, and what else it says there."""
        return _content(self._err)

    @property
    def stdout(self) -> str:
        return _content(self._out)

    def wait_until_ready(self) -> None:
        """Return when the daemon has announced itself on stderr, which it does once it serves."""
        deadline = time.monotonic() + PATIENCE
        while "llmdsim serves" not in self.stderr:
            assert self.process.poll() is None, f"ended at once\n{self.stdout}\n{self.stderr}"
            assert time.monotonic() < deadline, f"not up in {PATIENCE} s\n{self.stdout}\n{self.stderr}"
            time.sleep(0.02)

    def signal(self, number: int) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def wait(self, patience: float = PATIENCE) -> int:
        """Its exit code, once it has ended."""
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still there after {patience} s\n{self.stdout}\n{self.stderr}") from None

    def end(self) -> None:
        """SIGTERM, and everything that a good end is: exit code 0, and no complaint in any output."""
        if not self.ended:
            self.ended = True
            try:
                if self.process.poll() is None:
                    self.signal(signal.SIGTERM)
                code = self.wait()
                output = self.stdout + self.stderr
                assert code == 0, output
                for complaint in COMPLAINTS:
                    assert complaint not in output, output
            finally:
                self.kill()

    def kill(self) -> None:
        """Make sure that nothing is left."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.ended = True
        self._out.close()
        self._err.close()

    def __enter__(self) -> "Daemon":
        try:
            self.wait_until_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.end()
        else:
            self.kill()


class Pool:
    """Daemons by their flags, each started at its first use and shared from then on."""

    def __init__(self) -> None:
        self._daemons: dict[tuple[str, ...], Daemon] = {}

    def __call__(self, *flags: str) -> Daemon:
        daemon = self._daemons.get(flags)
        if daemon is None:
            daemon = Daemon(*flags).__enter__()
            self._daemons[flags] = daemon
        return daemon

    def end(self) -> None:
        """End them all, and say what went wrong with any."""
        problems = []
        for daemon in self._daemons.values():
            try:
                daemon.end()
            except AssertionError as problem:
                problems.append(str(problem))
        self._daemons.clear()
        assert not problems, "\n".join(problems)


#: One pool for all folders of tests that start daemons.
SHARED = Pool()


def _new_file() -> IO[bytes]:
    return tempfile.TemporaryFile()


def _content(file: IO[bytes]) -> str:
    # Read by position: the descriptor, and so its offset, is the daemon's too.
    return os.pread(file.fileno(), 1 << 22, 0).decode(errors="replace")
