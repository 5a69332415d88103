"""What the engine takes in: as much as there are places for, and as vLLM's limits allow."""

from __future__ import annotations

from collections.abc import Collection
from sys import maxsize
from typing import TYPE_CHECKING, Literal, NoReturn, Protocol, TypeAlias

from llmdsim.engine.sequence import Sequence

if TYPE_CHECKING:
    from llmdsim.engine.stats import Stats

Limit: TypeAlias = Literal["max_num_queued_reqs", "max_num_queued_tokens"]


class AdmissionSettings(Protocol):
    """The options it reads; of the last two None is no limit."""

    @property
    def max_num_seqs(self) -> int: ...
    @property
    def max_waiting_queue_length(self) -> int: ...
    @property
    def max_num_queued_reqs(self) -> int | None: ...
    @property
    def max_num_queued_tokens(self) -> int | None: ...


class QueueFull(Exception):
    """The waiting queue has no room for all sequences of the request; none was taken."""


class Overloaded(Exception):
    """The request would exceed one of vLLM's limits; none of its sequences was taken."""

    def __init__(self, limit: Limit) -> None:
        super().__init__(limit)
        self.limit = limit


class Admission:
    """Looks at each request before any of it is taken, and counts those that are refused.

    There is room for as many as there are slots and places in the queue. The limits are those of vLLM 0.33
    (v1/engine/async_llm.py): on sequences that have not ended, and on the prompt tokens of those that have
    had no first token.
    """

    __slots__ = ("_max_reqs", "_max_tokens", "_most", "_stats", "prefill_tokens")

    def __init__(self, settings: AdmissionSettings, stats: Stats) -> None:
        reqs, tokens = settings.max_num_queued_reqs, settings.max_num_queued_tokens
        self._max_reqs = maxsize if reqs is None else reqs
        self._max_tokens = maxsize if tokens is None else tokens
        self._most = min(settings.max_num_seqs + settings.max_waiting_queue_length, self._max_reqs)
        self._stats = stats
        #: Prompt tokens of what was taken and has had no first token.
        self.prefill_tokens = 0

    def take_one(self, prompt_tokens: int, unfinished: int) -> None:
        """Take the only sequence of a request beside so many others, or raise Overloaded or QueueFull."""
        if unfinished >= self._most or self.prefill_tokens >= self._max_tokens:
            self._turn_down(1, unfinished, 0)
        self.prefill_tokens += prompt_tokens

    def take(self, sequences: Collection[Sequence], unfinished: int) -> None:
        """Take all of a request's sequences, more than one, likewise.

        vLLM has the prompts of a request come one after another, each of which finds those before it, but
        not itself, in the backlog.
        """
        new = len(sequences)
        tokens = 0
        for sequence in sequences:
            tokens += sequence.prompt_tokens
        family = sequence.family
        before_last = tokens - sequence.prompt_tokens * (1 if family is None else family.n)
        if unfinished + new > self._most or self.prefill_tokens + before_last >= self._max_tokens:
            self._turn_down(new, unfinished, before_last)
        self.prefill_tokens += tokens

    def _turn_down(self, new: int, unfinished: int, before_last: int) -> NoReturn:
        self._check(new, unfinished, before_last)
        self._stats.refused += 1
        raise QueueFull

    def check_prompts(self, lengths: list[int], unfinished: int) -> None:
        """Raise Overloaded for prompts of so many tokens, which take no place and are done at once."""
        self._check(len(lengths), unfinished, sum(lengths[:-1]))

    def _check(self, new: int, unfinished: int, before_last: int) -> None:
        if unfinished + new > self._max_reqs:
            self._refuse("max_num_queued_reqs")
        if self.prefill_tokens + before_last >= self._max_tokens:
            self._refuse("max_num_queued_tokens")

    def _refuse(self, limit: Limit) -> None:
        self._stats.rejected[limit] += 1
        raise Overloaded(limit)
