"""Thousands of requests, good and bad, to a rank in memory: each is answered, and nothing is left."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import pytest
from twisted.internet.defer import maybeDeferred
from twisted.logger import LogLevel, capturedLogs

from llmdsim.reply.dataset import Dataset
from llmdsim.web.stored import StoredReplies
from llmdsim.wire.limits import LINGER_SECONDS
from tests.reply.dataset.files import row, write
from tests.web.answers import Answer, judge, refused
from tests.web.anthropic import answers as anthropic
from tests.web.clients import CHAT, request
from tests.web.fuzz import Case, case, visit
from tests.web.rig import RankRig
from tests.wire.channel import Client, Reply, read_replies

FLAGS = ("--max-model-len", "600", "--max-n", "8", "--max-prompts", "8", "--max-num-seqs", "3", "--seed", "1")
#: As strict as those of models, and as talkative.
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'tool' and loop.first %}{{ raise_exception('no') }}{% endif %}"
    "<{{ m.role }}>{{ m.content + '' }}{{ m.tool_calls | default([]) | tojson }}{% endfor %}"
    "{{ tools | tojson }}{{ documents | tojson }}{% if add_generation_prompt %}<assistant>{% endif %}"
)
MODES = {
    "echo": (*FLAGS, "--mode", "echo"),
    "random": (*FLAGS, "--max-waiting-queue-length", "2"),
    "paced": (
        *(*FLAGS, "--time-to-first-token", "20ms", "--inter-token-latency", "1ms"),
        *("--kv-cache-transfer-latency", "5ms", "--kv-transfer-failure-rate", "50"),
        *("--kv-transfer-config.kv_load_failure_policy", "recompute"),
    ),
    "strict": (
        *(*FLAGS, "--mode", "echo", "--strict-context", "--enable-force-include-usage"),
        *("--max-logprobs", "-1"),
    ),
    "templated": (*FLAGS, "--mode", "echo", "--trust-request-chat-template", "--chat-template", TEMPLATE),
}
#: What may be before all routes.
GATES = (
    (),
    ("--api-key", "k", "--root-path", "/v1"),
    ("--allowed-origins", '["*"]', "--admin-listen", "tcp:0", "--enable-request-id-headers"),
)
#: Values of `stream` that are taken for false.
UNSTREAMED = (None, False, 0.0, "0", "false", "off", "f", "n", "no", "No")
#: Fields with which even an echo has something random to it.
PLANNED = {"tools", "response_format", "structured_outputs", "guided_json", "guided_regex", "guided_choice"}
SEEDS = 3000
FEW = 100  # seeds a test: one that fails is soon found again


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no reactor to wait for a thread."""
    for module in ("whole", "access.documentation", "stored"):
        monkeypatch.setattr(f"llmdsim.web.{module}.deferToThread", maybeDeferred)


class Rank:
    """A rank, and the connection its clients share while it lasts."""

    def __init__(self, *flags: str) -> None:
        self.rig = RankRig(*flags)
        self._client: Client | None = None

    def ask(self, *packets: bytes, method: bytes = b"POST") -> Reply:
        client = self._client
        if client is None or client.fate != "open":
            client = self._client = self.rig.connect()
        client.transport.clear()
        client.send(*packets)
        for _ in range(4000):
            if self.rig.rank.engine.idle and not self.rig.rank.context.turns.busy:
                break
            self.rig.clock.advance(0.001)
        self.rig.settle()
        if b"connection: close" in client.received.partition(b"\r\n\r\n")[0]:
            client.fin()
            self.rig.clock.pump([0, 0, LINGER_SECONDS])
            assert client.fate == "closed"
            if b"Malformed HTTP request" in client.received:
                method = b"GET"  # what could not be parsed has no method, and its refusal a body
        replies = read_replies(client.received, [method], client.fate != "open")
        if replies and replies[0].status == 100:
            del replies[0]
        (reply,) = replies
        assert reply.complete
        return reply

    def at_rest(self) -> None:
        engine, stats = self.rig.rank.engine, self.rig.rank.stats
        assert engine.idle
        assert (stats.running, stats.waiting) == (0, 0)
        assert engine.faults == []
        assert engine.pacing.next_deadline() is None
        assert self.rig.clock.getDelayedCalls() == []
        assert not self.rig.site.busy

    def ended(self) -> int:
        return sum(self.rig.rank.stats.finished.values())


