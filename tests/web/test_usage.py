"""What usage tells of a KV cache: tokens that were found, and those that were computed for others to find."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.web.anthropic.requests import MESSAGES
from tests.web.clients import CHAT, TEXT, events, reply_of
from tests.web.rig import RankRig

RESPONSES = "/v1/responses"
#: Blocks of eight tokens; a prompt of 44 has five that are full.
CACHE = ("--enable-kvcache", "--block-size", "8", "--zmq-endpoint", "", "--max-num-seqs", "20", "--seed", "1")
WORDS = " ".join(f"word{number}" for number in range(39))
TURN = [{"role": "user", "content": WORDS}]
WAYS = pytest.mark.parametrize("stream", [False, True])


def usage(rig: RankRig, path: str, stream: bool, **more: Any) -> Any:
    """That of a reply that is made at once."""
    body: dict[str, Any] = {"model": "m", "stream": stream, "max_tokens": 1, **more}
    if stream and path in (CHAT, TEXT):
        body["stream_options"] = {"include_usage": True}
    if path == RESPONSES:
        body["max_output_tokens"] = body.pop("max_tokens")
    reply = reply_of(rig.post(path, body))
    assert reply.status == 200, reply.body
    if not stream:
        return json.loads(reply.body)["usage"]
    if path in (CHAT, TEXT):
        return events(reply.body)[-2]["usage"]
    told = [json.loads(line[6:]) for line in reply.body.splitlines() if line.startswith(b"data: ")]
    if path == MESSAGES:
        return next(event["usage"] for event in told if event["type"] == "message_delta")
    return told[-1]["response"]["usage"]


@WAYS
@pytest.mark.parametrize("n", [1, 2, 5])
def test_cached_tokens_are_those_of_each_prompt_once(stream: bool, n: int) -> None:
    rig = RankRig(*CACHE)
    # Further choices find what the first one computes; the prompt was not cached for all that.
    for found in (0, 40):
        counts = usage(rig, CHAT, stream, messages=TURN, n=n)
        assert counts["prompt_tokens"] == 44
        assert counts["prompt_tokens_details"]["cached_tokens"] == found
    ids = [[*range(20)], [*range(100, 131)]]
    for found in (0, 16 + 24):
        counts = usage(rig, TEXT, stream, prompt=ids, n=n)
        assert counts["prompt_tokens"] == 51
        assert counts["prompt_tokens_details"] == {"cached_tokens": found}


@WAYS
@pytest.mark.parametrize("n", [1, 3])
def test_chats_tell_what_they_computed_for_others(stream: bool, n: int) -> None:
    rig = RankRig(*CACHE)
    asked = [(TURN, 0, 40), (TURN, 40, 0), ([*TURN, *TURN], 40, 48)]
    for messages, cached, created in asked:
        details = usage(rig, CHAT, stream, messages=messages, n=n)["prompt_tokens_details"]
        assert details == {"cached_tokens": cached, "created_cache_tokens": created}


@WAYS
def test_messages_and_responses_tell_it_in_their_words(stream: bool) -> None:
    rig = RankRig(*CACHE)
    for cached, created in ((0, 40), (40, 0)):
        counts = usage(rig, MESSAGES, stream, messages=TURN)
        assert counts["cache_read_input_tokens"] == cached
        assert counts["cache_creation_input_tokens"] == created
        assert counts["input_tokens"] == 44 - cached - created
    rig = RankRig(*CACHE)
    for cached, created in ((0, 40), (40, 0)):
        details = usage(rig, RESPONSES, stream, input=WORDS)["input_tokens_details"]
        assert (details["cached_tokens"], details["cache_write_tokens"]) == (cached, created)


@WAYS
@pytest.mark.parametrize("flags", [CACHE[1:], (*CACHE, "--no-enable-prefix-caching")])
def test_nothing_is_computed_for_others_where_nothing_is_found_again(
    stream: bool, flags: tuple[str, ...]
) -> None:
    rig = RankRig(*flags)
    for _ in range(2):
        details = usage(rig, CHAT, stream, messages=TURN)["prompt_tokens_details"]
        assert details == {"cached_tokens": 0, "created_cache_tokens": 0}


def test_a_prompt_whose_log_probabilities_are_wanted_is_computed_for_others() -> None:
    rig = RankRig(*CACHE)
    for _ in range(2):
        details = usage(rig, CHAT, False, messages=TURN, prompt_logprobs=1)["prompt_tokens_details"]
        assert details == {"cached_tokens": 0, "created_cache_tokens": 40}


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ({"logprobs": 1}, 16),
        ({"echo": True}, 16),
        ({"echo": True, "logprobs": 0}, 0),
        ({"echo": True, "logprobs": 2}, 0),
        ({"prompt_logprobs": 0}, 0),
    ],
)
def test_texts_find_nothing_where_log_probabilities_of_the_prompt_are_wanted(
    more: dict[str, Any], found: int
) -> None:
    rig = RankRig(*CACHE)
    usage(rig, TEXT, False, prompt=[*range(20)])
    assert usage(rig, TEXT, False, prompt=[*range(20)], **more)["prompt_tokens_details"] == {
        "cached_tokens": found
    }
    if "echo" in more and "logprobs" in more:
        details = usage(rig, TEXT, True, prompt=[*range(20)], **more)["prompt_tokens_details"]
        assert details == {"cached_tokens": found}


@pytest.mark.parametrize(("more", "found"), [({"echo": True}, 0), ({"echo": False}, 40)])
def test_chats_find_nothing_where_they_are_echoed(more: dict[str, Any], found: int) -> None:
    # Their `top_logprobs` is 0 if it is left out, and not null (vLLM).
    rig = RankRig(*CACHE)
    usage(rig, CHAT, False, messages=TURN)
    assert usage(rig, CHAT, False, messages=TURN, **more)["prompt_tokens_details"]["cached_tokens"] == found


@pytest.mark.parametrize(
    ("params", "found"),
    [
        ({}, 16),
        ({"skip_reading_prefix_cache": None}, 16),
        ({"skip_reading_prefix_cache": True}, 0),
        ({"skip_reading_prefix_cache": "yes"}, 0),
        ({"prompt_logprobs": 1}, 0),
        ({"prompt_logprobs": 1, "skip_reading_prefix_cache": False}, 16),
        ({"prompt_logprob_token_ids": [[1]] * 19}, 0),
    ],
)
def test_tokens_say_whether_they_want_what_is_cached(params: dict[str, Any], found: int) -> None:
    rig = RankRig(*CACHE)
    for expected, more in ((0, {}), (found, params)):
        sampling = {"max_tokens": 1, **more}
        body = {"token_ids": [*range(20)], "sampling_params": sampling}
        reply = reply_of(rig.post("/inference/v1/generate", body))
        assert reply.status == 200, reply.body
        assert json.loads(reply.body)["usage"]["prompt_tokens_details"]["cached_tokens"] == expected


def test_a_prompt_below_its_threshold_is_computed_for_nobody() -> None:
    details = usage(RankRig(*CACHE), CHAT, False, messages=TURN, cache_hit_threshold=0.5)
    assert details["prompt_tokens_details"] == {"cached_tokens": 0, "created_cache_tokens": 0}
