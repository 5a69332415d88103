"""`llmdsim dataset`, from conversations to a file and what there is to see in it."""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from llmdsim.dataset.command import main
from llmdsim.reply.dataset import Dataset, digest
from llmdsim.tokenization import Prompt, render_chat
from tests.reply.dataset.files import TOKENIZER, row, write
from tests.tokenization.trained import byte_level, trained
from tests.tokenization.trained import write as write_tokenizer

SAMPLE = Path(__file__).parents[2] / "etc" / "dataset" / "sample.jsonl"


def rows(path: Path, table: str = "llmd") -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.execute(f"SELECT * FROM {table} ORDER BY id"))


def test_each_answer_is_found_by_its_question_and_by_the_chat_so_far(tmp_path: Path) -> None:
    path = tmp_path / "d"
    assert main(["build", str(SAMPLE), "-o", str(path)]) == 0
    dataset = Dataset(path, "llmd")
    dataset.load()
    hashes = {prompt_hash for _, prompt_hash, _, _ in dataset.everything()}
    chat = [
        {"role": "user", "content": "When does the ferry leave?"},
        {
            "role": "assistant",
            "content": "At seven in the morning, and again at noon. On Sundays there is only the later one.",
        },
        {"role": "user", "content": "And what does a ticket cost?"},
    ]
    for text in ("And what does a ticket cost?", render_chat(chat), render_chat(chat[:1])):
        assert digest(TOKENIZER.encode(text)) in hashes
    assert len(dataset.rows) == 14


def test_the_same_input_makes_the_same_rows(tmp_path: Path) -> None:
    for name in "ab":
        assert main(["build", str(SAMPLE), "-o", str(tmp_path / name)]) == 0
    assert rows(tmp_path / "a") == rows(tmp_path / "b")


def test_nothing_is_replaced_unasked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "d"
    path.write_text("mine")
    assert main(["build", str(SAMPLE), "-o", str(path)]) == 1
    assert "--force" in capsys.readouterr().err
    assert path.read_text() == "mine"
    assert main(["build", str(SAMPLE), "-o", str(path), "--force", "--table-name", "order"]) == 0
    assert main(["inspect", str(path), "--table-name", "order"]) == 0


@pytest.mark.parametrize("folder", ["", ".", "..", "/", "made"])
def test_a_folder_is_no_place_for_a_dataset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    (tmp_path / "made").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["build", str(SAMPLE), "-o", folder, "--force"]) == 1
    assert capsys.readouterr().err.endswith("is a folder\n")
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_problems_are_told_and_left_out_or_are_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, path = tmp_path / "in.jsonl", tmp_path / "d"
    lines = ['{"prompt": "a", "completion": "b"}', "{", '{"prompt": "a", "completion": ""}']
    lines.append('{"messages": [{"role": "assistant", "content": "x"}]}')
    source.write_text("\n".join(lines))
    assert main(["build", str(source), "-o", str(path), "--strict"]) == 1
    assert f"{source}:2: not JSON" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == [source]
    assert main(["build", str(source), "-o", str(path)]) == 0
    output = capsys.readouterr()
    assert "2 rows of 1 answers in 3 conversations (1 broken off, 3 problems)" in output.out
    for line in (2, 3, 4):
        assert f"{source}:{line}: " in output.err
    assert sorted(tmp_path.iterdir()) == [path, source]


@pytest.mark.parametrize("content", ["", "{}", "[]"])
def test_without_an_answer_nothing_is_written(tmp_path: Path, content: str) -> None:
    source = tmp_path / "in"
    source.write_text(content)
    assert main(["build", str(source), "-o", str(tmp_path / "d")]) == 1
    assert list(tmp_path.iterdir()) == [source]


def test_so_many_conversations_are_taken(tmp_path: Path) -> None:
    assert main(["build", str(SAMPLE), "-o", str(tmp_path / "d"), "--max-records", "1"]) == 0
    assert len(rows(tmp_path / "d")) == 4


