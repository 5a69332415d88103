"""One choice of one request on its way through the engine."""

from __future__ import annotations

import sys
from typing import Protocol

from llmdsim.engine.adapters import Adapter
from llmdsim.engine.kvcache import BlockTable
from llmdsim.engine.transfers import RemotePrefill
from llmdsim.reply.ask import Ask
from llmdsim.reply.reply import Reply


class Sink(Protocol):
    """Where a sequence's tokens go; the engine calls it and knows nothing else of it."""

    def reveal(self, sequence: Sequence) -> None:
        """Tokens up to `sequence.revealed` are due; with `sequence.finish_reason` set, this is the last call.

        May re-enter `Engine.submit` and `Engine.abort`. An exception ends this sequence alone.
        """

    def fail(self, sequence: Sequence) -> None:
        """Code of ours failed for this sequence: whoever waits for it should be told, if that is possible."""


class Family:
    """The choices (`n`) made of one prompt: vLLM counts some things once for all of them.

    `left` is how many have not ended; `longest` is the most tokens any of them generated.
    """

    __slots__ = ("left", "longest", "n")

    def __init__(self, n: int) -> None:
        self.n = n
        self.left = n
        self.longest = 0

    def leave(self, sequence: Sequence) -> None:
        """One of them has ended."""
        self.left -= 1
        self.longest = max(self.longest, sequence.revealed)


class Sequence:
    """A choice: what is asked, where it goes, and what time has decided about it so far.

    `tail` is how long after its last token it ends; `in_tail`: all tokens are revealed and it has not ended.
    With less of its prompt cached than the part `cache_hit_threshold`, it ends before it begins. `request_id`
    is what its request is known by outside. Times are monotonic seconds. `finish_reason` is None until the
    end: stop, length, abort, cache_threshold or error. `adapter` is None for the base model. Where another
    server has prefilled the prompt, the first token comes when its KV blocks have been read: see
    `remote_prefill`.

    Its KV blocks are in `table`, where blocks are simulated; when it has revealed `grows_at` tokens it needs
    more of them, or has filled some. `cached_tokens` are those of its prompt that were found in the cache,
    and `created_tokens` those that it computed for others to find; when it started for the last time,
    `resident_tokens` were found, `loaded_tokens` of them in the host's memory (`host_tokens` for the prompt
    alone). It was sent back to the queue `preemptions` times, and is `resuming` until it goes on.
    """

    __slots__ = (
        "adapter",
        "arrival",
        "ask",
        "cache_hit_threshold",
        "cache_salt",
        "cached_tokens",
        "created_tokens",
        "family",
        "finish_reason",
        "first_token_at",
        "grows_at",
        "host_tokens",
        "in_tail",
        "index",
        "last_token_at",
        "loaded_tokens",
        "order",
        "preemptions",
        "priority",
        "prompt_tokens",
        "reads_cache",
        "remote_prefill",
        "reply",
        "request_id",
        "resident_tokens",
        "resuming",
        "revealed",
        "running",
        "scheduled_at",
        "sink",
        "table",
        "tail",
        "waiting",
    )

    def __init__(
        self,
        ask: Ask,
        sink: Sink,
        index: int = 0,
        family: Family | None = None,
        request_id: str = "",
        adapter: Adapter | None = None,
        priority: int = 0,
    ) -> None:
        self.ask = ask
        self.prompt_tokens = len(ask.prompt)
        self.sink = sink
        self.index = index
        self.family = family
        self.request_id = request_id
        self.adapter = adapter
        self.priority = priority
        self.remote_prefill: RemotePrefill | None = None
        self.reply: Reply | None = None
        self.revealed = 0
        self.cached_tokens = 0
        self.created_tokens = 0
        self.resident_tokens = 0
        self.host_tokens = 0
        self.loaded_tokens = 0
        self.cache_hit_threshold: float | None = None
        self.cache_salt: str | None = None
        #: Whether cached blocks will do for its prompt.
        self.reads_cache = True
        self.table: BlockTable | None = None
        self.grows_at = sys.maxsize
        self.preemptions = 0
        self.resuming = False
        self.tail = 0.0
        self.in_tail = False
        self.running = False
        self.waiting = False
        #: Its place in the queue, among all that ever waited.
        self.order: tuple[int, int] | None = None
        self.finish_reason: str | None = None
        self.arrival = 0.0
        self.scheduled_at = 0.0
        self.first_token_at = 0.0
        self.last_token_at = 0.0

    @property
    def is_first(self) -> bool:
        """Whether it is the first choice of its prompt."""
        return self.family is None or self.index % self.family.n == 0
