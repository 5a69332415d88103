"""Tokens in, tokens out: whole answers and streams."""

from __future__ import annotations

import ast
import json
import math
import struct
from base64 import b64decode
from typing import Any

import pytest

from tests.web.clients import events, reply_of
from tests.web.generate.asking import GENERATE, IDS, PREFIX, answer, ask, error, frames_of, joined
from tests.web.rig import RankRig
from tests.wire.channel import post

ECHO = ("--mode", "echo")
FIVE = {"max_tokens": 5, "ignore_eos": True}
BODY_KEYS = [
    *("request_id", "model", "created", "usage", "prompt_logprobs", "prompt_token_id_logprobs"),
    *("prompt_token_ids", "mm_placeholders", "metrics", "kv_transfer_params", "ec_transfer_params"),
    *("output_mode", "choices"),
]
CHOICE_KEYS = [
    *("index", "finish_reason", "stop_reason", "token_ids", "routed_experts", "sampling_mask"),
    "weight_versions",
]


def test_a_whole_answer_has_vllms_keys() -> None:
    document = answer(RankRig(*ECHO))
    assert list(document) == BODY_KEYS
    assert document["request_id"].startswith(PREFIX)
    assert document["model"] == "m"
    assert document["usage"] == {
        "prompt_tokens": 5,
        "total_tokens": 10,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": None,
    }
    (choice,) = document["choices"]
    assert list(choice) == [*CHOICE_KEYS, "logprobs"]
    assert choice["token_ids"] == IDS
    assert choice["finish_reason"] == "stop"


def test_a_stream_has_vllms_keys() -> None:
    frames = frames_of(RankRig(), sampling_params=FIVE, stream_options={"include_usage": True})
    *tokens, last = frames
    assert len(tokens) == 5
    for place, frame in enumerate(tokens):
        assert list(frame) == ["request_id", "usage", "output_mode", "choices"]
        assert frame["usage"] is None
        (choice,) = frame["choices"]
        assert list(choice) == [*CHOICE_KEYS, "logprobs"]
        assert len(choice["token_ids"]) == 1
        assert choice["finish_reason"] == ("length" if place == 4 else None)
    assert list(last) == ["request_id", "usage", "output_mode", "choices"]
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": 5,
        "total_tokens": 10,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    assert len({frame["request_id"] for frame in frames}) == 1


def test_without_include_usage_the_last_frame_is_a_tokens() -> None:
    frames = frames_of(RankRig(), sampling_params=FIVE, stream_options={"continuous_usage_stats": True})
    assert [frame["usage"] for frame in frames] == [None] * 5


def test_usage_may_go_along() -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    *tokens, last = frames_of(RankRig(), sampling_params={**FIVE, "n": 2}, stream_options=options)
    for index in (0, 1):
        mine = [frame["usage"] for frame in tokens if frame["choices"][0]["index"] == index]
        assert [usage["completion_tokens"] for usage in mine] == [1, 2, 3, 4, 5]
        assert all(usage["total_tokens"] == 5 + usage["completion_tokens"] for usage in mine)
        assert list(mine[0]) == [
            *("prompt_tokens", "total_tokens", "completion_tokens"),
            *("prompt_tokens_details", "completion_tokens_details"),
        ]
    assert last["usage"]["completion_tokens"] == 10


