"""Thousands of bodies to the generate route: each is answered properly, and nothing is left."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from twisted.internet.defer import maybeDeferred

from llmdsim.web.generate.request import GenerateRequest, SamplingParams
from tests.web.answers import refused, strict
from tests.web.clients import events
from tests.web.fuzz import Case, body_of, case_of, good
from tests.web.fuzz_values import GOOD, Maker, fuzz_route, ids, mean, tool
from tests.web.generate.asking import GENERATE, PREFIX, joined
from tests.web.test_fuzz import MODES, Rank, quietly
from tests.wire.channel import Reply

SEEDS = 1000
FEW = 100

#: The parameters are fuzzed as a body of their own.
PARAMS = "sampling_params"
fuzz_route(GENERATE, GenerateRequest, "token_ids", "sampling_params")
fuzz_route(PARAMS, SamplingParams, "max_tokens")

_PARAMS: dict[str, Maker] = {
    **GOOD,
    "logprobs": lambda r: r.choice((None, 0, 1, 5)),
    "stop": lambda r: r.choice(("e", [], list("zyxwv"), None)),
    "stream_interval": lambda r: r.choice((None, 1, 5)),
    "prompt_logprob_token_ids": lambda r: r.choice((None, None, [[1], [2]])),
    "prompt_logprob_start": lambda r: None,
    "trace_decode_token_ids": lambda r: None,
    "detokenize": lambda r: r.random() < 0.9,
    "extra_args": lambda r: r.choice((None, {}, {"kv_transfer_params": {"do_remote_decode": True}})),
}


def parameters(random: Random) -> Any:
    """A good object of them, seldom with something mean in it."""
    made = good(PARAMS, random, _PARAMS)
    if random.random() < 0.05:
        made.append((random.choice([name for name, _ in made]), mean(random)))
    return made


def features(random: Random) -> Any:
    place = {"offset": random.choice((0, 0, 1)), "length": random.choice((1, 1, 2))}
    return random.choice((None, {"mm_hashes": {"image": ["h"]}, "mm_placeholders": {"image": [place]}}))


MAKERS: dict[str, Maker] = {
    **GOOD,
    "token_ids": ids,
    "sampling_params": parameters,
    "features": features,
    "content_parts": lambda r: r.choice((None, None, [{"type": "image_url", "url": "x"}])),
    "output_mode": lambda r: r.choice(("tokens", "text", "text", "derender")),
    "parse_context": lambda r: r.choice((None, {}, {"tools": [tool("f")], "tool_choice": "required"})),
    "reasoning_parser_kwargs": lambda r: r.choice((None, {}, {"chat_template_kwargs": {"a": 1}})),
    "kv_transfer_params": lambda r: r.choice((None, {}, {"do_remote_decode": True})),
}


def generate_case(number: str) -> Case:
    """The request of a number: always the same."""
    random = Random(f"generate {number}")
    return case_of(GENERATE, body_of(GENERATE, random, MAKERS), random)


def lists_fit(choice: Any) -> None:
    listed = choice["logprobs"]
    if listed is not None:
        assert len(listed["content"]) == len(choice["token_ids"])


def whole_fits(document: Any, mode: str) -> tuple[int, int]:
    """How many choices and tokens there are."""
    assert document["request_id"].startswith(PREFIX)
    assert document["output_mode"] == mode
    choices = document["choices"]
    assert [choice["index"] for choice in choices] == list(range(len(choices)))
    for choice in choices:
        assert choice["finish_reason"] in ("stop", "length", "tool_calls")
        assert ("text" in choice, "message" in choice) == (mode == "text", mode == "derender")
        lists_fit(choice)
    tokens = document["usage"]["completion_tokens"]
    assert sum(len(choice["token_ids"]) for choice in choices) == tokens
    return len(choices), tokens


def stream_fits(body: bytes) -> tuple[int, int]:
    """How many choices and tokens there are."""
    *frames, done = events(body)
    assert done == "[DONE]"
    ended: set[int] = set()
    indexes: set[int] = set()
    for frame in frames:
        assert frame["request_id"].startswith(PREFIX)
        for choice in frame["choices"]:
            assert choice["index"] not in ended, "a frame behind the last of its choice"
            lists_fit(choice)
            indexes.add(choice["index"])
            if choice["finish_reason"] is not None:
                ended.add(choice["index"])
    assert ended == indexes == set(range(len(ended)))
    return len(ended), sum(len(joined(frames, index)) for index in ended)


def fits(reply: Reply) -> tuple[int, int]:
    """How many choices and tokens an answer has; an AssertionError if it is not a proper one."""
    if reply.headers[b"content-type"] == b"application/json":
        document = strict(reply.body)
        return whole_fits(document, document["output_mode"])
    for event in reply.body[:-2].split(b"\n\n")[:-1]:
        strict(event[6:])
    return stream_fits(reply.body)


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no reactor to wait for a thread."""
    monkeypatch.setattr("llmdsim.web.whole.deferToThread", maybeDeferred)


@pytest.mark.parametrize("start", range(0, SEEDS, FEW))
@pytest.mark.parametrize("mode", ["echo", "random", "strict"])
def test_whatever_is_sent_is_answered_properly_and_leaves_nothing(mode: str, start: int) -> None:
    rank = Rank(*MODES[mode])
    stats = rank.rig.rank.stats
    statuses: Counter[int] = Counter()
    for number in range(start, start + FEW):
        made = generate_case(f"{mode} {number}")
        try:
            ended, tokens = rank.ended(), stats.generation_tokens
            reply = quietly(rank, *made.packets)
            statuses[reply.status] += 1
            grown = (rank.ended() - ended, stats.generation_tokens - tokens)
            if reply.status == 200:
                assert fits(reply) == grown
            else:
                assert 400 <= reply.status < 500
                refused(reply.status, reply.body)
                assert grown == (0, 0)
        except BaseException:
            print(f"generate_case({f'{mode} {number}'!r}):\n{made.wire!r}")
            raise
    # A fuzz whose bodies are all refused, or all accepted, finds little.
    assert statuses[200] >= FEW // 8
    assert statuses[400] >= FEW // 8
