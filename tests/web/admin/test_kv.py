"""What is in the KV cache, and what of a prompt would be found there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmdsim.config import parse
from llmdsim.engine.stats import Histogram
from tests.web.admin.operator import answer, begin, call, told
from tests.web.clients import CHAT, TEXT
from tests.web.rig import PassRig, RankRig
from tests.wire.channel import Reply

DEV = "--vllm-server-dev-mode"
CACHE = (DEV, "--enable-kvcache", "--block-size", "8", "--zmq-endpoint", "", "--seed", "1")
#: Ids of two blocks and a half.
IDS = [*range(100, 120)]
TURN = [{"role": "user", "content": "one two three four five six seven eight nine ten"}]


def kv_rig(*flags: str) -> RankRig:
    return RankRig(*CACHE, *flags)


def generate(rig: RankRig, prompt: Any = IDS, path: str = TEXT, **more: Any) -> Reply:
    field = "messages" if path == CHAT else "prompt"
    client = rig.post(path, {"model": "m", field: prompt, "max_tokens": 4, "ignore_eos": True, **more})
    rig.clock.pump([0.0, 5.0, 5.0, 5.0])
    reply = answer(client)
    assert reply.status == 200, reply
    return reply


def seen(rig: RankRig, query: str = "") -> Any:
    return told(rig, "GET", f"/admin/kv{query}")


def probe(rig: RankRig, prompt: Any = IDS, **more: Any) -> Any:
    return told(rig, "POST", "/admin/kv/probe", {"prompt": prompt, **more})


def counters(rig: RankRig) -> dict[str, Any]:
    stats = rig.rank.stats
    values = {name: getattr(stats, name) for name in stats.__slots__}
    return {
        name: value.counts if isinstance(value, Histogram) else value
        for name, value in values.items()
        if isinstance(value, int | float | dict | Histogram)
    }


def test_an_empty_cache() -> None:
    rig = kv_rig("--kv-cache-size", "50")
    assert seen(rig) == {
        "block_size": 8,
        "total": 50,
        "used": 0,
        "free": 50,
        "cached": 0,
        "usage": 0.0,
        "host": None,
        "blocks": [],
        "next_offset": None,
    }


def test_blocks_that_can_be_found() -> None:
    rig = kv_rig()
    generate(rig)
    page = seen(rig)
    assert (page["used"], page["cached"]) == (0, 2)
    first = {
        "number": 1,
        "refs": 0,
        "hash": None,
        "event_hash": None,
        "parent": None,
        "depth": 0,
    }
    of_prompt = {"adapter": None, "cache_salt": None}
    assert page["blocks"] == [
        {**first, **of_prompt},
        {**first, **of_prompt, "number": 2, "parent": 1, "depth": 1},
    ]


def test_blocks_of_what_runs() -> None:
    rig = kv_rig("--time-to-first-token", "1s", "--lora-modules", "ad=/ad", "--enable-lora")
    rig.post(TEXT, {"model": "m", "prompt": IDS, "max_tokens": 4, "cache_salt": "s"})
    rig.post(TEXT, {"model": "m", "prompt": [*IDS[:16], 1], "max_tokens": 4, "cache_salt": "s"})
    rig.post(TEXT, {"model": "ad", "prompt": IDS[:9], "max_tokens": 4})
    rig.settle()
    page = seen(rig)
    assert (page["used"], page["cached"]) == (6, 3)
    shown = [
        tuple(block[name] for name in ("number", "refs", "parent", "depth", "adapter", "cache_salt"))
        for block in page["blocks"]
    ]
    assert shown == [
        (1, 2, None, 0, None, "s"),
        (2, 2, 1, 1, None, "s"),
        (3, 1, None, 0, "ad", None),
    ]


def test_hashes_are_told_whole_and_as_events_have_them() -> None:
    rig = RankRig(DEV, "--enable-kvcache", "--zmq-endpoint", "tcp://127.0.0.1:5557")
    generate(rig, [*range(20)])
    (block,) = seen(rig)["blocks"]
    # The vector of vLLM's sha256 for the tokens 0 to 15 in a block of 16.
    assert block["event_hash"] == 3262291359910021016
    assert int(block["hash"][-16:], 16) == block["event_hash"]
    assert len(block["hash"]) == 64
    (found,) = probe(rig, [*range(20)])["blocks"]
    assert found == {"number": 1, "refs": 0, "hash": block["hash"], "event_hash": block["event_hash"]}


def test_a_page_has_a_bound_and_tells_where_the_next_one_begins() -> None:
    rig = kv_rig()
    generate(rig, [*range(1, 50)])
    generate(rig, [*range(201, 250)])
    everything = seen(rig)["blocks"]
    assert len(everything) == 12
    pages: list[Any] = []
    offset: int | None = 0
    while offset is not None:
        page = seen(rig, f"?limit=5&offset={offset}")
        assert len(page["blocks"]) <= 5
        pages += page["blocks"]
        offset = page["next_offset"]
    assert pages == everything, "parents and depths of blocks on other pages included"
    assert seen(rig, "?offset=100000")["blocks"] == []


@pytest.mark.parametrize("query", ["?limit=0", "?limit=10001", "?offset=-1", "?limit=x", "?offset=%ff"])
def test_a_page_that_makes_no_sense(query: str) -> None:
    assert call(kv_rig(), "GET", f"/admin/kv{query}").status == 400


def test_a_large_cache_is_told_in_steps() -> None:
    flags = ("--kv-cache-size", "5000", "--max-model-len", "40000", *CACHE)
    rig = PassRig(*flags)
    client = rig.post(TEXT, {"model": "m", "prompt": [*range(1, 30_000)], "max_tokens": 2})
    rig.finish()
    assert answer(client).status == 200
    client = begin(rig, "GET", "/admin/kv?limit=10000")
    rig.settle()
    assert not client.received
    turns = rig.finish()
    assert turns > 10
    page = json.loads(answer(client, "GET").body)
    assert [block["depth"] for block in page["blocks"]] == [*range(3749)]
    assert [block["parent"] for block in page["blocks"]] == [None, *range(1, 3749)]


def test_a_probe_tells_what_would_be_found_and_changes_nothing() -> None:
    rig = kv_rig("--kv-cache-size", "6")
    generate(rig)
    generate(rig, [*range(1, 20)])
    before = counters(rig), seen(rig)
    nothing = {"prompt_tokens": 20, "cached_tokens": 0, "host_tokens": 0, "would_hit": False, "blocks": []}
    assert probe(rig, [*range(500, 520)]) == nothing
    for _ in range(3):
        found = probe(rig)
        assert (found["prompt_tokens"], found["cached_tokens"], found["would_hit"]) == (20, 16, True)
        assert [block["number"] for block in found["blocks"]] == [1, 2]
    assert (counters(rig), seen(rig)) == before
    generate(rig, [*range(800, 832)])
    assert probe(rig)["cached_tokens"] < 16, "it is as old as it was before it was looked for"


def test_a_probe_agrees_with_the_answer() -> None:
    rig = kv_rig()
    for prompt in (IDS, IDS[:16], [*IDS[:8], 5], "a text " * 20, "a text " * 19):
        for _ in range(2):
            expected = probe(rig, prompt)
            usage = json.loads(generate(rig, prompt).body)["usage"]
            assert usage["prompt_tokens"] == expected["prompt_tokens"]
            assert usage["prompt_tokens_details"]["cached_tokens"] == expected["cached_tokens"]


def test_a_conversation_is_probed_as_it_would_be_rendered() -> None:
    rig = kv_rig()
    asked = {"messages": TURN, "model": "m"}
    assert not told(rig, "POST", "/admin/kv/probe", asked)["would_hit"]
    generate(rig, TURN, CHAT)
    usage = json.loads(generate(rig, TURN, CHAT).body)["usage"]
    found = told(rig, "POST", "/admin/kv/probe", asked)
    assert found["cached_tokens"] == usage["prompt_tokens_details"]["cached_tokens"] > 0
    assert found["prompt_tokens"] == usage["prompt_tokens"]


def test_what_cpu_memory_has_is_told_too() -> None:
    # Room for two blocks more than the device has.
    rig = kv_rig("--kv-cache-size", "3", "--kv-offloading-size", str(5 * 8 * 131_072 / (1 << 30)))
    generate(rig, [*range(1, 21)])
    generate(rig, [*range(101, 109)])
    assert seen(rig)["host"] == {"total": 5, "cached": 3}
    found = probe(rig, [*range(1, 21)])
    assert (found["cached_tokens"], found["host_tokens"], found["would_hit"]) == (16, 8, True)
    assert [block["number"] for block in found["blocks"]] == [1]
    usage = json.loads(generate(rig, [*range(1, 21)]).body)["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 16


def test_adapters_and_salts_are_probed_for_themselves() -> None:
    rig = kv_rig("--lora-modules", "ad=/ad", "--enable-lora")
    generate(rig, cache_salt="s")
    generate(rig, [*IDS[:8], *range(9)], model="ad")
    assert probe(rig)["cached_tokens"] == 0
    assert probe(rig, cache_salt="s")["cached_tokens"] == 16
    assert probe(rig, cache_salt="t")["cached_tokens"] == 0
    assert probe(rig, model="ad")["cached_tokens"] == 8
    assert probe(rig, model="ad", cache_salt="s")["cached_tokens"] == 0
    assert probe(rig, cache_salt="s", prompt_logprobs=1)["cached_tokens"] == 0, "it is not looked up"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"prompt": IDS, "model": "none"}, 404),
        ({"messages": TURN, "model": "none"}, 404),
        ({"prompt": [[1], [2]]}, 400),
        ({"prompt": ["a", "b"]}, 400),
        ({"prompt": [1 << 40]}, 400),
        ({"prompt": "a " * 5000}, 400),
        ({"prompt": ""}, 400),
        ({"messages": []}, 400),
        ({"messages": "x"}, 400),
        ({}, 400),
        (b"", 400),
        (b"{", 400),
        (b"[" * 5000, 400),
        (b'{"prompt":"\xff"}', 400),
    ],
)
def test_a_probe_is_refused_as_a_request_would_be(body: Any, status: int) -> None:
    rig = kv_rig()
    assert call(rig, "POST", "/admin/kv/probe", body).status == status


def test_the_routes_take_development_mode() -> None:
    rig = RankRig(config=parse(["--model", "m", "--enable-kvcache", "--zmq-endpoint", ""], {}))
    for reply in (call(rig, "GET", "/admin/kv"), call(rig, "POST", "/admin/kv/probe", {"prompt": IDS})):
        assert reply.status == 403
        assert "VLLM_SERVER_DEV_MODE" in reply.error["error"]["message"]


def test_the_routes_take_a_cache() -> None:
    rig = RankRig(DEV)
    for reply in (call(rig, "GET", "/admin/kv"), call(rig, "POST", "/admin/kv/probe", {"prompt": IDS})):
        assert reply.status == 409
        assert "--enable-kvcache" in reply.error["error"]["message"]