@pytest.mark.parametrize("mode", ["tokens", "text"])
@pytest.mark.parametrize("flags", [(), ECHO])
@pytest.mark.parametrize(
    "params",
    [
        {"seed": 3, "max_tokens": 60},
        {"seed": 4},
        {"seed": 5, "n": 3, "max_tokens": 20},
        {"seed": 6, "logprobs": 2, "max_tokens": 9},
        {"seed": 7, "stop": ["e", "zz"], "max_tokens": 90},
        {"seed": 8, "stop_token_ids": [33]},
        {"seed": 9, "max_tokens": 5000, "ignore_eos": True},
    ],
)
def test_a_stream_joins_to_the_whole(mode: str, flags: tuple[str, ...], params: Any) -> None:
    rig = RankRig(*flags, "--max-num-seqs", "8", "--max-model-len", "300")
    whole = answer(rig, sampling_params=params, output_mode=mode)
    frames = frames_of(rig, sampling_params=params, output_mode=mode)
    for choice in whole["choices"]:
        mine = [c for frame in frames for c in frame["choices"] if c["index"] == choice["index"]]
        assert joined(frames, choice["index"]) == choice["token_ids"]
        assert (mine[-1]["finish_reason"], mine[-1]["stop_reason"]) == (
            choice["finish_reason"],
            choice["stop_reason"],
        )
        if mode == "text":
            assert "".join(c["text"] for c in mine) == choice["text"]
        if params.get("logprobs"):
            assert [entry for c in mine for entry in c["logprobs"]["content"]] == choice["logprobs"][
                "content"
            ]
    assert whole["usage"]["completion_tokens"] == sum(len(c["token_ids"]) for c in whole["choices"])


def test_choices_come_one_a_frame_as_their_tokens_fall_due() -> None:
    rig = RankRig("--time-to-first-token", "1s", "--inter-token-latency", "1s")
    body = b'{"token_ids":[1],"stream":true,"sampling_params":{"n":2,"max_tokens":3,"ignore_eos":true}}'
    client = rig.connect().send(post(body, path=b"/inference/v1/generate"))
    for _ in range(4):
        rig.clock.advance(1)
    order = [int(part[: part.index(b",")]) for part in client.received.split(b'"choices":[{"index":')[1:]]
    assert order == [0, 1] * 3


def test_the_length_is_the_contexts_where_none_is_named() -> None:
    rig = RankRig("--max-model-len", "100")
    for named in ({}, {"max_tokens": None}, {"max_tokens": 95}, {"max_tokens": 10**9}):
        document = answer(rig, sampling_params={**named, "ignore_eos": True})
        assert document["usage"]["completion_tokens"] == 95
        assert document["choices"][0]["finish_reason"] == "length"


def test_where_the_peers_rule_holds_the_sum_must_fit() -> None:
    rig = RankRig("--max-model-len", "100", "--strict-context")
    assert answer(rig, sampling_params={"max_tokens": 95})
    assert "maximum context length is 100 tokens" in error(rig, sampling_params={"max_tokens": 96})["message"]
    assert error(rig, token_ids=[1] * 101)


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"logprobs": -2}, "logprobs"),
        ({"logprobs": 21}, "logprobs"),
        ({"prompt_logprobs": -2}, "prompt_logprobs"),
        ({"stream_interval": 0}, "stream_interval"),
        ({"logprobs": 1, "logprob_token_ids": [1, 2]}, "logprob_token_ids"),
        ({"stop_token_ids": [2**32]}, "stop_token_ids"),
        ({"extra_args": {"a": [2**64]}}, "extra_args"),
        ({"min_tokens": 3, "max_tokens": 2}, None),
        # vLLM holds it against its own default of 16.
        ({"min_tokens": 17}, None),
        ({"min_tokens": 1020, "max_tokens": None}, None),
        ({"n": 0}, None),
        ({"n": 9}, None),
        ({"stop": "x", "detokenize": False}, None),
        ({"structured_outputs": {}}, None),
        ({"structured_outputs": {"json": {}, "regex": "a"}}, None),
        ({"trace_decode_token_ids": [1]}, "trace_decode_token_ids"),
        ({"prompt_logprob_start": 1}, "prompt_logprob_start"),
        ({"prompt_logprob_token_ids": [[1]]}, "prompt_logprob_token_ids"),
        ({"prompt_logprob_token_ids": [[1]] * 3 + [[2**32]]}, "prompt_logprob_token_ids"),
        ({"prompt_logprob_token_ids": [[1]] * 3 + [list(range(21))]}, "prompt_logprob_token_ids"),
        ({"prompt_logprob_token_ids": []}, "prompt_logprob_token_ids"),
        ({"prompt_logprob_token_ids": [[1]] * 4, "prompt_logprob_start": -1}, "prompt_logprob_start"),
    ],
)
def test_parameters_out_of_range_are_refused(params: Any, param: str | None) -> None:
    assert error(RankRig("--max-num-seqs", "8"), sampling_params=params)["param"] == param


