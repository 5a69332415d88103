"""A dataset's file: opened, checked and read."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from llmdsim.reply.dataset.rows import DIGEST, Rows
from llmdsim.reply.dataset.stored import read_stored
from llmdsim.tokenization import Layout

COLUMNS = {"id": "INTEGER", "prompt_hash": "BLOB", "gen_tokens": "JSON", "n_gen_tokens": "INTEGER"}
"""The columns a dataset has, with their declared types."""


class DatasetError(Exception):
    """A dataset that cannot be used; `str()` is one clear line."""


class DatasetInUse(DatasetError):
    """One that another process has locked just now."""


class BrokenRow(DatasetError):
    """A row that says nothing."""


class Dataset:
    """An open dataset; its methods may be called from any thread.

    The file is opened for reading alone, so that any number of processes may do so at once, and is locked
    only while it is being read; with a copy in memory, never again.
    """

    rows: Rows

    def __init__(self, path: Path, table: str) -> None:
        """Open and check it. Raises DatasetError; `table` is a plain name."""
        if not os.path.isfile(path):
            raise DatasetError("there is no such file")
        self.in_memory = False
        #: Rows that cannot answer anything.
        self.unusable = 0
        self._name = table
        self._table = f'"{table}"'
        # `execute` waits for nobody: a locked file is told at once.
        self._lock = Lock()
        with _translated():
            self._connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=0, check_same_thread=False
            )
        try:
            with _translated():
                self._check()
        except DatasetError:
            self.close()
            raise

    def load(self, in_memory: bool = False) -> None:
        """Read which rows there are, and with `in_memory` all that they say. Raises DatasetError."""
        with _translated(), self._lock:
            connection = self._connection
            # Where it is no valid UTF-8, that is one row's fault.
            connection.text_factory = bytes
            # One reading, so that what is copied is what was counted; it also keeps writers out of the copy.
            connection.execute("BEGIN")
            (total,) = connection.execute(f"SELECT count(*) FROM {self._table}").fetchone()
            usable = connection.execute(
                f"SELECT prompt_hash, n_gen_tokens, rowid FROM {self._table} WHERE"
                f" typeof(prompt_hash) = 'blob' AND length(prompt_hash) = {DIGEST}"
                f" AND typeof(n_gen_tokens) = 'integer' AND n_gen_tokens BETWEEN 1 AND {2**32 - 1}"
                " ORDER BY 1, 2, 3"
            )
            self.rows = Rows(usable)
            if in_memory:
                self._connection = sqlite3.connect(":memory:", check_same_thread=False)
                self._connection.text_factory = bytes
                connection.backup(self._connection)
                connection.close()
                self.in_memory = True
            else:
                connection.execute("COMMIT")
        if not self.rows:
            raise DatasetError(f"the table {self._name!r} has no usable row")
        self.unusable = total - len(self.rows)

    def fetch(self, row_ids: Iterable[int], most: int) -> tuple[dict[int, Layout], list[DatasetError]]:
        """What rows say, as far as `most` tokens, by their ids; and why others are missing from that."""
        found, problems = {}, []
        for row_id in row_ids:
            try:
                found[row_id] = self._fetch(row_id, most)
            except DatasetError as problem:
                problems.append(problem)
        return found, problems

    def _fetch(self, row_id: int, most: int) -> Layout:
        with _translated(), self._lock:
            row = self._connection.execute(
                f"SELECT gen_tokens FROM {self._table} WHERE rowid = ?", (row_id,)
            ).fetchone()
        if row is None:
            raise BrokenRow(f"row {row_id} is gone")
        try:
            return read_stored(row[0], most)
        except (ValueError, RecursionError) as problem:
            raise BrokenRow(f"gen_tokens of row {row_id}: {problem}") from None

    def everything(self) -> Iterator[tuple[int, object, object, object]]:
        """Every row: its id, `prompt_hash`, `gen_tokens` and `n_gen_tokens`, whatever they hold."""
        with _translated():
            yield from self._connection.execute(
                f"SELECT rowid, prompt_hash, gen_tokens, n_gen_tokens FROM {self._table} ORDER BY rowid"
            )

    def interrupt(self) -> None:
        """Have `load` fail soon."""
        self._connection.interrupt()

    def close(self) -> None:
        self._connection.close()

    def _check(self) -> None:
        found = {
            name.lower(): kind.upper()
            for _, name, kind, *_ in self._connection.execute(f"PRAGMA table_info({self._table})")
        }
        if not found:
            raise DatasetError(f"there is no table {self._name!r} in it")
        for name, kind in COLUMNS.items():
            if name not in found:
                raise DatasetError(f"the table {self._name!r} has no column {name!r}")
            if found[name] != kind:
                raise DatasetError(f"column {name!r} is declared {found[name]!r} and not {kind!r}")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        locked = code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
        raise (DatasetInUse if locked else DatasetError)(str(error)) from error
