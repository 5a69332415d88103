"""Datasets and a real daemon: made by the tool, read by many, locked, broken, and downloaded."""

from __future__ import annotations

import signal
import socketserver
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.integration.client import eventually
from tests.integration.daemon import MODULE, Daemon, free_port, run
from tests.reply.dataset.files import row, write

pytestmark = pytest.mark.integration

SAMPLE = Path(__file__).parents[2] / "etc" / "dataset" / "sample.jsonl"
HAIKU = "Ropes creak in the dark,\nthe lamp counts the waves in threes,\na gull shifts its feet."
FERRY = "At seven in the morning, and again at noon. On Sundays there is only the later one."
FARE = "Eight crowns; children travel free."


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("dataset") / "sample.sqlite3"
    made = run("dataset", "build", str(SAMPLE), "-o", str(path), command=MODULE)
    assert made.returncode == 0, made.stderr
    return path


def test_what_the_tool_made_several_daemons_find_however_many_ask(sample: Path) -> None:
    flags = ("--dataset-path", str(sample), "--max-num-seqs", "300")
    with Daemon(*flags) as on_disk, Daemon(*flags, "--dataset-in-memory") as in_memory:
        finds_it_however_many_ask(on_disk)
        finds_it_however_many_ask(in_memory)


def finds_it_however_many_ask(daemon: Daemon) -> None:
    client = daemon.client
    assert client.text("Write a haiku about a harbour.").text == HAIKU
    assert client.chat("Write a haiku about a harbour.").text == HAIKU
    turns: list[dict[str, str]] = [
        {"role": "user", "content": "When does the ferry leave?"},
        {"role": "assistant", "content": FERRY},
        {"role": "user", "content": "And what does a ticket cost?"},
    ]
    found = client.post("/v1/chat/completions", {"messages": turns})
    assert (found.text, found.json["choices"][0]["finish_reason"]) == (FARE, "stop")
    found = client.post("/v1/responses", {"input": turns})
    assert found.json["output"][0]["content"][0]["text"] == FARE
    system = {"model": "m", "max_tokens": 50, "system": "Answer in one sentence."}
    asked = {**system, "messages": [{"role": "user", "content": "Why is the sky blue?"}]}
    assert "scatters" in client.post("/v1/messages", asked).json["content"][0]["text"]
    events = client.chat_stream("Grüße auf Deutsch, bitte!")
    said = "".join(
        event.json["choices"][0]["delta"].get("content", "")
        for event in events
        if event.data != "[DONE]" and event.json["choices"]
    )
    assert said == "Schönen guten Tag — und willkommen! 👋🏽"
    fruits = [client.chat("Name three fruits.", seed=seed).text for seed in range(8)]
    assert fruits == [client.chat("Name three fruits.", seed=seed).text for seed in range(8)]
    assert len(set(fruits)) == 2
    # llm-d-inference-sim dies of 250 clients at once.
    with ThreadPoolExecutor(250) as pool:
        texts = list(pool.map(lambda _: client.text("Write a haiku about a harbour.").text, range(500)))
    assert set(texts) == {HAIKU}
    assert daemon.stderr.count("dataset") >= 1


def test_a_file_in_use_by_another_process_means_preset_text_with_one_warning(tmp_path: Path) -> None:
    path = write(tmp_path / "d", [row("q", "the stored answer")])
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with Daemon("--dataset-path", str(path)) as daemon:
            texts = {daemon.client.text("q", max_tokens=50).text for _ in range(5)}
            assert "the stored answer" not in texts
            assert all(texts)
            assert daemon.stderr.count("in use by another process") == 1


def test_a_file_that_gets_locked_later_fails_only_those_requests(tmp_path: Path) -> None:
    path = write(tmp_path / "d", [row("q", "the stored answer")])
    with Daemon("--dataset-path", str(path)) as daemon, closing(sqlite3.connect(path)) as other:
        assert daemon.client.text("q").text == "the stored answer"
        other.execute("BEGIN EXCLUSIVE")
        assert {daemon.client.text("q").text for _ in range(3)} != {"the stored answer"}
        assert daemon.stderr.count("database is locked") == 1
        other.rollback()
        assert daemon.client.text("q").text == "the stored answer"