def test_more_than_the_least_is_cut_with_the_most() -> None:
    rig = RankRig("--max-model-len", "20")
    params = {"min_tokens": 16}
    assert answer(rig, sampling_params=params)["usage"]["completion_tokens"] == 15
    params = {"min_tokens": 30, "max_tokens": 40}
    assert answer(rig, sampling_params=params)["usage"]["completion_tokens"] == 15


def test_a_prompt_fits_the_context_and_the_vocabulary() -> None:
    rig = RankRig("--max-model-len", "10")
    assert error(rig, token_ids=[1] * 11)["param"] == "input_tokens"
    assert error(rig, token_ids=[1] * 10)["param"] is None
    assert error(rig, token_ids=[1] * 11, sampling_params={"max_tokens": 1})
    assert "out of vocabulary" in error(rig, token_ids=[2**32])["message"]
    assert answer(rig, token_ids=[1] * 9)["usage"]["completion_tokens"] == 1


def test_the_model_may_be_left_out_and_must_be_known() -> None:
    rig = RankRig("--served-model-name", "a", "b")
    assert answer(rig)["model"] == answer(rig, model="b")["model"] == "a"
    reply = ask(rig, model="m")
    assert reply.status == 404
    assert "`m` does not exist" in reply.error["error"]["message"]


def test_v40_the_callers_id_is_kept() -> None:
    rig = RankRig()
    assert answer(rig, request_id="mine")["request_id"] == PREFIX + "mine"
    body = b'{"token_ids":[1],"sampling_params":{},"request_id":"mine"}'
    client = rig.connect().send(post(body, b"X-Request-Id: other", path=b"/inference/v1/generate"))
    assert b'"request_id":"generate-tokens-other"' in client.received


def test_log_probabilities_are_by_ids() -> None:
    document = answer(RankRig(*ECHO), sampling_params={"logprobs": 3})
    content = document["choices"][0]["logprobs"]["content"]
    assert [entry["token_id"] for entry in content] == IDS
    for entry in content:
        assert list(entry) == ["token_id", "logprob", "rank", "top_logprobs"]
        top = entry["top_logprobs"]
        assert [candidate["rank"] for candidate in top] == [1, 2, 3]
        assert top[0] == {name: entry[name] for name in ("token_id", "logprob", "rank")}
        assert [c["logprob"] for c in top] == sorted((c["logprob"] for c in top), reverse=True)


def test_no_alternatives_still_list_the_token_itself() -> None:
    document = answer(RankRig(*ECHO), sampling_params={"logprobs": 0})
    assert [len(entry["top_logprobs"]) for entry in document["choices"][0]["logprobs"]["content"]] == [1] * 5


def test_chosen_ids_alone_bring_log_probabilities_to_messages_only() -> None:
    rig, params = RankRig(*ECHO), {"logprob_token_ids": [7, 8]}
    assert answer(rig, sampling_params=params)["choices"][0]["logprobs"] is None
    assert answer(rig, sampling_params=params, output_mode="derender")["choices"][0]["logprobs"]


