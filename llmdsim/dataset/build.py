"""Makes a dataset of conversations."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from uuid import uuid4

from llmdsim.dataset.conversations import Conversation, Exchange, Problem, exchanges
from llmdsim.reply.dataset import digest
from llmdsim.reply.dataset.file import COLUMNS
from llmdsim.reply.dataset.stored import write_stored
from llmdsim.tokenization import Prompt, Tokenizer, render_chat, well_formed


@dataclass
class Told:
    """What became of the conversations."""

    conversations: int = 0
    exchanges: int = 0
    rows: int = 0
    #: Conversations that ended before their time.
    broken_off: int = 0
    problems: list[Problem] = field(default_factory=list)


def build(
    conversations: Iterable[Conversation | Problem],
    output: Path,
    table: str,
    tokenizer: Tokenizer,
    max_records: int,
) -> Told:
    """Write the dataset of the first `max_records` conversations to `output`, which appears complete or not
    at all. Raises OSError and sqlite3.Error.
    """
    told = Told()
    part = output.with_name(f".{output.name}.{uuid4().hex}.part")
    try:
        connection = sqlite3.connect(part)
        try:
            columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
            columns = columns.replace("id INTEGER", "id INTEGER PRIMARY KEY", 1)
            connection.execute(f'CREATE TABLE "{table}" ({columns})')
            rows = _rows(conversations, tokenizer, max_records, told)
            connection.executemany(
                f'INSERT INTO "{table}" (prompt_hash, gen_tokens, n_gen_tokens) VALUES (?, ?, ?)', rows
            )
            connection.execute(f'CREATE INDEX "{table}_prompt_hash" ON "{table}" (prompt_hash)')
            connection.commit()
        finally:
            connection.close()
        if told.rows:
            os.replace(part, output)
    finally:
        part.unlink(missing_ok=True)
    return told


def _rows(
    conversations: Iterable[Conversation | Problem], tokenizer: Tokenizer, max_records: int, told: Told
) -> Iterator[tuple[bytes, str, int]]:
    for found in islice(conversations, max_records):
        if isinstance(found, Problem):
            told.problems.append(found)
            continue
        told.conversations += 1
        pairs, violation = exchanges(found.messages)
        if violation is not None:
            told.broken_off += 1
            told.problems.append(Problem(found.where, violation))
        for pair in pairs:
            ids, texts = tokenizer.split(well_formed(pair.answer))
            if not ids:
                told.problems.append(Problem(found.where, "an empty answer is left out"))
                continue
            told.exchanges += 1
            for prompt in _prompts(pair, tokenizer):
                told.rows += 1
                yield digest(prompt.ids), write_stored(ids, texts), len(ids)


def _prompts(pair: Exchange, tokenizer: Tokenizer) -> Iterator[Prompt]:
    """What a server is asked for that answer: the question alone as a text, and the chat so far."""
    if pair.question:
        yield Prompt(tokenizer, pair.question)
    yield Prompt(tokenizer, render_chat(pair.messages))
