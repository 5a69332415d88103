"""SIGTERM and SIGINT: what runs may finish, what comes is refused, and the exit code is 0."""

import contextlib
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from tests.integration.client import Client, Connection, eventually, request_bytes
from tests.integration.daemon import CONSOLE_SCRIPT, TWISTD, Daemon, free_port, run

pytestmark = pytest.mark.integration

#: Takes about a second.
STREAM = {"prompt": "a", "max_tokens": 20, "ignore_eos": True, "stream": True}
PACE = ("--inter-token-latency", "50ms", "--max-num-seqs", "2")


def stream_from(daemon: Daemon) -> Connection:
    connection = daemon.client.connect()
    connection.post("/v1/completions", STREAM)
    connection.read_head()
    return connection


def drains(daemon: Daemon) -> bool:
    return daemon.client.get("/health/ready").status == 503


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("command", [TWISTD, CONSOLE_SCRIPT], ids=["twistd", "llmdsim"])
def test_what_runs_finishes_and_what_comes_is_refused(number: int, command: tuple[str, ...]) -> None:
    with Daemon(*PACE, command=command) as daemon:
        with stream_from(daemon) as running, daemon.client.connect() as kept:
            kept.request("GET", "/health")
            assert kept.read_reply().status == 200
            daemon.signal(number)
            eventually(lambda: drains(daemon))
            for reply in (daemon.client.chat(), daemon.client.chat(stream=True), daemon.client.text()):
                assert reply.status == 503
                assert reply.error["type"] == "ServiceUnavailableError"
            assert daemon.client.get("/ready").status == 503
            # Alive, and still to be observed.
            assert daemon.client.get("/health").status == 200
            assert daemon.client.metrics().value("vllm:num_requests_running") == 1
            # A connection from before is refused as well.
            kept.post("/v1/completions", {"prompt": "a"})
            assert kept.read_reply().status == 503
            # And let go, so that its next try may reach another server.
            assert kept.closed_by_server()
            events = list(running.events())
            assert events[-1].data == "[DONE]"
            assert len(events) == 21
        assert daemon.wait() == 0


def test_what_waits_in_the_queue_finishes_too() -> None:
    with Daemon("--inter-token-latency", "20ms", "--max-num-seqs", "1") as daemon:
        with stream_from(daemon) as first, stream_from(daemon) as queued:
            daemon.signal(signal.SIGTERM)
            for connection in (first, queued):
                events = list(connection.events())
                assert events[-1].data == "[DONE]"
                assert len(events) == 21
        assert daemon.wait() == 0


def test_an_idle_daemon_ends_at_once() -> None:
    with Daemon() as daemon, daemon.client.connect() as idle:
        idle.request("GET", "/health")
        assert idle.read_reply().status == 200
        began = time.monotonic()
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0
        # 35 ms, where nothing else runs.
        assert time.monotonic() - began < 1
        assert idle.closed_by_server()


@pytest.mark.parametrize("sent", [b"GET /heal", request_bytes("POST", "/v1/completions", b"x" * 9)[:-5]])
def test_an_unfinished_request_does_not_hold_up_the_end(sent: bytes) -> None:
    with Daemon() as daemon, daemon.client.connect() as unfinished:
        unfinished.send(sent)
        assert daemon.client.get("/health").status == 200
        began = time.monotonic()
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0
        assert time.monotonic() - began < 1
        assert unfinished.closed_by_server()


def test_metrics_are_there_to_the_end() -> None:
    """On connections kept and new; what is begun is answered whole."""
    with Daemon(*PACE) as daemon, stream_from(daemon) as running:
        client = daemon.client
        kept = client.connect()
        kept.request("GET", "/metrics")
        assert b"vllm:num_requests_running" in kept.read_reply().body
        daemon.signal(signal.SIGTERM)
        eventually(lambda: drains(daemon))
        scrapes, ended = 0, False
        deadline = time.monotonic() + 10
        while not ended and time.monotonic() < deadline:
            still_running = b"[DONE]" not in running._buffer and not readable(running)
            for connection in (kept, None):
                try:
                    scraped = scrape(client, connection)
                except (ConnectionError, EOFError):
                    assert not still_running, "a scrape was refused while a request ran"
                    ended = True
                else:
                    assert b"vllm:num_requests_running" in scraped
                    scrapes += 1
            while readable(running) and running._more():
                pass
        kept.close()
        assert ended
        assert scrapes > 5
        assert list(running.events())[-1].data == "[DONE]"
        assert daemon.wait() == 0


