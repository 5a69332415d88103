"""Daemons with a model's own tokenizer: from a folder, from a hub, or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from tests.integration.client import Client, eventually
from tests.integration.daemon import COMPLAINTS, MODULE, Daemon, Pool, free_port, run
from tests.integration.test_start import Daemonized, gone
from tests.tokenization.fake_hub import FakeHub, black_hole, running
from tests.tokenization.trained import byte_level, trained, write

pytestmark = pytest.mark.integration

TOKENIZER = trained("byte level")
WARNING = "the built-in tokenizer is used"
TEXT = "The ferry 世界 👩\u200d🚀👍🏽 e\u0301𠀀 ünïcode нет </s> \n\n x"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("models") / "small", byte_level(), tokenizer_class="Small")


def tokens_of(client: Client, text: str = TEXT) -> list[int]:
    reply = client.post("/tokenize", {"prompt": text, "add_special_tokens": False})
    assert reply.status == 200
    ids: list[int] = reply.json["tokens"]
    return ids


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_each_event_of_a_stream_has_whole_characters(daemon_with: Pool, folder: Path, path: str) -> None:
    client = daemon_with("--mode", "echo", "--tokenizer", str(folder)).client
    chat = path.endswith("chat/completions")
    body = {"messages": [{"role": "user", "content": TEXT}]} if chat else {"prompt": TEXT}
    events = client.stream(path, {**body, "stream": True})
    assert events.pop().data == "[DONE]"
    choices = [event.json["choices"][0] for event in events]
    texts = [choice["delta"].get("content") or "" if chat else choice["text"] for choice in choices]
    assert "".join(texts) == TEXT
    assert not any("\ufffd" in text for text in texts)
    assert len(texts) >= len(TOKENIZER.encode(TEXT))
    assert "" in texts


def test_tokens_there_and_back(daemon_with: Pool, folder: Path) -> None:
    client = daemon_with("--mode", "echo", "--tokenizer", str(folder)).client
    ids = tokens_of(client)
    assert ids == TOKENIZER.encode(TEXT)
    assert client.post("/detokenize", {"tokens": ids}).json == {"prompt": TEXT.replace("e\u0301", "é")}


def test_a_long_prompt_does_not_hold_up_the_streams_of_others(daemon_with: Pool, folder: Path) -> None:
    flags = ("--inter-token-latency", "10ms", "--max-model-len", "500000", "--tokenizer", str(folder))
    client = daemon_with(*flags).client
    text = "The ferry leaves at seven, so we should be at the pier. " * 3600
    assert len(text) > 200_000
    counted: list[int] = []

    def count() -> None:
        for _ in range(3):
            reply = client.post("/v1/completions", {"prompt": text, "max_tokens": 1})
            counted.append(reply.json["usage"]["prompt_tokens"])

    other = threading.Thread(target=count)
    other.start()
    events = client.text_stream(max_tokens=100, ignore_eos=True)
    other.join()
    assert counted == [len(byte_level().encode(text).ids)] * 3
    gaps = [second.at - first.at for first, second in pairwise(events)]
    # To tokenize it takes some tenths of a second each time.
    assert max(gaps) < 0.25
    assert sorted(gaps)[len(gaps) // 2] < 0.05


def test_qwen3(daemon_with: Pool, qwen3: Path) -> None:
    client = daemon_with("--mode", "echo", "--tokenizer", str(qwen3)).client
    assert tokens_of(client, "Hello world!") == [9707, 1879, 0]
    events = client.text_stream(TEXT)
    texts = [event.json["choices"][0]["text"] for event in events if event.data != "[DONE]"]
    assert "".join(texts) == TEXT


# --- hubs


@pytest.fixture
def hub(folder: Path) -> Iterator[FakeHub]:
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    with running(FakeHub("org/model", files)) as hub:
        yield hub


def environ(url: str, folder: Path) -> dict[str, str]:
    return {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": url, "HF_HUB_CACHE": str(folder), "HF_HOME": str(folder)}


def test_all_ranks_have_what_was_downloaded_once(hub: FakeHub, tmp_path: Path) -> None:
    with Daemon(
        "--data-parallel-mode", "process", model="org/model", ranks=2, environ=environ(hub.url, tmp_path)
    ) as daemon:
        assert [tokens_of(client) for client in daemon.clients] == [TOKENIZER.encode(TEXT)] * 2
        assert WARNING not in daemon.stderr
    assert len(hub.asked) == 3
    with Daemon(model="org/model", environ=environ(hub.url, tmp_path)) as daemon:
        assert tokens_of(daemon.client) == TOKENIZER.encode(TEXT)
    assert len(hub.asked) == 3


def test_without_one_all_ranks_have_the_builtin_one_and_one_warning(hub: FakeHub, tmp_path: Path) -> None:
    hub.status = 404
    with Daemon(
        "--data-parallel-mode", "process", model="org/model", ranks=2, environ=environ(hub.url, tmp_path)
    ) as daemon:
        first, second = (tokens_of(client) for client in daemon.clients)
        assert first == second
        assert first != TOKENIZER.encode(TEXT)
        assert daemon.stderr.count(WARNING) == 1
        assert "answers 404" in daemon.stderr
        assert "--tokenizer" in daemon.stderr
    assert len(hub.asked) == 1


def test_a_hub_that_says_nothing_is_not_waited_for_long(tmp_path: Path) -> None:
    # It is ready in time, as any daemon must be.
    with black_hole() as url, Daemon(model="org/model", environ=environ(url, tmp_path)) as daemon:
        assert daemon.stderr.count(WARNING) == 1
        assert "does not answer within" in daemon.stderr


def test_a_file_that_is_no_tokenizer_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with Daemon("--tokenizer", str(tmp_path)) as daemon:
        assert daemon.client.text().status == 200
        assert daemon.stderr.count(WARNING) == 1
        assert str(tmp_path) in daemon.stderr


def test_twistd_leaves_its_terminal_with_it(folder: Path, tmp_path: Path) -> None:
    port = free_port()
    started = Daemonized(tmp_path, "--model", "m", "--tokenizer", str(folder), "--port", str(port))
    pid = int(started.pidfile.read_text())
    try:
        client = Client(port)
        eventually(lambda: client.get("/health/ready").status == 200)
        # Which is tokenized in a thread.
        long = "The ferry leaves. " * 30
        for times in (1, 5):
            assert tokens_of(client, long * times) == TOKENIZER.encode(long * times)
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: gone(pid))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for complaint in COMPLAINTS:
        assert complaint not in started.log()


def test_replies_of_a_dataset_are_found_by_the_models_tokens(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    source.write_text(
        json.dumps({"prompt": "Where is the 世界 ferry?", "completion": "At the 𠀀 pier."}) + "\n"
    )
    dataset = tmp_path / "replies.sqlite3"
    made = run(
        *("dataset", "build", str(source), "-o", str(dataset), "--tokenizer", str(folder)), command=MODULE
    )
    assert made.returncode == 0, made.stderr
    flags = ("--tokenizer", str(folder), "--dataset-path", str(dataset))
    with Daemon(*flags) as daemon:
        body = {"prompt": "Where is the 世界 ferry?", "max_tokens": 100, "return_token_ids": True}
        (choice,) = daemon.client.post("/v1/completions", body).json["choices"]
        assert choice["text"] == "At the 𠀀 pier."
        assert choice["token_ids"] == TOKENIZER.encode("At the 𠀀 pier.")
