"""The command line of `llmdsim dataset`."""

from __future__ import annotations

import argparse
import os
import re
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from llmdsim.dataset.build import build
from llmdsim.dataset.conversations import Conversation, Problem, read
from llmdsim.dataset.inspection import Report, inspect
from llmdsim.reply.dataset import DatasetError
from llmdsim.tokenization.finding import Wanted, find
from llmdsim.tokenization.loaded import Loaded
from llmdsim.tokenization.loading import LoadError, load, load_builtin

#: Problems that are told one by one.
MOST_TOLD = 20


def main(argv: Sequence[str]) -> int:
    """Run it; returns the exit code: 0, 1 for what cannot be done, 2 for a wrong command line."""
    arguments = _parser().parse_args(argv)
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read it (head, less) has enough. Python would complain as it flushes the rest at the exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as problem:
        return _fail(f"{problem.filename}: {problem.strerror}")
    except (DatasetError, sqlite3.Error) as problem:
        return _fail(str(problem))
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "llmdsim dataset", description="Datasets for --dataset-path: replies by prompt, in an SQLite file."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    making = commands.add_parser("build", help="make a dataset of conversations")
    making.add_argument("inputs", nargs="+", type=Path, metavar="IN", help="JSON or JSONL with conversations")
    making.add_argument("-o", "--output", required=True, type=Path, metavar="OUT", help="the SQLite file")
    making.add_argument("--max-records", type=_count, default=10000, help="conversations taken (10000)")
    making.add_argument(
        "--tokenizer", default="", help="folder or model of the hub, as the server's (the built-in one)"
    )
    making.add_argument("--tokenizer-revision", default="", help="as the server's (main)")
    making.add_argument("--tokenizers-cache-dir", default="", help="as the server's")
    making.add_argument("--force", action="store_true", help="replace OUT where it exists")
    making.add_argument("--strict", action="store_true", help="fail at the first problem in an input")
    making.set_defaults(run=_build)
    looking = commands.add_parser("inspect", help="tell what a dataset holds, and what is wrong with it")
    looking.add_argument("file", type=Path, metavar="FILE", help="the SQLite file")
    looking.add_argument("--json", action="store_true", help="tell it as JSON")
    looking.add_argument("--examples", type=int, default=3, help="rows shown (3)")
    looking.set_defaults(run=_inspect)
    for command in (making, looking):
        command.add_argument("--table-name", type=_name, default="llmd", help="the table's name (llmd)")
    return parser


def _build(arguments: argparse.Namespace) -> int:
    output: Path = arguments.output
    if output.is_dir():
        return _fail(f"{output} is a folder")
    if output.exists() and not arguments.force:
        return _fail(f"{output} exists; --force replaces it")
    try:
        told = build(
            _conversations(arguments),
            output,
            arguments.table_name,
            _loaded(arguments),
            arguments.max_records,
        )
    except (_Strict, LoadError, ValueError) as problem:
        return _fail(str(problem))
    for each in told.problems[:MOST_TOLD]:
        print(f"llmdsim dataset: {each}", file=sys.stderr)
    if len(told.problems) > MOST_TOLD:
        print(f"llmdsim dataset: and {len(told.problems) - MOST_TOLD} more", file=sys.stderr)
    if not told.rows:
        return _fail("there is no answered question in the input, so nothing is written")
    print(
        f"{output}: {told.rows} rows of {told.exchanges} answers in {told.conversations} conversations"
        f" ({told.broken_off} broken off, {len(told.problems)} problems)"
    )
    return 0


def _loaded(arguments: argparse.Namespace) -> Loaded:
    """The tokenizer that is named. Raises LoadError."""
    if not arguments.tokenizer:
        return load_builtin()
    wanted = Wanted(arguments.tokenizer, arguments.tokenizer_revision, arguments.tokenizers_cache_dir)
    folder, problem = find(wanted, os.environ)
    if problem:
        raise LoadError(f"--tokenizer: {problem}")
    return load(folder)


class _Strict(Exception):
    pass


def _conversations(arguments: argparse.Namespace) -> Iterator[Conversation | Problem]:
    for path in arguments.inputs:
        for found in read(path):
            if arguments.strict and isinstance(found, Problem):
                raise _Strict(found)
            yield found


def _inspect(arguments: argparse.Namespace) -> int:
    try:
        report = inspect(arguments.file, arguments.table_name, arguments.examples)
    except DatasetError as problem:
        return _fail(f"{arguments.file}: {problem}")
    if arguments.json:
        print(msgspec.json.format(msgspec.json.encode(report)).decode())
    else:
        print("\n".join(_lines(report)))
    return 0


def _lines(report: Report) -> Iterator[str]:
    yield f"{report.file}: {report.rows} rows, {report.prompts} prompts, {report.faulty} faulty rows"
    if report.lengths:
        yield "tokens of replies: " + ", ".join(f"{name} {value}" for name, value in report.lengths.items())
        for edge, rows in report.histogram.items():
            yield f"  up to {edge:>6}: {rows}"
    for example in report.examples:
        yield "row {row}, {prompt_hash:.12}…, {tokens} tokens: {text!r}".format(**example)
    yield from report.problems


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a plain name (letters, digits, _)")
    return text


def _fail(reason: str) -> int:
    print(f"llmdsim dataset: {reason}", file=sys.stderr)
    return 1