def readable(connection: Connection) -> bool:
    """Whether there is something to read, were it the end."""
    return bool(select.select([connection.socket], [], [], 0)[0])


def scrape(client: Client, kept: Connection | None) -> bytes:
    """`/metrics` over `kept` or a new connection; EOFError or ConnectionError if nothing is answered."""
    connection = kept or client.connect()
    try:
        connection.request("GET", "/metrics")
        first = connection.socket.recv(1)
        if not first:
            raise EOFError
        connection._buffer += first
        try:
            return connection.read_reply().body
        except (ConnectionError, EOFError):
            raise AssertionError("reset in the middle of an answer") from None
    finally:
        if kept is None:
            connection.close()


def test_a_slow_reader_has_its_reply_within_the_time() -> None:
    flags = ("--mode", "echo", "--max-model-len", "400k", "--shutdown-timeout", "60s")
    with Daemon(*flags) as daemon, daemon.client.connect(narrow=True) as slow:
        slow.post("/v1/completions", {"prompt": "word " * 20_000, "stream": True})
        eventually(lambda: daemon.client.metrics().finished())
        daemon.signal(signal.SIGTERM)
        eventually(lambda: not accepts(daemon) or drains(daemon))
        time.sleep(0.3)
        assert daemon.process.poll() is None
        slow.read_head()
        assert list(slow.events())[-1].data == "[DONE]"
        began = time.monotonic()
        assert daemon.wait() == 0
        assert time.monotonic() - began < 10


def accepts(daemon: Daemon) -> bool:
    with contextlib.suppress(ConnectionError), daemon.client.connect():
        return True
    return False


def test_a_time_of_zero_aborts_at_once() -> None:
    with (
        Daemon("--inter-token-latency", "1s", "--shutdown-timeout", "0") as daemon,
        stream_from(daemon) as running,
        daemon.client.connect() as whole,
    ):
        whole.post("/v1/completions", {**STREAM, "stream": False})
        eventually(lambda: daemon.client.metrics().value("vllm:num_requests_running") == 2)
        began = time.monotonic()
        daemon.signal(signal.SIGTERM)
        *_, error, done = list(running.events())
        assert (error.json["error"]["code"], done.data) == (503, "[DONE]")
        reply = whole.read_reply()
        assert (reply.error["code"], reply.headers["connection"]) == (503, "close")
        assert daemon.wait() == 0
        assert time.monotonic() - began < 3


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGUSR1])
@pytest.mark.parametrize("command", [TWISTD, CONSOLE_SCRIPT], ids=["twistd", "llmdsim"])
def test_signals_that_are_nothing_to_it_end_no_stream(number: int, command: tuple[str, ...]) -> None:
    with Daemon(*PACE, command=command) as daemon, stream_from(daemon) as running:
        running.read_until(b"data: ")
        daemon.signal(number)
        assert daemon.client.get("/health/ready").status == 200
        assert b"[DONE]" in running.read_until(b"[DONE]")


def test_log_rotation_is_twistds_and_breaks_nothing(tmp_path: Path) -> None:
    log = tmp_path / "llmdsim.log"
    twistd = (TWISTD[0], "-n", "--pidfile=", f"--logfile={log}", "llmdsim")
    with Daemon(command=twistd) as daemon:
        daemon.signal(signal.SIGUSR1)
        eventually(lambda: len(list(tmp_path.iterdir())) == 2)
        assert daemon.client.chat(max_tokens=1).status == 200
    assert "Traceback" not in log.read_text()


#: Sends itself a signal as soon as signals are noted, before anything is built.
_EARLY = """
import os, signal, sys
from llmdsim.services import signals
numbers, form = sys.argv.pop(1), sys.argv.pop(1)
note = signals.note_signals
def noting():
    noted = note()
    for number in numbers.split(","):
        os.kill(os.getpid(), int(number))
    return noted
signals.note_signals = noting
if form == "console":
    from llmdsim.__main__ import main
    main(sys.argv[1:])
else:
    from twisted.scripts.twistd import run
    run()
"""


@pytest.mark.parametrize("numbers", ["15", "2", "15,2"])
def test_a_signal_during_start_up_ends_it_quietly(numbers: str) -> None:
    command = (sys.executable, "-c", _EARLY, numbers, "console")
    done = run("--model", "m", "--port", str(free_port()), command=command)
    assert done.returncode == 0
    assert "Traceback" not in done.stdout + done.stderr
    assert "drained" in done.stderr or "stopping now" in done.stderr


