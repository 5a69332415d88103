"""The log of the real daemon: its forms, its files, and what it tells of requests."""

import contextlib
import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.client import Client, eventually
from tests.integration.daemon import BIN, COMPLAINTS, CONSOLE_SCRIPT, TWISTD, Daemon, free_port, run
from tests.integration.test_start import gone, one_line

pytestmark = pytest.mark.integration

#: A line for people.
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (DEBUG|INFO|WARNING|ERROR|CRITICAL) [\w./]+: .*")
WAYS = pytest.mark.parametrize("command", [TWISTD, CONSOLE_SCRIPT], ids=["twistd", "llmdsim"])


def access_lines(log: str) -> list[str]:
    return [line.partition(" INFO access: ")[2] for line in log.splitlines() if " INFO access: " in line]


@WAYS
def test_lines_for_people_are_on_stderr(command: tuple[str, ...]) -> None:
    with Daemon("--dtype", "auto", command=command) as daemon:
        daemon.signal(signal.SIGTERM)
        daemon.wait()
        lines = daemon.stderr.splitlines()
        assert [line for line in lines if not LINE.fullmatch(line)] == [
            line for line in lines if line.startswith("llmdsim serves")
        ]
        text = daemon.stderr
        for told in (" INFO readiness: configuration: ", " WARNING readiness: ", " INFO drain: drained"):
            assert told in text
        assert "twisted" not in text.replace("twisted.internet", "")
        assert daemon.stdout == ""


@WAYS
def test_with_json_every_line_is_an_object(command: tuple[str, ...]) -> None:
    with Daemon("--log-format", "json", "--access-log", "-v", "5", command=command) as daemon:
        daemon.client.chat("a\nb", max_tokens=2, ignore_eos=True)
        daemon.client.get("/nowhere")
        daemon.signal(signal.SIGTERM)
        daemon.wait()
        events = [json.loads(line) for line in daemon.stderr.splitlines()]
    for event in events:
        assert list(event)[:4] == ["time", "level", "logger", "message"]
    assert sum("llmdsim serves" in event["message"] for event in events) == 1
    chat, nowhere = [event for event in events if event["logger"] == "llmdsim.logs.access"]
    assert (chat["path"], chat["status"], chat["completion_tokens"]) == ("/v1/chat/completions", 200, 2)
    assert nowhere["status"] == 404


@pytest.fixture
def paced() -> Iterator[Daemon]:
    flags = ("--access-log", "--time-to-first-token", "40ms", "--inter-token-latency", "20ms")
    with Daemon(*flags) as daemon:
        yield daemon


def test_access_lines_of_replies_streamed_and_whole(paced: Daemon) -> None:
    client = paced.client
    reply = client.chat(max_tokens=3, ignore_eos=True)
    events = client.chat_stream(max_tokens=3, ignore_eos=True)
    for path in ("/health", "/metrics", "/health/ready", "/ping", "/ready"):
        client.get(path)
    client.get("/version?token=sk-1")
    eventually(lambda: len(access_lines(paced.stderr)) == 3)
    whole, stream, version = access_lines(paced.stderr)
    for line, id in ((whole, reply.json["id"]), (stream, events[0].json["id"])):
        found = re.fullmatch(
            rf'127\.0\.0\.1:\d+ {id} "POST /v1/chat/completions HTTP/1\.1" 200 model=m prompt_tokens=\d+ '
            r"completion_tokens=3 queue_ms=0\.0 ttft_ms=([\d.]+) duration_ms=([\d.]+)",
            line,
        )
        assert found, line
        assert 40 <= float(found[1]) < 1000
        assert 80 <= float(found[2]) < 2000
    assert ' - "GET /version?token=******** HTTP/1.1" 200 ' in version
    assert "sk-1" not in paced.stderr


def test_clients_that_leave_have_their_lines(paced: Daemon) -> None:
    long = {"prompt": "a", "max_tokens": 500, "ignore_eos": True}
    with paced.client.connect() as whole, paced.client.connect() as stream:
        whole.post("/v1/completions", long)
        stream.post("/v1/completions", {**long, "stream": True})
        stream.read_until(b"data: ")
    eventually(lambda: len(access_lines(paced.stderr)) == 2)
    lines = sorted(access_lines(paced.stderr), key=lambda line: '" 499 ' in line)
    assert '" 200 model=m ' in lines[0]
    assert '" 499 model=m ' in lines[1]
    assert all(line.endswith(" aborted") for line in lines)


def test_requests_in_full_without_their_secrets() -> None:
    with Daemon("--log-http") as daemon:
        with daemon.client.connect() as connection:
            connection.post("/v1/completions", {"prompt": "one two"}, Authorization="Bearer sk-1")
            connection.read_reply()
        daemon.client.ask("GET", "/" + "x" * 70_000)
        eventually(lambda: daemon.stderr.count(" INFO http_dump: ") == 4)
        assert "authorization: Bearer ********" in daemon.stderr
        assert '{"prompt": "one two"}' in daemon.stderr
        assert '"object":"text_completion"' in daemon.stderr
        assert "response: 414 to GET" in daemon.stderr
        assert "sk-1" not in daemon.stderr


def test_verbosity() -> None:
    with Daemon("-v", "1", "--access-log", "--dtype", "auto", "--force-dummy-tokenizer") as daemon:
        daemon.client.chat(max_tokens=1)
        daemon.signal(signal.SIGTERM)
        daemon.wait()
        told = [line for line in daemon.stderr.splitlines() if LINE.fullmatch(line)]
    assert len(told) == 1
    assert " WARNING readiness: accepted for vLLM's sake" in told[0]
    with Daemon("-v4") as daemon:
        daemon.client.chat(max_tokens=1)
        assert " DEBUG account: chatcmpl-" in daemon.stderr
        assert re.search(r" DEBUG twisted: Site starting on \d+", daemon.stderr)


