"""The families about LoRA adapters: whose requests run and wait, and which are in memory."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from llmdsim.engine.engine import Engine
from llmdsim.metrics import exposition
from llmdsim.metrics.block import Block, LateBlock

INFO = "vllm:lora_requests_info"
INFO_HEAD = exposition.head(
    INFO, "gauge", "Adapters whose requests run or wait, and when that last changed, as Unix time."
)

#: Series of former states that are shown as vLLM does; of more the oldest are forgotten.
MOST_SERIES = 1000


def lora_blocks(
    engine: Engine,
    max_loras: int,
    labels: Mapping[str, str],
    seconds: Callable[[], float],
    shown: Callable[[], bool],
    as_vllm: bool,
) -> list[Block]:
    """Nothing until `shown`. `labels` are `model_name` and `engine`; `seconds` is the engine's time.

    `as_vllm` is vLLM 0.33, which does not tell what is in memory; the names of those families are what it is
    proposed to be told by (vllm-project/vllm#54830).
    """
    blocks: list[Block]
    if as_vllm:
        blocks = [VllmRequestsInfo(engine, max_loras)]
    else:
        blocks = [RequestsInfo(engine, max_loras, seconds), Loaded(engine, max_loras, labels, seconds)]
    return [LateBlock(block, shown) for block in blocks]


class RequestsInfo:
    """One series: what it says of the past would be mistaken for the present.

    An adapter with a running request is not told as waiting: what has a slot is there to be joined.
    """

    def __init__(self, engine: Engine, max_loras: int, seconds: Callable[[], float]) -> None:
        self._engine = engine
        self._max_loras = max_loras
        self._seconds = seconds
        self._seen = -1
        self._text = b""

    def text(self) -> bytes:
        stats = self._engine.stats
        if stats.adapter_changes != self._seen:
            self._seen = stats.adapter_changes
            running = {adapter.name for adapter in self._engine.residency.running}
            waiting = {adapter.name for adapter in self._engine.waiting_adapters} - running
            ago = self._seconds() - stats.adapters_changed_at if self._seen else 0.0
            labels = info_labels(self._max_loras, ",".join(sorted(running)), ",".join(sorted(waiting)))
            self._text = INFO_HEAD + exposition.line(INFO, labels, time.time() - ago)
        return self._text

    def openmetrics(self) -> bytes:
        return self.text()


class VllmRequestsInfo:
    """vLLM 0.33's: both lists are the same adapters, and a series stays when it is not true any more.

    What has happened to a request is told to vLLM's metrics with its tokens, so an adapter is listed from the
    first of them. A state is told from when it is first looked at.
    """

    def __init__(self, engine: Engine, max_loras: int) -> None:
        self._engine = engine
        self._max_loras = max_loras
        self._lines: dict[str, bytes] = {}
        self._seen = -1

    def text(self) -> bytes:
        stats = self._engine.stats
        if stats.running or stats.adapter_changes != self._seen:
            self._seen = stats.adapter_changes
            started = (each.adapter for each in self._engine.running if each.revealed)
            names = ",".join(dict.fromkeys(adapter.name for adapter in started if adapter is not None))
            self._lines.pop(names, None)
            labels = info_labels(self._max_loras, names, names)
            self._lines[names] = exposition.line(INFO, labels, time.time())
            if len(self._lines) > MOST_SERIES:
                del self._lines[next(iter(self._lines))]
        return b"".join([INFO_HEAD, *self._lines.values()])

    def openmetrics(self) -> bytes:
        return self.text()


def info_labels(max_loras: int, running: str, waiting: str) -> dict[str, str]:
    """Labels of the one series that is true."""
    return {
        "max_lora": str(max_loras),
        "running_lora_adapters": running,
        "waiting_lora_adapters": waiting,
    }


class Loaded:
    """Which adapters are in memory, whether requests name them or not."""

    def __init__(
        self, engine: Engine, max_loras: int, labels: Mapping[str, str], seconds: Callable[[], float]
    ) -> None:
        self._residency = engine.residency
        self._max_loras = max_loras
        self._labels = labels
        self._seconds = seconds
        self._seen = -1
        #: When the next adapter will be loaded.
        self._next = math.inf
        self._text = b""

    def text(self) -> bytes:
        now = self._seconds()
        residency = self._residency
        if residency.changes != self._seen or now >= self._next:
            self._seen = residency.changes
            self._next = min((at for at in residency.loaded_at.values() if at > now), default=math.inf)
            self._text = self._render(now)
        return self._text

    def openmetrics(self) -> bytes:
        return self.text()

    def _render(self, now: float) -> bytes:
        slots = self._residency.slots
        loaded = [adapter for adapter, at in self._residency.loaded_at.items() if at <= now]
        on_gpu = [adapter for adapter in loaded if adapter in slots]
        parts = [
            self._number("num_gpu_loaded_lora_adapters", "LoRA adapters in GPU slots.", len(on_gpu)),
            self._number("num_cpu_loaded_lora_adapters", "LoRA adapters in CPU memory.", len(loaded)),
            self._number("max_gpu_lora_adapters", "GPU slots for LoRA adapters.", self._max_loras),
        ]
        name = "vllm:lora_adapter_loaded"
        parts.append(exposition.head(name, "gauge", "1 for each LoRA adapter in memory, by where it is."))
        # One that is unloaded and not done may have the name of another; a series can stand there only once.
        levels = {adapter.name: "cpu" for adapter in loaded} | {adapter.name: "gpu" for adapter in on_gpu}
        for adapter, level in sorted(levels.items()):
            labels = {**self._labels, "adapter_name": adapter, "level": level, "pinned": "false"}
            parts.append(exposition.line(name, labels, 1))
        return b"".join(parts)

    def _number(self, name: str, help_text: str, value: int) -> bytes:
        name = f"vllm:{name}"
        return exposition.head(name, "gauge", help_text) + exposition.line(name, self._labels, value)
