"""The command line, read by the table.

Not argparse: booleans with a word, pairs of `--enable-x` and `--disable-x`, list flags that may be empty and
add up, dotted JSON, `-O3` and messages of our own are each a way around it; a reader of tokens is shorter.
"""

import re
from collections.abc import Sequence

import msgspec

from llmdsim.config.given import Given
from llmdsim.config.option import ConfigError, Option
from llmdsim.config.spellings import Spelling, find, unknown
from llmdsim.config.values import parse_integer, read

_NEGATIVE = re.compile(r"-\.?[0-9]")
_ATTACHED = re.compile(r"(-[A-Za-z])([0-9]+)")


class HelpRequested(Exception):
    """`--help` was given; `str()` is the text to print."""


class VersionRequested(Exception):
    """`--version` was given; `str()` is the text to print."""


def read_command_line(argv: Sequence[str]) -> Given:
    """Read the arguments after the program's name.

    Raises ConfigError for the first that is wrong, HelpRequested and VersionRequested where they come first.
    """
    reader = _Reader(argv)
    reader.read()
    return reader.given


class _Reader:
    def __init__(self, argv: Sequence[str]) -> None:
        self.argv = argv
        self.at = 0
        self.given = Given()
        self.model: str | None = None

    def read(self) -> None:
        only_arguments = False
        if list(self.argv[:1]) == ["serve"]:
            self.at = 1  # `vllm serve M`, with our name for vLLM's
        while self.at < len(self.argv):
            token = self.argv[self.at]
            self.at += 1
            if only_arguments or not _is_flag(token):
                self.argument(token)
            elif token == "--":
                only_arguments = True
            else:
                self.flag(token)
        if self.model is not None:
            self.take_model(self.model)

    def argument(self, token: str) -> None:
        if self.model is not None:
            raise ConfigError(f"unexpected argument {token!r}; only the model may be given without a flag")
        self.model = token

    def take_model(self, model: str) -> None:
        if self.given.values.setdefault("model", model) != model:
            other = self.given.values["model"]
            raise ConfigError(f"unexpected argument {model!r}; --model gives another model, {other!r}")

    def flag(self, token: str) -> None:
        written, equals, rest = token.partition("=")
        attached = rest if equals else None
        if written in ("--help", "-h"):
            from llmdsim.config.help import help_text  # noqa: PLC0415 - only for those who ask

            raise HelpRequested(help_text())
        if written == "--version":
            from llmdsim import __version__  # noqa: PLC0415

            raise VersionRequested(f"llmdsim {__version__}")
        written, *keys = written.split(".")
        spelling = find(written)
        if spelling is None and (found := _ATTACHED.fullmatch(token)):
            written, attached = found.groups()
            spelling = find(written)
        if spelling is None or (keys and spelling.takes != "json"):
            raise unknown(written, f"flag {_shown(token.partition('=')[0])}")
        if isinstance(spelling.target, Option):
            self.option(spelling.target, spelling, written, keys, attached)
        else:
            self.skip(spelling, written, attached)
            self.given.ignored.append(spelling.target.name)

    def option(
        self, option: Option, spelling: Spelling, written: str, keys: list[str], attached: str | None
    ) -> None:
        values = self.given.values
        before = values.get(option.field)
        if option.name == "config" and before is not None:
            raise ConfigError("--config: given twice, only one file is read")
        if spelling.takes == "list":
            assert before is None or isinstance(before, tuple)
            added = (read(option, text, written) for text in self.several(attached))
            values[option.field] = (before or ()) + tuple(added)
        elif spelling.takes == "bool":
            value = read(option, self.word(attached), written)
            values[option.field] = value != spelling.negated
        elif keys:
            merged = _with_key(written, before, keys, self.one(written, attached))
            values[option.field] = read(option, merged, written)
        else:
            values[option.field] = read(option, self.one(written, attached), written)

    def skip(self, spelling: Spelling, written: str, attached: str | None) -> None:
        """Pass over what follows a flag that means nothing here."""
        match spelling.takes:
            case "list":
                self.several(attached)
            case "bool":
                self.word(attached)
            case "value" | "json":
                self.one(written, attached)
            case "optional" if attached is None and self.ahead() is not None:
                self.at += 1

    def one(self, written: str, attached: str | None) -> str:
        value = self.ahead() if attached is None else attached
        if value is None:
            raise ConfigError(f"{written}: its value is missing")
        self.at += attached is None
        return value

    def several(self, attached: str | None) -> list[str]:
        """All arguments up to the next flag, or the one behind `=`; empty ones are no values."""
        if attached is not None:
            return [attached] if attached else []
        values = []
        while (value := self.ahead()) is not None:
            self.at += 1
            if value:
                values.append(value)
        return values

    def word(self, attached: str | None) -> str:
        """A boolean's word. Without `=` only true and false count, since a model may be called `1`."""
        if attached is not None:
            return attached
        word = self.ahead()
        if word is None or word.lower() not in ("true", "false"):
            return "true"
        self.at += 1
        return word

    def ahead(self) -> str | None:
        """The next argument, unless it is a flag or there is none."""
        if self.at == len(self.argv) or _is_flag(self.argv[self.at]):
            return None
        return self.argv[self.at]


def _is_flag(token: str) -> bool:
    return token.startswith("-") and token != "-" and not _NEGATIVE.match(token)


def _with_key(written: str, before: object, keys: list[str], text: str) -> dict[str, object]:
    """The JSON object `before` with one more value at the path `keys`; `key+` appends a comma list."""
    label = _shown(f"{written}.{'.'.join(keys)}")
    top = dict(before) if isinstance(before, dict) else {}
    inner = top
    *path, last = keys
    for key in path:
        inner = inner.setdefault(key, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{label}: {key!r} is not an object")
    if last.endswith("+"):
        present = inner.setdefault(last[:-1], [])
        if not isinstance(present, list):
            raise ConfigError(f"{label}: {last[:-1]!r} is not a list")
        present.extend(_guess(item) for item in text.split(","))
    else:
        inner[last] = _guess(text)
    return top


def _guess(text: str) -> object:
    for attempt in (msgspec.json.decode, parse_integer):
        try:
            return attempt(text)
        except (ValueError, RecursionError):
            pass
    return text


def _shown(token: str) -> str:
    """A flag as it was written, unless it holds what would not fit on one line."""
    return token if token.isprintable() and len(token) < 80 else repr(token[:80])
