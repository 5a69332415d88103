"""Dataset files for tests."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from llmdsim.reply.dataset import digest
from llmdsim.reply.dataset.stored import write_stored
from llmdsim.tokenization import BuiltinTokenizer, render_chat

TOKENIZER = BuiltinTokenizer()
COLUMNS = "id INTEGER PRIMARY KEY, prompt_hash BLOB, gen_tokens JSON, n_gen_tokens INTEGER"


def write(
    path: Path, rows: Iterable[tuple[Any, Any, Any]], columns: str = COLUMNS, table: str = "llmd"
) -> Path:
    """A file with such a table; rows are of `prompt_hash`, `gen_tokens` and `n_gen_tokens`."""
    connection = sqlite3.connect(path)
    connection.execute(f'CREATE TABLE "{table}" ({columns})')
    connection.executemany(
        f'INSERT INTO "{table}" (prompt_hash, gen_tokens, n_gen_tokens) VALUES (?, ?, ?)', rows
    )
    connection.commit()
    connection.close()
    return path


def row(prompt: str, said: str) -> tuple[bytes, str, int]:
    """A row that answers a text."""
    ids, texts = TOKENIZER.split(said)
    return digest(TOKENIZER.encode(prompt)), write_stored(ids, texts), len(ids)


def chat(content: str) -> str:
    """What a chat of one message reads as."""
    return render_chat([{"role": "user", "content": content}])
