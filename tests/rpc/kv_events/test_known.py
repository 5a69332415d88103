"""Who applies all that it is told knows what can be found in the cache, whatever was asked for."""

from __future__ import annotations

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from llmdsim.engine.kvcache.records import BlockHash
from llmdsim.rpc.pb import common_pb2 as pb
from tests.rpc.kv_events.rig import ALONE, Router, batches, generate, subscribe
from tests.services.events_rig import EventsRig

#: Beginnings, of which some prompts share one; how long it is, how much follows, and what else it has.
prompts = st.tuples(
    st.integers(1, 3),
    st.integers(0, 40),
    st.integers(1, 20),
    st.sampled_from([{}, {}, {"cache_salt": "s"}, {"model": "one"}, {"model": "one", "cache_salt": "t"}]),
)


def signed(block_hash: BlockHash | None) -> int:
    assert isinstance(block_hash, bytes)
    return int.from_bytes(block_hash[-8:], "big", signed=True)


@settings(max_examples=60)
@given(st.lists(st.one_of(prompts, st.just("clear")), max_size=12), st.booleans(), st.booleans())
def test_what_subscribers_know_is_what_the_cache_holds(
    steps: list[Any], offloads: bool, published: bool
) -> None:
    flags = ["--kv-cache-size", "10", "--lora-modules", "one=/one", "--max-model-len", "75"]
    if published:
        flags += ["--zmq-endpoint", "tcp://*:6000"]
    if offloads:
        flags += ["--kv-offloading-size", "0.01"]
    rig = EventsRig(*ALONE, *flags).start()
    cache = rig.rank.engine.cache
    assert cache is not None
    call, router, heard = subscribe(rig), Router(), 0
    for step in steps:
        if step == "clear":
            rig.rank.driver.reset_prefix_cache()
        else:
            which, begin, end, more = step
            generate(rig, [which] * begin + [9] * end, tokens=9, **more)
        for message in batches(call)[heard:]:
            router.hear(message)
            assert message.sequence_number == heard
            heard += 1
        held = Counter(signed(block.hash) for block in cache.pool.blocks())
        assert router.known() == held
        if cache.host is not None:
            copies = {signed(copy.hash) for copy in cache.host._copies.values()}
            assert router.known(pb.KV_CACHE_TIER_HOST).keys() == copies
    assert not call.ended
