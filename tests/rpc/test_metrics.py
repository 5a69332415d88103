"""Calls are counted as the requests are that ask for the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from tests.rpc.client import Call, RpcClient
from tests.web.clients import TEXT, fields, request
from tests.web.rig import RankRig
from tests.wire.channel import get

FLAGS = ("--time-to-first-token", "1s", "--inter-token-latency", "1s", "--max-num-seqs", "2", "--seed", "1")

OURS = ("vllm:", "llmdsim:")


def page(rig: RankRig) -> list[str]:
    text = rig.connect().send(get(b"/metrics")).received.decode()
    return [line for line in text.splitlines() if line.startswith(OURS) and "_created{" not in line]


def http(rig: RankRig, **more: Any) -> Callable[[], object]:
    client = rig.connect().send(request(TEXT, fields(TEXT, **more)))
    return client.rst


def call(rig: RankRig, stream: bool = False, **more: Any) -> Callable[[], object]:
    params = pb.SamplingParams(max_tokens=more.pop("max_tokens", 5), ignore_eos=True, **more)
    asked = pb.GenerateRequest(text="one two", stream=stream, sampling_params=params)
    made: Call[pb.GenerateResponse] = RpcClient(rig).call("Generate", asked, pb.GenerateResponse)
    return made.cancel


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "more",
    [{}, {"n": 2}, {"max_tokens": 1}, {"stop": ["e"]}, {"top_p": 7}],
    ids=["one", "n", "short", "stop", "wrong"],
)
def test_they_count_alike(stream: bool, more: dict[str, Any]) -> None:
    pages = []
    for ask in (http, call):
        rig = RankRig(*FLAGS, "--enable-kvcache")
        pages.append([page(rig)])
        for _ in range(3):
            ask(rig, stream=stream, **more)
        for _ in range(8):
            rig.clock.advance(0.5)
            pages[-1].append(page(rig))
        rig.clock.pump([0.5] * 40)
        pages[-1].append(page(rig))
    of_requests, of_calls = pages
    assert of_calls == of_requests
    assert (of_calls[0] == of_calls[-1]) == ("top_p" in more)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("moment", [0.5, 2.5])
def test_so_do_those_whose_clients_leave(stream: bool, moment: float) -> None:
    pages = []
    for ask in (http, call):
        rig = RankRig(*FLAGS)
        leave = [ask(rig, stream=stream) for _ in range(3)]
        rig.clock.pump([0.5] * round(moment * 2))
        for each in leave:
            each()
        rig.clock.pump([0.5] * 20)
        pages.append(page(rig))
    assert pages[0] == pages[1]
    assert [line for line in pages[0] if 'finished_reason="abort"' in line and line.endswith(" 3.0")]


@pytest.mark.parametrize("fault", ["truncate; after=1", "error; after=2", "status", "reset"])
def test_so_do_those_that_fail_on_purpose(fault: str) -> None:
    pages = []
    for ask in (http, call):
        rig = RankRig(*FLAGS, "--faults", fault)
        for _ in range(2):
            ask(rig, stream=True)
        rig.clock.pump([0.5] * 20)
        pages.append(page(rig))
    assert pages[0] == pages[1]
    assert [
        line
        for line in pages[0]
        if line.startswith("llmdsim:faults_injected_total") and line.endswith(" 2.0")
    ]
