"""What a dataset says to requests: looked up in a thread, before their sequences go to the engine."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from random import Random
from typing import Any

from msgspec.structs import replace
from twisted.internet.threads import deferToThread
from twisted.logger import Logger

from llmdsim.reply.ask import Ask
from llmdsim.reply.dataset import Dataset, DatasetError, prompt_digest
from llmdsim.reply.dataset.rows import Row
from llmdsim.reply.plan import Plan
from llmdsim.tokenization.prompt import Layout

log = Logger()

#: Prompts that are looked at in half a millisecond.
PROMPTS_AT_ONCE = 16

#: Tokens of rows in memory that are read in half a millisecond, so that no thread is worth while.
TOKENS_AT_ONCE = 2048


def may_be_stored(plan: Plan | None) -> bool:
    """Whether an answer of this plan may have text that is free."""
    return plan is None or (plan.constraint is None and plan.calls in ("none", "auto"))


class StoredReplies:
    """Looks up what a dataset says; `source` gives what an ask's choices are drawn from.

    Where it cannot be read, the reply is one of preset text. The log tells of each kind of problem once.
    """

    def __init__(self, dataset: Dataset, source: Callable[[Ask], Random]) -> None:
        self._dataset = dataset
        self._source = source
        self._told: set[type[DatasetError]] = set()

    def filled(self, asks: Sequence[Sequence[Ask]]) -> Generator[Any, None, list[list[Ask]]]:
        """The asks of each prompt, with what is stored for them, in steps."""
        chosen: list[list[Row]] = []
        for place, choices in enumerate(asks, start=1):
            if place % PROMPTS_AT_ONCE == 0:
                yield
            rows: list[Row] = []
            if may_be_stored(choices[0].plan):
                digest = yield from prompt_digest(choices[0].prompt)
                choose, source = self._dataset.rows.choose, self._source
                rows = [choose(digest, ask.max_tokens, ask.ignore_eos, source(ask)) for ask in choices]
            chosen.append(rows)
        wanted = {row for rows in chosen for row in rows}
        if not wanted:
            return [list(choices) for choices in asks]
        found = yield from self._read(wanted, max(choices[0].max_tokens for choices in asks))
        return [
            [replace(ask, stored=found.get(row.id)) for ask, row in zip(choices, rows, strict=True)]
            if rows
            else list(choices)
            for choices, rows in zip(asks, chosen, strict=True)
        ]

    def _read(self, rows: set[Row], most: int) -> Generator[Any, None, dict[int, Layout]]:
        dataset = self._dataset
        row_ids = sorted(row.id for row in rows)
        if dataset.in_memory and sum(row.length for row in rows) <= TOKENS_AT_ONCE:
            return self._taken(dataset.fetch(row_ids, most))
        found: dict[int, Layout] = {}
        read = deferToThread(dataset.fetch, row_ids, most)
        read.addCallback(self._taken)
        read.addCallbacks(found.update, self._failed)
        yield read
        return found

    def _taken(self, fetched: tuple[dict[int, Layout], list[DatasetError]]) -> dict[int, Layout]:
        found, problems = fetched
        for problem in problems:
            if type(problem) not in self._told:
                self._told.add(type(problem))
                log.warn("preset text for want of the dataset, told once: {problem}", problem=problem)
        return found

    def _failed(self, failure: Any) -> None:
        log.failure("reading the dataset failed", failure)
