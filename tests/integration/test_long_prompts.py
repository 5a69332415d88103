"""Prompts of a megabyte, text and ids: counted rightly, and in nobody's way."""

from __future__ import annotations

import pytest

from tests.integration.client import Client
from tests.integration.daemon import Pool

pytestmark = pytest.mark.integration

MEGABYTE = 1_000_000


@pytest.fixture
def roomy(daemon_with: Pool) -> Client:
    return daemon_with("--max-model-len", "2000000", "--max-num-seqs", "8").client


@pytest.mark.parametrize(
    ("sample", "tokens"),
    [("seven words make up this short line, ", 8), ("今天去公园看花。", 8), ("мягких булок ", 2)],
)
def test_a_megabyte_of_text_is_counted(roomy: Client, sample: str, tokens: int) -> None:
    times = MEGABYTE // len(sample.encode())
    reply = roomy.post("/v1/completions", {"prompt": sample * times, "max_tokens": 2, "ignore_eos": True})
    assert reply.status == 200
    usage = reply.json["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (tokens * times, 2)


def test_a_megabyte_of_ids_is_counted(roomy: Client) -> None:
    ids = [number * 7919 % 150_000 for number in range(MEGABYTE // 7)]
    reply = roomy.post("/v1/completions", {"prompt": ids, "max_tokens": 2, "ignore_eos": True})
    assert reply.status == 200
    usage = reply.json["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(ids), 2)


def test_one_that_does_not_fit_is_refused_with_its_field(daemon_with: Pool) -> None:
    client = daemon_with("--max-model-len", "8192", "--max-num-seqs", "8").client
    reply = client.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a, " * 333_333}]})
    assert (reply.status, reply.json["error"]["param"]) == (400, "input_tokens")