def start(target: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """A daemon that does not come up."""
    return run("--model", "m", "--port", str(free_port()), "--dataset-path", str(target), *flags)


def at_once(function: Callable[..., Any], *given: Iterable[Any]) -> list[Any]:
    """What `map` gives, with all calls at the same time."""
    with ThreadPoolExecutor() as pool:
        return list(pool.map(function, *given))


def test_a_daemon_without_its_dataset_does_not_start(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("missing", "empty", "other")]
    paths[1].touch()
    paths[2].write_bytes(b"no database" * 1000)
    for path, ended in zip(paths, at_once(start, paths), strict=True):
        assert ended.returncode == 1
        lines = [line for line in ended.stderr.splitlines() if line.startswith("llmdsim: ")]
        assert len(lines) == 1
        assert lines[0].startswith(f"llmdsim: --dataset-path {path}: ")
        assert "Traceback" not in ended.stderr


class Handler(BaseHTTPRequestHandler):
    """Serves `content` in the way that the path names."""

    content: ClassVar[bytes]
    asked: ClassVar[list[str]]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        content = self.content
        self.asked.append(self.path)
        self.close_connection = True
        if self.path == "/missing":
            self.send_error(404)
            return
        if self.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", "/good")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        if self.path == "/empty":
            content = b""
        if self.path == "/other":
            content = b"<html>" * 100
        if self.path != "/unsized":
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.path in ("/cut", "/slow"):
            content = content[: len(content) // 2]
        self.wfile.write(content)
        self.wfile.flush()
        if self.path == "/slow":
            time.sleep(5)

    def log_message(self, *_: Any) -> None:
        pass


class Site(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    rows = [row("q", "the stored answer"), *(row(f"p{number}", "words " * 200) for number in range(100))]
    Handler.content = write(tmp_path / "source", rows).read_bytes()
    Handler.asked = []
    with Site(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize("path", ["redirect", "unsized"])
def test_a_missing_file_is_downloaded(site: str, tmp_path: Path, path: str) -> None:
    target = tmp_path / "new" / "folder" / "d.sqlite3"
    with Daemon("--dataset-path", str(target), "--dataset-url", f"{site}/{path}") as daemon:
        assert daemon.client.text("q").text == "the stored answer"
    assert list(target.parent.iterdir()) == [target]
    assert target.read_bytes() == Handler.content


@pytest.mark.parametrize("mode", ["process", "inline"])
def test_all_ranks_share_one_download(site: str, tmp_path: Path, mode: str) -> None:
    flags = ("--dataset-path", str(tmp_path / "d"), "--dataset-url", f"{site}/good", "--dataset-in-memory")
    with Daemon(*flags, "--data-parallel-mode", mode, ranks=2) as daemon:
        assert [client.text("q").text for client in daemon.clients] == ["the stored answer"] * 2
    assert Handler.asked == ["/good"]


def test_a_file_that_is_there_is_not_downloaded(site: str, tmp_path: Path) -> None:
    target = write(tmp_path / "d", [row("q", "mine")])
    with Daemon("--dataset-path", str(target), "--dataset-url", f"{site}/good") as daemon:
        assert daemon.client.text("q").text == "mine"
    assert Handler.asked == []


FAILURES = {
    "missing": "404",
    "empty": "empty",
    "cut": "ended too early",
    "other": "not a database",
}


def test_a_download_that_fails_leaves_nothing(site: str, tmp_path: Path) -> None:
    def download(path: str) -> subprocess.CompletedProcess[str]:
        return start(tmp_path / path / "d", "--dataset-url", f"{site}/{path}")

    for (path, what), ended in zip(FAILURES.items(), at_once(download, FAILURES), strict=True):
        assert ended.returncode == 1, ended.stderr
        (line,) = [line for line in ended.stderr.splitlines() if line.startswith("llmdsim: ")]
        assert line.startswith("llmdsim: --dataset-url: ")
        assert what in line
        assert "Traceback" not in ended.stderr
        assert not (tmp_path / path).exists()


def test_a_server_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    ended = start(tmp_path / "d", "--dataset-url", "http://127.0.0.1:1/d")
    assert ended.returncode == 1
    assert "refused" in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_signal_ends_a_download_and_probes_are_answered_meanwhile(site: str, tmp_path: Path) -> None:
    target = tmp_path / "new" / "d"
    daemon = Daemon("--dataset-path", str(target), "--dataset-url", f"{site}/slow")
    try:
        eventually(lambda: Handler.asked, 20)
        eventually(lambda: target.parent.exists() and list(target.parent.iterdir()))
        assert daemon.client.get("/health").status == 200
        assert daemon.client.get("/health/ready").status == 503
        started = time.monotonic()
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0
        assert time.monotonic() - started < 4
        assert not target.parent.exists()
        assert "Traceback" not in daemon.stderr
    finally:
        daemon.kill()