def quietly(rank: Rank, *packets: bytes, method: bytes = b"POST") -> Reply:
    """The reply to one request, after which the rank rests and has logged no fault."""
    with capturedLogs() as logged:
        reply = rank.ask(*packets, method=method)
    rank.at_rest()
    assert not [event for event in logged if event["log_level"] in (LogLevel.error, LogLevel.critical)]
    return reply


def answer(rank: Rank, path: str, *packets: bytes) -> Answer:
    """The answer of a generation route, which must be a proper one, and counted."""
    stats = rank.rig.rank.stats
    ended, tokens = rank.ended(), stats.generation_tokens
    reply = quietly(rank, *packets)
    headers = {name.decode(): value.decode("latin-1") for name, value in reply.headers.items()}
    found = judge(path, reply.status, headers, reply.body)
    assert rank.ended() - ended == len(found.texts), "choices are not what was counted"
    assert found.tokens in (None, stats.generation_tokens - tokens)
    return found


def most_tokens(made: Case) -> float:
    """How many tokens a choice may have, by the request itself."""
    try:
        document = json.loads(made.body)
    except ValueError:
        return math.inf
    asked = document.get("max_tokens")
    if made.path == CHAT and document.get("max_completion_tokens") is not None:
        asked = document["max_completion_tokens"]
    return max(asked, 1) if type(asked) is int else math.inf


def twin(made: Case) -> bytes | None:
    """The same request, streamed if it was whole and whole if it was streamed."""
    try:
        document = json.loads(made.body)
    except ValueError:
        return None
    if document.get("seed") is None and not PLANNED.isdisjoint(document):
        return None
    document["stream"] = document.get("stream") in UNSTREAMED
    document.pop("stream_options", None)
    return request(made.path, document)


@pytest.mark.parametrize("start", range(0, SEEDS, FEW))
@pytest.mark.parametrize("mode", MODES)
def test_whatever_is_sent_is_answered_properly_and_leaves_nothing(mode: str, start: int) -> None:
    rank = Rank(*MODES[mode])
    statuses: Counter[int] = Counter()
    for number in range(start, start + FEW):
        seed = f"{mode} {number}"
        made = case(seed)
        try:
            found = answer(rank, made.path, *made.packets)
            statuses[found.status] += 1
            assert found.tokens is None or found.tokens <= len(found.texts) * most_tokens(made)
            other = twin(made) if mode == "echo" and found.status == 200 else None
            if other is not None:
                again = answer(rank, made.path, other)
                assert again.status == 400 or again[1:3] == found[1:3], "streamed and whole differ"
        except BaseException:
            print(f"case({seed!r}):\n{made.wire!r}")
            raise
    # A fuzz whose bodies are all refused, or all accepted, finds little.
    assert statuses[200] >= FEW // 8
    assert statuses[400] >= FEW // 8


@pytest.mark.parametrize("in_memory", [False, True])
def test_so_it_is_with_a_dataset(tmp_path: Path, in_memory: bool) -> None:
    rows = [row(f"prompt {number}", "word " * number) for number in range(1, 200, 7)]
    dataset = Dataset(write(tmp_path / "d", [*rows, (b"x" * 32, "broken", 5)]), "llmd")
    dataset.load(in_memory)
    rank = Rank(*MODES["random"])
    rank.rig.rank.context.stored = StoredReplies(dataset, rank.rig.rank.author.source)
    for number in range(FEW):
        made = case(f"dataset {number}")
        try:
            found = answer(rank, made.path, *made.packets)
            assert found.tokens is None or found.tokens <= len(found.texts) * most_tokens(made)
        except BaseException:
            print(f"case('dataset {number}'):\n{made.wire!r}")
            raise


@pytest.mark.parametrize("start", range(0, SEEDS, FEW))
def test_whatever_path_and_method_get_a_proper_answer(start: int) -> None:
    rank = Rank(*MODES["echo"], *GATES[start // FEW % len(GATES)])
    rank.rig.rank.context.ready = True
    for number in range(start, start + FEW):
        method, wire = visit(f"visit {number}")
        try:
            reply = quietly(rank, wire, method=method)
            assert reply.status < 500 or reply.status == 501, reply
            if reply.status >= 400 and method != b"HEAD":
                shape = anthropic.refused if reply.body.startswith(b'{"type"') else refused
                shape(reply.status, reply.body)
        except BaseException:
            print(f"visit('visit {number}'):\n{wire!r}")
            raise