def test_files_that_are_not_there_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build", str(tmp_path / "no"), "-o", str(tmp_path / "d")]) == 1
    assert main(["build", str(SAMPLE), "-o", str(tmp_path / "no" / "d")]) == 1
    assert main(["inspect", str(tmp_path / "no")]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_inspecting_tells_lengths_examples_and_faults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key, stored, length = row("a", "one two three")
    good = [row("a", "word " * number) for number in range(1, 11)]
    path = write(tmp_path / "d", [*good, (key, stored, length + 1), (key, "{", 1), (b"short", stored, 3)])
    assert main(["inspect", str(path), "--json", "--examples", "2"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["rows"], report["prompts"], report["faulty"]) == (13, 1, 3)
    assert report["lengths"] == {"least": 1, "median": 5, "p90": 9, "greatest": 10}
    assert report["histogram"] == {"1": 1, "2": 1, "5": 3, "10": 5}
    assert [example["tokens"] for example in report["examples"]] == [1, 2]
    assert [problem.partition(":")[0] for problem in report["problems"]] == ["row 11", "row 12", "row 13"]
    assert main(["inspect", str(path)]) == 0
    assert "13 rows, 1 prompts, 3 faulty rows" in capsys.readouterr().out


@pytest.mark.parametrize("examples", ["1", "200"])
def test_who_reads_a_part_of_it_ends_it_quietly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], examples: str
) -> None:
    path = write(tmp_path / "d", [row("a", "word " * number) for number in range(1, 201)])
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as pipe:
        monkeypatch.setattr("sys.stdout", pipe)
        assert main(["inspect", str(path), "--json", "--examples", examples]) == 1
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "arguments", [[], ["build"], ["build", "x"], ["inspect", "x", "--table-name", "a b"], ["other"]]
)
def test_a_wrong_command_line_is_refused(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2


def test_rows_go_by_the_tokenizer_that_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_tokenizer(tmp_path / "model", byte_level())
    path = tmp_path / "d"
    assert main(["build", str(SAMPLE), "-o", str(path), "--tokenizer", str(folder)]) == 0
    dataset = Dataset(path, "llmd")
    dataset.load()
    hashes = {prompt_hash for _, prompt_hash, _, _ in dataset.everything()}
    # A server has special tokens around a text, as this model wants them.
    prompt = Prompt(trained("byte level"), "And what does a ticket cost?", special=True)
    assert digest(prompt.ids) in hashes
    assert main(["build", str(SAMPLE), "-o", str(tmp_path / "e"), "--tokenizer", str(tmp_path)]) == 1
    assert "has no tokenizer.json" in capsys.readouterr().err
    assert not (tmp_path / "e").exists()


def test_chats_are_rendered_as_by_a_server_with_that_tokenizer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_tokenizer(tmp_path / "model", byte_level())
    template = "{% for m in messages %}{{ m.role }}={{ m.content }};{% endfor %}{{ add_generation_prompt }}"
    refusing = "{% if messages[0].content == 'no' %}{{ raise_exception('not that') }}{% endif %}"
    (folder / "chat_template.jinja").write_text(refusing + template)
    source, path = tmp_path / "in.jsonl", tmp_path / "d"
    source.write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "no", "completion": "b"}')
    assert main(["build", str(source), "-o", str(path), "--tokenizer", str(folder)]) == 0
    assert f"{source}:2: the chat template refuses: not that" in capsys.readouterr().err
    dataset = Dataset(path, "llmd")
    dataset.load()
    tokenizer = trained("byte level")
    question = Prompt(tokenizer, "a", special=True)
    hashes = {prompt_hash for _, prompt_hash, _, _ in dataset.everything()}
    assert hashes == {digest(question.ids), digest(tokenizer.encode("user=a;True"))}
    (folder / "chat_template.jinja").write_text("{% if %}")
    assert main(["build", str(source), "-o", str(path), "--force", "--tokenizer", str(folder)]) == 1
    assert "the tokenizer's chat template: Expected an expression" in capsys.readouterr().err
