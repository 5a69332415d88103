"""A dataset's file: what is refused, what is read, by how many at once."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from llmdsim.reply.dataset import Dataset, DatasetError, DatasetInUse, digest
from llmdsim.reply.dataset.file import BrokenRow
from llmdsim.reply.dataset.stored import write_stored
from tests.reply.dataset.files import COLUMNS, TOKENIZER, row, write

BOTH = pytest.mark.parametrize("in_memory", [False, True])


def opened(path: Path, in_memory: bool = False, table: str = "llmd") -> Dataset:
    dataset = Dataset(path, table)
    dataset.load(in_memory)
    return dataset


def said(dataset: Dataset, prompt: str, most: int = 100) -> str:
    chosen = dataset.rows.choose(digest(TOKENIZER.encode(prompt)), most, False, Random(1))
    found, problems = dataset.fetch([chosen.id], most)
    assert not problems
    return found[chosen.id].text


@BOTH
def test_it_says_what_was_said_to_the_prompt(tmp_path: Path, in_memory: bool) -> None:
    path = write(tmp_path / "a b?#%.sqlite3", [row("one", "first answer"), row("two", "second answer")])
    dataset = opened(path, in_memory)
    assert (len(dataset.rows), dataset.unusable, dataset.in_memory) == (2, 0, in_memory)
    assert said(dataset, "one") == "first answer"
    assert said(dataset, "two") == "second answer"
    assert said(dataset, "two", 1) == "second "
    dataset.close()


def test_a_table_may_have_any_plain_name(tmp_path: Path) -> None:
    path = write(tmp_path / "d", [row("one", "yes")], table="order")
    assert said(opened(path, table="order"), "one") == "yes"


def test_a_row_is_found_whatever_its_id(tmp_path: Path) -> None:
    columns = COLUMNS.replace(" PRIMARY KEY", "")
    path = write(tmp_path / "d", [row("one", "yes"), row("two", "no")], columns)
    assert said(opened(path), "two") == "no"


@BOTH
def test_any_number_of_threads_may_read(tmp_path: Path, in_memory: bool) -> None:
    path = write(tmp_path / "d", [row(f"prompt {n}", f"answer {n}") for n in range(50)])
    dataset = opened(path, in_memory)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: said(dataset, f"prompt {n % 50}"), range(1000)))
    assert found == [f"answer {n % 50}" for n in range(1000)]


def no_file(path: Path) -> None:
    pass


def a_folder(path: Path) -> None:
    path.mkdir()


def no_database(path: Path) -> None:
    path.write_bytes(b"certainly no database" * 100)


def an_empty_file(path: Path) -> None:
    path.write_bytes(b"")


def another_table(path: Path) -> None:
    write(path, [row("a", "b")], table="other")


def no_rows(path: Path) -> None:
    write(path, [])


def a_missing_column(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE llmd (id INTEGER, prompt_hash BLOB, gen_tokens JSON)")


def a_wrong_type(path: Path) -> None:
    write(path, [row("a", "b")], COLUMNS.replace("BLOB", "TEXT"))


def no_row_ids(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"CREATE TABLE llmd ({COLUMNS}) WITHOUT ROWID")


def cut_short(path: Path) -> None:
    write(path, [row(f"a{n}", "b " * 200) for n in range(200)])
    path.write_bytes(path.read_bytes()[:20_000])


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (no_file, "no such file"),
        (a_folder, "no such file"),
        (no_database, "not a database"),
        (an_empty_file, "no table 'llmd'"),
        (another_table, "no table 'llmd'"),
        (no_rows, "no usable row"),
        (a_missing_column, "no column 'n_gen_tokens'"),
        (a_wrong_type, "'prompt_hash' is declared 'TEXT' and not 'BLOB'"),
        (no_row_ids, "no such column: rowid"),
        (cut_short, "malformed"),
    ],
)
def test_what_is_no_dataset_is_refused_in_one_line(
    tmp_path: Path, make: Callable[[Path], None], what: str
) -> None:
    path = tmp_path / "d"
    make(path)
    with pytest.raises(DatasetError, match=what) as refused:
        opened(path)
    assert "\n" not in str(refused.value)
    assert not isinstance(refused.value, DatasetInUse)


def test_rows_that_cannot_be_looked_up_are_left_out(tmp_path: Path) -> None:
    key, stored, length = row("one", "yes")
    rows = [
        (key, stored, length),
        (None, stored, length),
        (key[:31], stored, length),
        (key.hex(), stored, length),
        (key, stored, 0),
        (key, stored, -1),
        (key, stored, None),
        (key, stored, "many"),
        (key, stored, 2**32),
    ]
    dataset = opened(write(tmp_path / "d", rows))
    assert (len(dataset.rows), dataset.unusable) == (1, 8)


@BOTH
def test_a_broken_row_is_one_problem(tmp_path: Path, in_memory: bool) -> None:
    key, stored, length = row("one", "yes")
    invalid = b'{"Tokens":[1],"Strings":["\xff"]}'
    rows = [(key, stored, length), (key, "{", 1), (key, invalid, 1), (key, None, 1)]
    path = write(tmp_path / "d", rows)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE llmd SET gen_tokens = CAST(gen_tokens AS TEXT) WHERE id = 3")
        connection.commit()
    found, problems = opened(path, in_memory).fetch([1, 2, 3, 4, 5], 10)
    assert list(found) == [1]
    assert [type(problem) for problem in problems] == [BrokenRow] * 4
    assert "row 2" in str(problems[0])
    assert "is gone" in str(problems[3])


def test_a_locked_file_is_told_from_others(tmp_path: Path) -> None:
    path = write(tmp_path / "d", [row("one", "yes")])
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(DatasetInUse):
            opened(path)


def test_a_file_that_gets_locked_fails_a_fetch_and_no_more(tmp_path: Path) -> None:
    path = write(tmp_path / "d", [row("one", "yes")])
    dataset = opened(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        found, problems = dataset.fetch([1], 10)
        assert found == {}
        assert [type(problem) for problem in problems] == [DatasetInUse]
        other.rollback()
        assert said(dataset, "one") == "yes"
        # And nothing is locked in between.
        other.execute("BEGIN EXCLUSIVE")


def test_what_is_in_memory_needs_its_file_no_more(tmp_path: Path) -> None:
    path = write(tmp_path / "d", [row("one", "yes")])
    dataset = opened(path, in_memory=True)
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert said(dataset, "one") == "yes"


def test_long_replies_are_read_as_far_as_they_are_wanted(tmp_path: Path) -> None:
    ids = list(range(5000))
    path = write(tmp_path / "d", [(b"a" * 32, write_stored(ids, ["x "] * 5000), 5000)])
    found, _ = opened(path).fetch([1], 10)
    assert found[1].ids.tolist() == ids[:10]
