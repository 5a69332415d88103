"""Makes a dataset of conversations."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from uuid import uuid4

from llmdsim.dataset.conversations import Conversation, Exchange, Problem, exchanges
from llmdsim.reply.dataset import digest
from llmdsim.reply.dataset.file import COLUMNS
from llmdsim.reply.dataset.stored import write_stored
from llmdsim.tokenization import Prompt, Tokenizer, render_chat, well_formed
from llmdsim.tokenization.loaded import Loaded
from llmdsim.tokenization.messages import Message

#: What a chat reads as. Raises ValueError for one that a template refuses.
Render = Callable[[Sequence[Message]], str]


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
    loaded: Loaded,
    max_records: int,
) -> Told:
    """Write the dataset of the first `max_records` conversations to `output`, which appears complete or not
    at all. Chats are rendered by the template of `loaded`, if it has one, as by a server. Raises OSError,
    sqlite3.Error, and ValueError for a template that cannot be used.
    """
    told = Told()
    render = _rendering(loaded)
    part = output.with_name(f".{output.name}.{uuid4().hex}.part")
    try:
        connection = sqlite3.connect(part)
        try:
            columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
            columns = columns.replace("id INTEGER", "id INTEGER PRIMARY KEY", 1)
            connection.execute(f'CREATE TABLE "{table}" ({columns})')
            rows = _rows(conversations, loaded.tokenizer, render, max_records, told)
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
    conversations: Iterable[Conversation | Problem],
    tokenizer: Tokenizer,
    render: Render,
    max_records: int,
    told: Told,
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
            try:
                prompts = _prompts(pair, tokenizer, render)
            except ValueError as problem:
                told.problems.append(Problem(found.where, f"the chat template refuses: {problem}"))
                continue
            told.exchanges += 1
            for prompt in prompts:
                told.rows += 1
                yield digest(prompt.ids), write_stored(ids, texts), len(ids)


def _prompts(pair: Exchange, tokenizer: Tokenizer, render: Render) -> list[Prompt]:
    """What a server is asked for that answer: the question alone as a text, and the chat so far.

    Raises as `render`.
    """
    chat = Prompt(tokenizer, render(pair.messages))
    # A text has the model's special tokens around it, a chat those of its template.
    return [Prompt(tokenizer, pair.question, special=True), chat] if pair.question else [chat]


def _rendering(loaded: Loaded) -> Render:
    if "default" not in loaded.templates:
        return render_chat
    # Here, since jinja2 takes a while to load.
    from llmdsim.tokenization.chat_template import LEAST, ChatTemplate, TemplateRefusal  # noqa: PLC0415

    variables = {**loaded.special_tokens, **LEAST, "add_generation_prompt": True}

    def render(messages: Sequence[Message]) -> str:
        try:
            return template.render(messages, variables)
        except TemplateRefusal as problem:
            raise ValueError(str(problem)) from None

    try:
        template = ChatTemplate(loaded.templates["default"])
    except TemplateRefusal as problem:
        raise ValueError(f"the tokenizer's chat template: {problem}") from None
    return render