def test_a_busy_engine_tells_its_throughput() -> None:
    with Daemon("--inter-token-latency", "10ms", "--log-stats-interval", "200ms") as daemon:
        daemon.client.chat_stream(max_tokens=100, ignore_eos=True)
        assert re.search(
            r" INFO stats_line: Engine 000: Avg prompt throughput: [\d.]+ tokens/s, "
            r"Avg generation throughput: [1-9][\d.]+ tokens/s, Running: 1 reqs, Waiting: 0 reqs, "
            r"GPU KV cache usage: 0.0%\n",
            daemon.stderr,
        )


@WAYS
def test_log_files(tmp_path: Path, command: tuple[str, ...]) -> None:
    path = tmp_path / "llmdsim.log"
    with Daemon("--log-file", str(path), command=command) as daemon:
        assert daemon.stderr.count("\n") == 1, "nothing but the announcement"
        daemon.signal(signal.SIGUSR1)
        eventually((tmp_path / "llmdsim.log.1").exists)
        daemon.signal(signal.SIGTERM)
        daemon.wait()
    assert " INFO readiness: configuration: " in (tmp_path / "llmdsim.log.1").read_text()
    heading, *lines = path.read_text().splitlines()
    assert heading.startswith("llmdsim: log file created at ")
    assert lines[-1].endswith(" INFO drain: drained")


def test_files_by_severity(tmp_path: Path) -> None:
    flags = ["--log-dir", str(tmp_path), "--skip-log-headers", "--dtype", "auto", "--alsologtostderr"]
    flags.append("--force-dummy-tokenizer")
    with Daemon(*flags) as daemon:
        assert " INFO readiness: configuration: " in daemon.stderr
    assert len((tmp_path / "llmdsim.WARNING").read_text().splitlines()) == 1
    assert "WARNING" in (tmp_path / "llmdsim.INFO").read_text()
    assert (tmp_path / "llmdsim.ERROR").read_text() == ""


def test_twistds_own_flags_still_count(tmp_path: Path) -> None:
    path = tmp_path / "twistd.log"
    twistd = (str(BIN / "twistd"), "-n", "--pidfile=", f"--logfile={path}", "llmdsim")
    with Daemon("--access-log", command=twistd) as daemon:
        assert daemon.stderr.count("\n") == 1
        daemon.client.chat(max_tokens=1)
        eventually(lambda: len(access_lines(path.read_text())) == 1)
    out = (str(BIN / "twistd"), "-n", "--pidfile=", "--logfile=-", "llmdsim")
    with Daemon(command=out) as daemon:
        assert " INFO readiness: configuration: " in daemon.stdout


def test_a_logger_given_to_twistd_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "theirs.py").write_text(
        "import sys\nfrom twisted.logger import textFileLogObserver\n"
        "def observer():\n    return textFileLogObserver(sys.__stdout__)\n"
    )
    twistd = (str(BIN / "twistd"), "-n", "--pidfile=", "--logger=theirs.observer", "llmdsim")
    with Daemon("--access-log", command=twistd, environ={"PYTHONPATH": str(tmp_path)}) as daemon:
        daemon.client.chat(max_tokens=1)
        eventually(lambda: '"POST /v1/chat/completions HTTP/1.1" 200' in daemon.stdout)
        assert "[llmdsim.services.readiness#info] configuration: " in daemon.stdout
        assert daemon.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("twistd", "flags", "name"),
    [
        ([], [], "twistd.log"),
        (["--logfile=mine.log"], [], "mine.log"),
        ([], ["--log-file=mine.log"], "mine.log"),
        ([], ["--log-dir=."], "llmdsim.INFO"),
    ],
)
def test_in_the_background_lines_are_in_a_file(
    tmp_path: Path, twistd: list[str], flags: list[str], name: str
) -> None:
    port = free_port()
    given = ("llmdsim", "--model", "m", "--port", str(port), "--access-log", *flags)
    done = run("--pidfile=pid", *twistd, *given, command=(str(BIN / "twistd"),), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    pid = int((tmp_path / "pid").read_text())
    try:
        client = Client(port)
        eventually(lambda: client.get("/health/ready").status == 200)
        assert client.chat(max_tokens=1).status == 200
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: gone(pid))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    text = (tmp_path / name).read_text()
    assert " INFO readiness: configuration: " in text
    assert len(access_lines(text)) == 1
    assert text.rstrip().endswith(" INFO drain: drained")
    for complaint in COMPLAINTS:
        assert complaint not in text
    assert (tmp_path / "twistd.log").exists() == (name == "twistd.log")


@pytest.mark.parametrize("daemonized", [False, True])
@pytest.mark.parametrize("flag", ["--log-file=/nonexistent/a.log", "--log-dir=/nonexistent"])
def test_a_file_that_cannot_be_opened_is_one_line(tmp_path: Path, flag: str, daemonized: bool) -> None:
    command = (str(BIN / "twistd"), "--pidfile=pid", "llmdsim") if daemonized else CONSOLE_SCRIPT
    line = one_line(run("--model", "m", flag, command=command, cwd=tmp_path))
    assert "/nonexistent/" in line
    assert "No such file or directory" in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--vmodule", "x"], "--vmodule"),
        (["--stderrthreshold", "loud"], "--stderrthreshold"),
        (["--log-format", "xml"], "--log-format"),
    ],
)
def test_a_wrong_value_is_one_line(flags: list[str], told: str) -> None:
    assert told in one_line(run("--model", "m", *flags, command=CONSOLE_SCRIPT))
