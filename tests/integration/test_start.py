"""The ways to start it, the ways starting fails, and the daemonized form."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import llmdsim
from tests.integration.client import Client, eventually
from tests.integration.daemon import (
    BIN,
    COMPLAINTS,
    CONSOLE_SCRIPT,
    MODULE,
    PATIENCE,
    TWISTD,
    Daemon,
    clean_environment,
    free_port,
    run,
)

pytestmark = pytest.mark.integration

WAYS = pytest.mark.parametrize("command", [TWISTD, CONSOLE_SCRIPT, MODULE], ids=["twistd", "llmdsim", "-m"])


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    """The one line on stderr of a start that failed."""
    assert done.returncode != 0
    (line,) = done.stderr.splitlines()
    assert line.startswith("llmdsim: ")
    assert "Traceback" not in done.stdout + done.stderr
    return line


@WAYS
def test_every_way_to_start_serves_and_ends_well(command: tuple[str, ...]) -> None:
    with Daemon("--force-dummy-tokenizer", command=command) as daemon:
        assert daemon.client.chat(max_tokens=1).status == 200
        configuration, ready, announcement = daemon.stderr.splitlines()
        assert " INFO readiness: configuration: " in configuration
        assert ready.endswith(f" INFO readiness: ready at http://localhost:{daemon.port}")
        assert f"http://localhost:{daemon.port}" in announcement
        assert daemon.stdout == ""


@WAYS
def test_help_and_version(command: tuple[str, ...]) -> None:
    version = run("--version", command=command)
    assert (version.returncode, version.stdout.strip()) == (0, f"llmdsim {llmdsim.__version__}")
    text = run("--help", command=command)
    assert text.returncode == 0
    assert text.stderr == ""
    for expected in ("Server:", "Latency:", "--time-to-first-token", "(not yet effective)", "$SIM_MODEL"):
        assert expected in text.stdout


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ([], ["--model"]),
        (["--model", "m", "--time-to-first-token", "soon"], ["time-to-first-token", "soon"]),
        (["--model", "m", "--max-num-seqs", "0"], ["max-num-seqs"]),
        (["--model", "m", "--port", "70000"], ["port", "70000"]),
        (["--model", "m", "--mode", "sing"], ["mode", "sing", "echo"]),
        (["--model", "m", "--max-num-sequences", "4"], ["--max-num-sequences", "--max-num-seqs"]),
        (["--model", "m", "--tme-to-first-token", "1s"], ["--time-to-first-token"]),
        (["--model", "m", "--inter-token-latency", "-5ms"], ["inter-token-latency"]),
        (
            ["--model", "m", "--time-to-first-token", "1s", "--time-to-first-token-std-dev", "900ms"],
            ["time-to-first-token-std-dev"],
        ),
        (["--model", "m", "--config", "/nonexistent/llmdsim.yaml"], ["/nonexistent/llmdsim.yaml"]),
        (["--model", "m", "--listen", "quic:1"], ["quic:1"]),
        (["--model", "m", "--listen", "tcp:notaport"], ["tcp:notaport"]),
        (["--model", "m", "--host", "192.0.2.1"], ["192.0.2.1"]),
        (["--model", "m", "--lora", "a"], ["--lora"]),
        (["--model", "m", "--max-running-requests", "4"], ["--max-num-seqs"]),
    ],
    ids=lambda value: " ".join(value[-2:]) if isinstance(value, list) else None,
)
def test_a_failure_to_start_is_one_line(flags: list[str], told: list[str]) -> None:
    line = one_line(run(*flags, command=CONSOLE_SCRIPT))
    for part in told:
        assert part in line


@pytest.mark.parametrize(
    ("yaml", "told"),
    [
        ("model: m\nmax-num-seq: 3\n", ["max-num-seq", "max-num-seqs"]),
        ("model: m\nport: [1, 2]\n", ["port"]),
        ("model: m\nport: 1\nport: 2\n", ["port"]),
        ("model: [unclosed\n", ["llmdsim.yaml"]),
        ("- model\n", ["llmdsim.yaml"]),
        ("model: m\ntime-to-first-token: soon\n", ["time-to-first-token"]),
    ],
)
def test_a_bad_configuration_file_is_one_line(tmp_path: Path, yaml: str, told: list[str]) -> None:
    path = tmp_path / "llmdsim.yaml"
    path.write_text(yaml)
    line = one_line(run("--config", str(path)))
    for part in told:
        assert part in line


@pytest.fixture
def taken() -> Iterator[int]:
    """A port somebody else listens on, on every address."""
    with contextlib.closing(
        socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)
    ) as other:
        yield other.getsockname()[1]


@WAYS
def test_a_taken_port_is_one_line(taken: int, command: tuple[str, ...]) -> None:
    line = one_line(run("--model", "m", "--port", str(taken), command=command))
    assert str(taken) in line
    assert "in use" in line


def test_a_taken_endpoint_is_one_line(taken: int) -> None:
    line = one_line(run("--model", "m", "--listen", f"tcp:{free_port()}", "--listen", f"tcp:{taken}"))
    assert str(taken) in line


class Daemonized:
    """`twistd llmdsim`, which leaves a process behind."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.pidfile = folder / "llmdsim.pid"
        self.logfile = folder / "llmdsim.log"
        self.done = run(
            *(f"--pidfile={self.pidfile}", f"--logfile={self.logfile}", "llmdsim", *flags),
            command=(str(BIN / "twistd"),),
            cwd=folder,
        )

    def log(self) -> str:
        return self.logfile.read_text() if self.logfile.exists() else ""


