"""What the metrics page of one rank shows, as it is configured."""

from __future__ import annotations

from typing import Any

from llmdsim.config.kv_events import kv_event_settings
from llmdsim.config.kv_transfer import disaggregates
from llmdsim.kvevents.counts import EventCounts
from llmdsim.metrics import (
    Block,
    Collector,
    HttpRequests,
    Scripted,
    cache_config,
    cache_config_block,
    engine_blocks,
    kv_block_blocks,
    kv_event_blocks,
    lora_blocks,
    offload_blocks,
    own_blocks,
    process_blocks,
    transfer_blocks,
)
from llmdsim.reply.author import Author
from llmdsim.web.context import Context


class RankMetrics:
    """What is measured or, with `--fake-metrics`, what is scripted, and then nothing else.

    `engine` is the label by which the rank is known; `clock` is an `IReactorTime`.
    """

    def __init__(
        self, context: Context, author: Author, engine: str, events: EventCounts, clock: Any
    ) -> None:
        self._context = context
        self._events = events
        self._engine = engine
        self._clock = clock
        self.http_requests = HttpRequests(clock.seconds)
        self._scripted: Scripted | None = None
        self.collector = Collector(
            self._measured(author) if context.config.fake_metrics is None else self._script()
        )

    def start(self) -> None:
        """Let what is scripted move."""
        if self._scripted is not None:
            self._scripted.gauges.start()

    def stop(self) -> None:
        """Let it stand as it is."""
        if self._scripted is not None:
            self._scripted.gauges.stop()

    def _script(self) -> list[Block]:
        context, config = self._context, self._context.config
        self._scripted = Scripted(config, context.model, self._engine, self._clock)
        context.on_config.append(self._scripted.configure)
        context.driver.load = self._scripted
        return [self._scripted, cache_config_block([self._engine], cache_config(config))]

    def _measured(self, author: Author) -> list[Block]:
        context = self._context
        return [
            *process_blocks(),
            *([] if context.config.disable_log_stats else self._vllm()),
            *own_blocks([(self._engine, context.stats, author)], lambda: context.config.speed),
            *self._kv_events(),
            self.http_requests,
        ]

    def _kv_events(self) -> list[Block]:
        enabled = kv_event_settings(self._context.config).enabled
        return kv_event_blocks(self._engine, self._events) if enabled else []

    def _vllm(self) -> list[Block]:
        context, config = self._context, self._context.config
        ranks = [(self._engine, context.stats)]
        return [
            *engine_blocks(context.model, ranks, cache_config(config)),
            *(kv_block_blocks(context.model, ranks) if config.kv_cache_metrics else ()),
            *(offload_blocks(context.model, ranks) if config.kv_offloading_size else ()),
            *transfer_blocks(context.model, ranks, early=disaggregates(config)),
            *([] if config.lora_info == "off" else self._lora()),
        ]

    def _lora(self) -> list[Block]:
        context, config = self._context, self._context.config
        return lora_blocks(
            context.driver.engine,
            config.max_loras,
            {"model_name": context.model, "engine": self._engine},
            self._clock.seconds,
            lambda: config.lora_info == "always" or config.enable_lora or context.adapters.in_use,
            as_vllm=config.lora_info == "vllm",
        )
