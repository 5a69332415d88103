"""The engine's families as blocks: those of vLLM, and our own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from llmdsim.engine.stats import Stats
from llmdsim.metrics.block import Block, FamilyBlock, LateBlock
from llmdsim.metrics.families import (
    BLOCK_FAMILIES,
    FAMILIES,
    OFFLOAD_FAMILIES,
    TRANSFER_FAMILIES,
    Distribution,
    Family,
    Labelled,
)
from llmdsim.reply.author import Author


def engine_blocks(
    model_name: str, ranks: Sequence[tuple[str, Stats]], cache_config: Mapping[str, str]
) -> list[Block]:
    """The `vllm:` families in vLLM's order.

    `model_name` is the first served name; `ranks` pairs each rank's `engine` label with its counters;
    `cache_config` gives the labels of `vllm:cache_config_info`.
    """
    blocks = _family_blocks(FAMILIES, model_name, ranks)
    return [*blocks, cache_config_block([engine for engine, _ in ranks], cache_config)]


def kv_block_blocks(model_name: str, ranks: Sequence[tuple[str, Stats]]) -> list[Block]:
    """The families of single KV blocks."""
    return _family_blocks(BLOCK_FAMILIES, model_name, ranks)


def offload_blocks(model_name: str, ranks: Sequence[tuple[str, Stats]]) -> list[Block]:
    """The families of copies of KV blocks in CPU memory."""
    return _family_blocks(OFFLOAD_FAMILIES, model_name, ranks)


def transfer_blocks(model_name: str, ranks: Sequence[tuple[str, Stats]], *, early: bool) -> list[Block]:
    """The families of transfers of KV blocks: from the start on if `early`, else from the first one on."""

    def shown() -> bool:
        return early or any(stats.transfers.queried for _, stats in ranks)

    return [LateBlock(block, shown) for block in _family_blocks(TRANSFER_FAMILIES, model_name, ranks)]


def _family_blocks(
    families: Sequence[Family], model_name: str, ranks: Sequence[tuple[str, Stats]]
) -> list[Block]:
    blocks: list[Block] = []
    for family in families:
        kind = "histogram" if isinstance(family, Distribution) else family.kind
        block = FamilyBlock(family.name, kind, family.help)
        blocks.append(block)
        if isinstance(family, Labelled) and not family.per_engine:
            for value, read in family.reads.items():
                labels = {"model_name": model_name, family.label: value}
                block.add_number(labels, partial(_total, read, [stats for _, stats in ranks]))
            continue
        for engine, stats in ranks:
            labels = {"model_name": model_name, "engine": engine}
            match family:
                case Distribution():
                    block.add_histogram(labels, family.read(stats))
                case Labelled():
                    for value, read in family.reads.items():
                        block.add_number({**labels, family.label: value}, partial(read, stats))
                case _:
                    block.add_number(labels, partial(family.read, stats))
    return blocks


def cache_config_block(engines: Sequence[str], cache_config: Mapping[str, str]) -> Block:
    """The one family that tells what is configured, not what is measured."""
    info = FamilyBlock("vllm:cache_config_info", "gauge", "The KV cache's configuration, in labels.")
    for engine in engines:
        info.add_number({**cache_config, "engine": engine}, lambda: 1)
    return info


def own_blocks(
    ranks: Sequence[tuple[str, Stats, Author]], speed: Callable[[], float] = lambda: 1.0
) -> list[Block]:
    """What no vLLM shows: whether the simulator keeps its pace, and what replies and responses came to.

    `speed` tells how many times faster than real time latencies run.
    """
    lateness = FamilyBlock(
        "llmdsim:engine_pass_lateness_seconds",
        "histogram",
        "Seconds by which tokens were revealed later than planned.",
    )
    nonconforming = FamilyBlock(
        "llmdsim:nonconforming_replies",
        "counter",
        "Tool calls and constrained texts that could not be made to follow their schema or expression.",
    )
    faults = FamilyBlock(
        "llmdsim:faults_injected", "counter", "Requests that were made to fail, by the kind of fault."
    )
    pace = FamilyBlock(
        "llmdsim:speed", "gauge", "How many times faster than configured all latencies run (--speed)."
    )
    pace.add_number({}, speed)
    refused = FamilyBlock(
        "llmdsim:queue_full_refusals", "counter", "Requests refused because the waiting queue was full."
    )
    for engine, stats, author in ranks:
        refused.add_number({"engine": engine}, partial(getattr, stats, "refused"))
        lateness.add_histogram({"engine": engine}, stats.pass_lateness)
        nonconforming.add_number({"engine": engine}, partial(getattr, author.composer, "nonconforming"))
        for kind in stats.faults:
            faults.add_number({"engine": engine, "kind": kind}, partial(stats.faults.__getitem__, kind))
    return [refused, lateness, nonconforming, faults, pace]


def _total(read: Callable[[Stats], float], ranks: Sequence[Stats]) -> float:
    return sum(read(stats) for stats in ranks)
