"""One value of an option, from the text or data somebody wrote; and the words for what is expected."""

import math
import os
import re
from collections.abc import Callable
from typing import Final

import msgspec

from llmdsim.config.document import read_document
from llmdsim.config.durations import LONGEST, format_duration, parse_duration
from llmdsim.config.option import ConfigError, LoraModule, Option

TRUTH: Final = {
    **dict.fromkeys(("true", "t", "1", "yes", "y", "on"), True),
    **dict.fromkeys(("false", "f", "0", "no", "n", "off"), False),
}

_INTEGER = re.compile(r"([+-]?)([0-9][0-9_]{0,39})(?:\.([0-9]{1,20}))?([kKmMgGtT]?)")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SIZES = {letter: 1000**power for power, letter in enumerate(("", "k", "m", "g", "t"))} | {
    letter: 1024**power for power, letter in enumerate("KMGT", start=1)
}


def read(option: Option, raw: object, label: str) -> object:
    """One value of `option` (one element, where it takes several), from text, or from data for JSON kinds.

    `label` says where it was written and begins the message of the ConfigError for a wrong value.
    """
    if option.optional and raw in ("", "None", "none", "null"):
        return None
    try:
        value = _READERS[option.kind](option, raw)
        _check(option, value)
    except (ValueError, TypeError, OverflowError, RecursionError):
        what = "the value" if option.secret else quoted(raw)
        hint = f" ({option.hint})" if option.hint else ""
        raise ConfigError(f"{label}: {what} is not {expected(option)}{hint}") from None
    return value


def expected(option: Option) -> str:
    """What one value of the option must be, as a noun phrase: "an integer from 1 to 65535"."""
    if option.choices:
        return "one of " + ", ".join(str(choice) or "(empty)" for choice in option.choices)
    if option.kind == "duration":
        bare = "seconds" if option.seconds else "milliseconds"
        return f"a duration such as 250ms or 1m30s{limits(option)} (a bare number is {bare})"
    return _NOUNS[option.kind] + limits(option)


def limits(option: Option) -> str:
    """The option's range as words to follow a noun, or nothing."""
    spell = _time if option.kind == "duration" else _plain
    if option.low is not None and option.high is not None:
        return f" from {spell(option.low)} to {spell(option.high)}"
    if option.low is not None:
        return f" of at least {spell(option.low)}"
    return ""


def parse_integer(text: str) -> int:
    """An integer, perhaps with a suffix: k, m, g, t are powers of 1000 (decimals allowed), capitals of 1024.

    As vLLM's parser has it. Raises ValueError for anything else.
    """
    found = _INTEGER.fullmatch(text)
    if found is None:
        raise ValueError(text)
    sign, whole, fraction, suffix = found.groups(default="")
    if fraction and not suffix.islower():
        raise ValueError(text)
    size: int = int((whole + fraction).replace("_", "")) * _SIZES[suffix] // 10 ** len(fraction)
    return -size if sign == "-" else size


def _integer(option: Option, raw: object) -> int:
    return parse_integer(_text(raw))


def _number(option: Option, raw: object) -> float:
    text = _text(raw)
    if not _NUMBER.fullmatch(text) or not math.isfinite(float(text)):
        raise ValueError(text)
    return float(text)


def _duration(option: Option, raw: object) -> float:
    return parse_duration(_text(raw), "s" if option.seconds else "ms")


def _bool(option: Option, raw: object) -> bool:
    try:
        return TRUTH[_text(raw).lower()]
    except KeyError:
        raise ValueError(raw) from None


def _string(option: Option, raw: object) -> str:
    text = _text(raw)
    if not text.isascii():
        # The locale may not have decoded it; what is not UTF-8 would only fail later, in a response.
        text = os.fsencode(text).decode() if _undecoded(text) else text
        text.encode()
    return text


def _undecoded(text: str) -> bool:
    return any("\udc80" <= character <= "\udcff" for character in text)


def _object(option: Option, raw: object) -> dict[str, object]:
    # Through JSON and back, so that what YAML alone knows (dates, integer keys) cannot turn up later.
    if isinstance(raw, str):
        data: str | bytes = raw
    else:
        _refuse_endless(raw)
        data = msgspec.json.encode(raw)
    return msgspec.json.decode(data, type=dict[str, object])


def _refuse_endless(data: object) -> None:
    """Raises ValueError for numbers that are none in JSON, which would become null there."""
    if isinstance(data, float) and not math.isfinite(data):
        raise ValueError(data)
    if isinstance(data, dict | list):
        for each in data.values() if isinstance(data, dict) else data:
            _refuse_endless(each)


def _document(option: Option, raw: object) -> dict[str, object]:
    try:
        return _object(option, read_document(raw) if isinstance(raw, str) else raw)
    except ConfigError as problem:
        raise ConfigError(f"--{option.name}: {problem}") from None


def _texts(option: Option, raw: object) -> tuple[str, ...]:
    data = raw if isinstance(raw, str) else msgspec.json.encode(raw)
    return msgspec.json.decode(data, type=tuple[str, ...])


def _lora(option: Option, raw: object) -> LoraModule:
    if isinstance(raw, str) and not raw.lstrip().startswith("{"):
        name, equals, path = raw.partition("=")
        if not equals:
            raise ValueError(raw)
        raw = {"name": name, "path": path}
    elif isinstance(raw, str):
        raw = msgspec.json.decode(raw)
    module = msgspec.convert(raw, LoraModule)
    if not module.name:
        raise ValueError(raw)
    return module


def _text(raw: object) -> str:
    if not isinstance(raw, str):
        raise ValueError(raw)
    return raw


_READERS: dict[str, Callable[[Option, object], object]] = {
    "bool": _bool,
    "int": _integer,
    "float": _number,
    "str": _string,
    "duration": _duration,
    "json": _object,
    "document": _document,
    "texts": _texts,
    "lora": _lora,
}

_NOUNS = {
    "bool": "true or false",
    "int": "an integer",
    "float": "a number",
    "str": "UTF-8 text",
    "json": "a JSON object",
    "document": "a JSON or YAML object, or a file of one (@path, or .json, .yaml, .yml)",
    "texts": 'a JSON list of texts such as ["a", "b"]',
    "lora": 'a LoRA module such as {"name": "a", "path": "/a"} or a=/a',
}


def _check(option: Option, value: object) -> None:
    if option.choices and value not in option.choices:
        raise ValueError(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    low, high = option.low, option.high
    if option.kind == "duration":
        low, high = low or 0.0, high or LONGEST
    elif option.kind == "int":
        low, high = -(2**63) if low is None else low, 2**63 - 1 if high is None else high
    if (low is not None and value < low) or (high is not None and value > high):
        raise ValueError(value)


def _plain(number: float) -> str:
    return str(int(number)) if number == int(number) else str(number)


def _time(seconds: float) -> str:
    return format_duration(seconds).replace("\u00b5", "u")  # fit for any terminal


def quoted(raw: object) -> str:
    """A refused value as messages show it."""
    text = repr(raw)
    return text if len(text) <= 80 else f"{text[:60]}...{text[-10:]}"
