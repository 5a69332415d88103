"""Answers of what a dataset says, over every route, and while it is being looked up."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.logger import capturedLogs
from twisted.python.failure import Failure

from llmdsim.reply.dataset import Dataset, DatasetInUse
from llmdsim.web import stored
from llmdsim.web.stored import StoredReplies
from tests.reply.dataset.files import TOKENIZER, chat, row, write
from tests.web.rig import PassRig, RankRig
from tests.wire.channel import Client

SAID = "The answer that was stored, all of it."
LENGTH = TOKENIZER.count(SAID)
ROWS = [
    row("question", SAID),
    row(chat("question"), SAID),
    *(row("many", f"Number {number}.") for number in range(8)),
    row("long", "word " * 1000),
    row("longer", "word " * 3000),
    row("odd", "first"),
]


def dataset(path: Path, in_memory: bool) -> Dataset:
    found = Dataset(write(path / "d", ROWS), "llmd")
    found.load(in_memory)
    return found


def with_dataset(rig: RankRig, path: Path, in_memory: bool = True) -> RankRig:
    rank = rig.rank
    rank.context.stored = StoredReplies(dataset(path, in_memory), rank.author.source)
    return rig


@pytest.fixture
def rig(tmp_path: Path) -> RankRig:
    return with_dataset(RankRig("--max-model-len", "8192", "--seed", "1", "--max-num-seqs", "64"), tmp_path)


def body_of(client: Client) -> Any:
    (reply,) = client.replies()
    assert reply.status == 200, reply.body
    return json.loads(reply.body)


def texts(rig: RankRig, prompt: object, **more: Any) -> list[str]:
    body = body_of(rig.post("/v1/completions", {"prompt": prompt, **more}))
    return [choice["text"] for choice in body["choices"]]


CHAT = {"messages": [{"role": "user", "content": "question"}]}
ASKED: list[tuple[str, dict[str, Any], Callable[[Any], str]]] = [
    ("/v1/completions", {"prompt": "question"}, lambda body: body["choices"][0]["text"]),
    (
        "/v1/completions",
        {"prompt": TOKENIZER.encode("question")},
        lambda body: body["choices"][0]["text"],
    ),
    ("/v1/chat/completions", CHAT, lambda body: body["choices"][0]["message"]["content"]),
    ("/v1/messages", {**CHAT, "model": "m", "max_tokens": 50}, lambda body: body["content"][0]["text"]),
    ("/v1/responses", {"input": "question"}, lambda body: body["output"][0]["content"][0]["text"]),
    (
        "/inference/v1/generate",
        {"token_ids": TOKENIZER.encode("question"), "sampling_params": {"max_tokens": 50}},
        lambda body: "".join(TOKENIZER.decode(body["choices"][0]["token_ids"])),
    ),
]


@pytest.mark.parametrize(("path", "body", "said"), ASKED)
def test_every_route_answers_with_it(
    rig: RankRig, path: str, body: dict[str, Any], said: Callable[[Any], str]
) -> None:
    assert said(body_of(rig.post(path, body))) == SAID


def test_without_a_maximum_there_is_the_room_that_is_left(rig: RankRig) -> None:
    client = rig.post("/v1/completions", {"prompt": "long"})
    rig.clock.pump([0.01] * 20)
    body = body_of(client)
    assert body["usage"]["completion_tokens"] == 1000
    assert body["choices"][0]["finish_reason"] == "stop"
    body = body_of(rig.post("/v1/completions", {"prompt": "question", "max_tokens": LENGTH}))
    assert body["choices"][0]["finish_reason"] == "length"


def test_ids_log_probabilities_and_an_echo_are_those_of_the_file(rig: RankRig) -> None:
    asked = {"prompt": "question", "logprobs": 1, "echo": True, "max_tokens": 4, "return_token_ids": True}
    (choice,) = body_of(rig.post("/v1/completions", asked))["choices"]
    ids, pieces = TOKENIZER.split(SAID)
    assert choice["token_ids"] == ids[:4]
    assert choice["logprobs"]["tokens"][-4:] == pieces[:4]
    (choice,) = body_of(rig.post("/v1/completions", {"prompt": "question", "echo": True}))["choices"]
    assert choice["text"] == f"question{SAID}"


def test_choices_differ_where_several_rows_answer(rig: RankRig) -> None:
    assert len(set(texts(rig, "many", n=30))) > 4
    assert set(texts(rig, "many", n=30)) <= {f"Number {number}." for number in range(8)}


def test_seeds_choose(rig: RankRig, tmp_path: Path) -> None:
    chosen = [texts(rig, "many", n=4, seed=seed) for seed in range(4)]
    assert chosen == [texts(rig, "many", n=4, seed=seed) for seed in range(4)]
    assert len(set(map(tuple, chosen))) > 1
    for folder in "ab":
        (tmp_path / folder).mkdir()
    servers = [with_dataset(RankRig("--seed", "5"), tmp_path / folder) for folder in "ab"]
    first, second = ([texts(server, "unknown", max_tokens=50) for _ in range(20)] for server in servers)
    assert first == second
    assert len(set(map(tuple, first))) > 4


def test_prompts_of_one_request_have_rows_of_their_own(rig: RankRig) -> None:
    assert texts(rig, ["question", "odd"]) == [SAID, "first"]


def test_a_stream_says_the_same(rig: RankRig) -> None:
    client = rig.post("/v1/completions", {"prompt": "question", "stream": True, "stop": ["all"]})
    (reply,) = client.replies()
    frames = [
        json.loads(line[6:]) for line in reply.body.decode().split("\n\n") if line.startswith("data: {")
    ]
    assert "".join(frame["choices"][0]["text"] for frame in frames) == SAID[: SAID.index("all")]


def test_constrained_text_is_none_of_it(rig: RankRig) -> None:
    asked = {"prompt": "question", "structured_outputs": {"choice": ["yes"]}}
    assert texts(rig, **asked) == ["yes"]


class Thread:
    """Calls that a thread would make, when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[Deferred[Any], Callable[[], Any]]] = []
        monkeypatch.setattr(stored, "deferToThread", self._defer)

    def _defer(self, function: Callable[..., Any], *arguments: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self.calls.append((done, lambda: function(*arguments)))
        return done

    def run(self) -> None:
        calls, self.calls = self.calls, []
        for done, call in calls:
            done.callback(call())


@pytest.fixture
def thread(monkeypatch: pytest.MonkeyPatch) -> Thread:
    return Thread(monkeypatch)


@pytest.fixture
def on_disk(tmp_path: Path) -> PassRig:
    rig = PassRig("--max-model-len", "8192")
    with_dataset(rig, tmp_path, in_memory=False)
    return rig


def test_a_file_is_read_in_a_thread_before_the_engine_knows(on_disk: PassRig, thread: Thread) -> None:
    client = on_disk.post("/v1/completions", {"prompt": "question"})
    turns = on_disk.rank.context.turns
    on_disk.turns(5)
    assert client.received == b""
    assert on_disk.rank.engine.idle
    assert turns.busy
    # Nothing waits in a loop meanwhile.
    assert not any(call.func == turns._turn for call in on_disk.clock.getDelayedCalls())
    thread.run()
    on_disk.finish()
    assert body_of(client)["choices"][0]["text"] == SAID


def test_long_rows_are_read_in_a_thread_wherever_they_are(rig: RankRig, thread: Thread) -> None:
    rig.post("/v1/completions", {"prompt": "question"})
    assert not thread.calls
    rig.post("/v1/completions", {"prompt": "longer"})
    assert len(thread.calls) == 1


def test_a_client_that_leaves_meanwhile_leaves_nothing(on_disk: PassRig, thread: Thread) -> None:
    client = on_disk.post("/v1/completions", {"prompt": "question"})
    client.rst()
    on_disk.turns(2)
    assert not on_disk.rank.context.turns.busy
    thread.run()
    on_disk.turns(5)
    assert on_disk.rank.engine.idle
    assert on_disk.rank.stats.running == 0


def test_what_the_drain_gives_up_is_answered(on_disk: PassRig, thread: Thread) -> None:
    client = on_disk.post("/v1/completions", {"prompt": "question"})
    on_disk.rank.context.turns.give_up()
    (reply,) = client.replies()
    assert reply.status == 503
    thread.run()
    on_disk.turns(5)
    assert on_disk.rank.engine.idle


def test_what_cannot_be_read_is_preset_text_and_told_once(
    on_disk: PassRig, thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: object) -> Any:
        return {}, [DatasetInUse("database is locked")]

    with capturedLogs() as logged:
        with monkeypatch.context() as patched:
            patched.setattr(Dataset, "fetch", locked)
            clients = [on_disk.post("/v1/completions", {"prompt": "question"}) for _ in range(3)]
            thread.run()
            on_disk.finish()
        assert all(body_of(client)["choices"][0]["text"] not in ("", SAID) for client in clients)
        (warning,) = [event for event in logged if event["log_level"].name == "warn"]
        assert "database is locked" in str(warning["problem"])
    # The next one finds it again.
    client = on_disk.post("/v1/completions", {"prompt": "question"})
    thread.run()
    on_disk.finish()
    assert body_of(client)["choices"][0]["text"] == SAID


def test_a_fault_of_our_own_is_told_and_answered_too(on_disk: PassRig, thread: Thread) -> None:
    client = on_disk.post("/v1/completions", {"prompt": "question"})
    ((done, _),) = thread.calls
    with capturedLogs() as logged:
        done.errback(Failure(RuntimeError("a fault")))
        on_disk.finish()
    assert body_of(client)["choices"][0]["text"]
    assert [event for event in logged if event["log_level"].name == "critical"]