@pytest.mark.parametrize("numbers", ["1,10,15", "10,1,2"])
def test_hangup_and_rotation_during_start_up_end_nothing(numbers: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    command = (sys.executable, "-c", _EARLY, numbers, "console")
    flags = ("--model", "m", "--port", str(free_port()), "--log-file", str(log))
    done = run(*flags, command=command)
    assert done.returncode == 0, done.stderr
    eventually(lambda: len(list(tmp_path.iterdir())) == 2)
    assert "drained" in log.read_text() + (tmp_path / "log.1").read_text()


def test_a_signal_during_a_daemonized_start_leaves_nothing_behind(tmp_path: Path) -> None:
    pidfile, log = tmp_path / "pid", tmp_path / "log"
    command = (sys.executable, "-c", _EARLY, "15", "twistd", f"--pidfile={pidfile}", f"--logfile={log}")
    port = free_port()
    done = run("llmdsim", "--model", "m", "--port", str(port), command=command)
    assert done.returncode == 0, done.stderr
    eventually(lambda: log.exists() and "drained" in log.read_text())
    eventually(lambda: not pidfile.exists())
    assert "Traceback" not in log.read_text() + done.stdout + done.stderr
    with pytest.raises(ConnectionRefusedError):
        Client(port).connect()


def test_a_daemonized_one_drains_and_its_pid_file_goes(tmp_path: Path) -> None:
    pidfile, log, port = tmp_path / "pid", tmp_path / "log", free_port()
    flags = ("--model", "m", "--port", str(port), *PACE)
    done = run(f"--pidfile={pidfile}", f"--logfile={log}", "llmdsim", *flags, command=(TWISTD[0],))
    assert done.returncode == 0, done.stderr
    client = Client(port)
    eventually(lambda: client.get("/health/ready").status == 200)
    pid = int(pidfile.read_text())
    try:
        with client.connect() as running:
            running.post("/v1/completions", STREAM)
            running.read_head()
            os.kill(pid, signal.SIGTERM)
            eventually(lambda: client.get("/health/ready").status == 503)
            assert list(running.events())[-1].data == "[DONE]"
        eventually(lambda: not pidfile.exists())
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert "drained" in log.read_text()
    assert "Traceback" not in log.read_text()


def test_signals_to_the_very_end_change_nothing() -> None:
    for _ in range(3):
        with Daemon() as daemon:
            daemon.wait_until_ready()
            for _ in range(10_000):
                daemon.signal(signal.SIGTERM)
                if daemon.process.poll() is not None:
                    break
                time.sleep(0.0005)
            assert daemon.wait() == 0


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(second: int) -> None:
    with Daemon("--inter-token-latency", "1s") as daemon, stream_from(daemon) as running:
        daemon.signal(signal.SIGTERM)
        eventually(lambda: drains(daemon))
        began = time.monotonic()
        daemon.signal(second)
        assert daemon.wait() == 0
        assert time.monotonic() - began < 1
        assert "while draining: stopping now" in daemon.stderr
        running.read_to_end()


def test_the_time_for_draining_is_bounded() -> None:
    with Daemon("--inter-token-latency", "1s", "--shutdown-timeout", "300ms") as daemon:
        with stream_from(daemon) as running, daemon.client.connect() as whole:
            whole.post("/v1/completions", {**STREAM, "stream": False})
            eventually(lambda: daemon.client.metrics().value("vllm:num_requests_running") == 2)
            began = time.monotonic()
            daemon.signal(signal.SIGTERM)
            events = list(running.events())
            assert 0.29 < time.monotonic() - began < 5
            # Whoever is cut off is told so.
            assert events[-1].data == "[DONE]"
            assert events[-2].json["error"]["code"] == 503
            assert whole.read_reply().error["code"] == 503
        assert daemon.wait() == 0


def test_a_client_that_never_reads_does_not_hold_up_the_end() -> None:
    flags = ("--mode", "echo", "--max-model-len", "400k", "--shutdown-timeout", "1s")
    with Daemon(*flags) as daemon, daemon.client.connect() as sleeper:
        sleeper.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sleeper.post("/v1/completions", {"prompt": "word " * 40_000, "stream": True})
        time.sleep(0.3)
        daemon.signal(signal.SIGTERM)
        assert daemon.wait(10) == 0