@pytest.mark.parametrize("mode", ["text", "derender"])
def test_log_probabilities_of_text_are_a_chats(mode: str) -> None:
    rig = RankRig(*ECHO)
    ids = rig.rank.context.tokenizer.encode("one two")
    document = answer(rig, token_ids=ids, sampling_params={"logprobs": 0}, output_mode=mode)
    content = document["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in content] == ["one ", "two"]
    # A chat shows as many as were asked for, the others all that there are (vLLM).
    assert [len(entry["top_logprobs"]) for entry in content] == [1 if mode == "text" else 0] * 2


def test_log_probabilities_of_the_prompt() -> None:
    rig = RankRig()
    listed = answer(rig, sampling_params={"prompt_logprobs": 2})["prompt_logprobs"]
    assert listed[0] is None
    assert [next(iter(entry)) for entry in listed[1:]] == [str(token) for token in IDS[1:]]
    assert list(listed[1]["22"]) == ["logprob", "rank", "decoded_token"]
    assert all(
        "prompt_logprobs" not in frame for frame in frames_of(rig, sampling_params={"prompt_logprobs": 2})
    )


def test_scores_of_chosen_ids_are_a_numpy_file() -> None:
    rig = RankRig()
    rows = [[33, 1], [44], [-1, 55]]
    params = {"prompt_logprob_token_ids": rows, "prompt_logprob_start": 1}
    file = b64decode(answer(rig, sampling_params=params)["prompt_token_id_logprobs"])
    assert file[:8] == b"\x93NUMPY\x01\x00"
    (length,) = struct.unpack_from("<H", file, 8)
    header, data = file[10 : 10 + length], file[10 + length :]
    assert (10 + length) % 64 == 0
    assert header.endswith(b"\n")
    told = {"descr": "<f4", "fortran_order": False, "shape": (3, 2)}
    assert ast.literal_eval(header.decode().strip()) == told
    first, second, third = struct.iter_unpack("<2f", data)
    assert first[0] > first[1] > -math.inf
    assert second[0] > second[1] == -math.inf
    assert third[1] > third[0] == -math.inf
    assert error(rig, sampling_params=params, stream=True)["param"] is None


def test_text_comes_with_the_ids() -> None:
    rig = RankRig(*ECHO)
    ids = rig.rank.context.tokenizer.encode("one two three")
    document = answer(rig, token_ids=ids, output_mode="text", sampling_params={"stop": "three"})
    (choice,) = document["choices"]
    assert list(choice) == [*CHOICE_KEYS, "text", "logprobs"]
    assert (choice["text"], choice["token_ids"], choice["stop_reason"]) == ("one two ", ids, "three")
    assert document["output_mode"] == "text"


def test_structured_output_holds_for_the_text() -> None:
    params = {"structured_outputs": {"choice": ["yes sir", "no"]}, "seed": 1}
    assert answer(RankRig(), output_mode="text", sampling_params=params)["choices"][0]["text"] in (
        "yes sir",
        "no",
    )


def test_draining_refuses() -> None:
    rig = RankRig()
    rig.rank.context.draining = True
    assert ask(rig).status == 503


def test_a_client_that_leaves_frees_its_places() -> None:
    rig = RankRig("--time-to-first-token", "1s")
    body = b'{"token_ids":[1],"stream":true,"sampling_params":{"n":2}}'
    client = rig.connect().send(post(body, path=b"/inference/v1/generate"))
    assert rig.rank.stats.running == 2
    client.rst()
    rig.settle()
    assert rig.rank.stats.running == 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("passed", [0.5, 2.5])
def test_an_aborted_request_ends_as_it_stands(stream: bool, passed: float) -> None:
    rig = RankRig("--time-to-first-token", "1s", "--inter-token-latency", "1s")
    body = {"token_ids": IDS, "sampling_params": {"max_tokens": 9, "ignore_eos": True}, "request_id": "x"}
    client = rig.post(GENERATE, {**body, "stream": stream})
    rig.clock.advance(passed)
    reply = reply_of(rig.post("/inference/v1/abort_requests", {"request_ids": [PREFIX + "x"]}))
    assert reply.status == 200
    rig.settle()
    answered = reply_of(client)
    frames = events(answered.body)[:-1] if stream else [json.loads(answered.body)]
    assert frames[-1]["choices"][0]["finish_reason"] == "abort"
    assert len(joined(frames)) == int(passed)
    assert rig.rank.engine.idle