def test_a_daemonized_start_and_its_end(tmp_path: Path) -> None:
    port = free_port()
    began = time.monotonic()
    started = Daemonized(tmp_path, "--model", "m", "--port", str(port))
    pid = int(started.pidfile.read_text())
    try:
        assert started.done.returncode == 0, started.done.stderr
        assert time.monotonic() - began < PATIENCE / 2
        client = Client(port)
        # The parent returns once the port is open.
        eventually(lambda: client.get("/health/ready").status == 200)
        events = client.chat_stream(max_tokens=3)
        assert events[-1].data == "[DONE]"
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: not started.pidfile.exists())
        eventually(lambda: gone(pid))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for complaint in COMPLAINTS:
        assert complaint not in started.log()
    assert "configuration: " in started.log()
    assert "ready at http://localhost:" in started.log()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # A zombie whose parent is this machine's first process, which may be slow to reap.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_a_daemonized_start_on_a_taken_port_fails_and_does_not_hang(tmp_path: Path, taken: int) -> None:
    began = time.monotonic()
    failed = Daemonized(tmp_path, "--model", "m", "--port", str(taken))
    assert time.monotonic() - began < PATIENCE / 2
    assert failed.done.returncode != 0
    assert str(taken) in failed.done.stderr
    assert "in use" in failed.done.stderr
    assert "Traceback" not in failed.done.stderr
    eventually(lambda: not failed.pidfile.exists())


def test_a_daemonized_start_with_a_wrong_flag_is_one_line(tmp_path: Path) -> None:
    failed = Daemonized(tmp_path, "--model", "m", "--prot", "1")
    assert "--port" in one_line(failed.done)
    assert not failed.pidfile.exists()


def test_it_is_up_soon() -> None:
    began = time.monotonic()
    with Daemon() as daemon:
        assert daemon.client.get("/health/ready").status == 200
        assert time.monotonic() - began < 10


def test_a_closed_stderr_is_no_reason_to_fail() -> None:
    port = free_port()
    process = subprocess.Popen(
        [*TWISTD, "--model", "m", "--port", str(port)],
        env=clean_environment(),
        cwd="/tmp",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    process.stderr.close()
    try:
        client = Client(port)

        def up() -> bool:
            try:
                return client.get("/health/ready").status == 200
            except OSError:
                return False

        eventually(up, PATIENCE)
        process.terminate()
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
