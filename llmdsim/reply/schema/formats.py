"""The formats of strings: how to write one, and how to tell whether a string is one."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from datetime import date
from random import Random
from typing import NamedTuple

from llmdsim.reply.schema.words import FIRST_NAMES, WORDS


class Format(NamedTuple):
    write: Callable[[Random], str]
    holds: Callable[[str], bool]


def _matching(pattern: str) -> Callable[[str], bool]:
    """These patterns are ours, and take no more than linear time."""
    compiled = re.compile(pattern, re.ASCII)
    return lambda text: compiled.fullmatch(text) is not None


def _date(random: Random) -> str:
    return f"{random.randint(2020, 2029)}-{random.randint(1, 12):02}-{random.randint(1, 28):02}"


def _time(random: Random) -> str:
    return f"{random.randint(0, 23):02}:{random.randrange(0, 60, 5):02}:{random.randint(0, 59):02}Z"


def _uuid(random: Random) -> str:
    digits = f"{random.getrandbits(128):032x}"
    variant = "89ab"[int(digits[16], 16) % 4]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def _is_date(text: str) -> bool:
    if not _DATE_SHAPE(text):
        return False
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


_DATE_SHAPE = _matching(r"\d{4}-\d\d-\d\d")
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_IS_TIME = _matching(_TIME)
_IS_HOSTNAME = _matching(rf"(?=.{{1,253}}\Z)(?:{_LABEL}\.)*{_LABEL}")
_IS_DURATION = _matching(r"P(?!$)(?:\d+W|(?:\d+Y)?(?:\d+M)?(?:\d+D)?(?:T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+S)?)?)")
_IS_URI = _matching(r"[A-Za-z][A-Za-z0-9+.-]*:[!#$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]+")
_IS_REFERENCE = _matching(r"[!#$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]*")
_IS_EMAIL = _matching(r"[^@\s]+@[^@\s]+")


def _is_date_time(text: str) -> bool:
    return text[10:11] in ("T", "t") and _is_date(text[:10]) and _IS_TIME(text[11:])


def _is_address(kind: str) -> Callable[[str], bool]:
    def holds(text: str) -> bool:
        import ipaddress  # noqa: PLC0415 - slow to load, rarely wanted

        try:
            getattr(ipaddress, kind)(text)
        except ValueError:
            return False
        return "%" not in text

    return holds


_EMAIL = Format(lambda r: f"{r.choice(FIRST_NAMES).lower()}@{r.choice(WORDS)}.example", _IS_EMAIL)
_HOSTNAME = Format(lambda r: f"{r.choice(WORDS)}.example.com", _IS_HOSTNAME)
_URI = Format(lambda r: f"https://{r.choice(WORDS)}.example/{r.choice(WORDS)}", _IS_URI)
_REFERENCE = Format(lambda r: f"/{r.choice(WORDS)}/{r.choice(WORDS)}", _IS_REFERENCE)
_BASE64 = Format(
    lambda r: b64encode(r.choice(WORDS).encode()).decode(),
    _matching(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"),
)

FORMATS: dict[str, Format] = {
    "date-time": Format(lambda r: f"{_date(r)}T{_time(r)}", _is_date_time),
    "date": Format(_date, _is_date),
    "time": Format(_time, _IS_TIME),
    "duration": Format(lambda r: f"P{r.randint(1, 9)}DT{r.randint(1, 23)}H", _IS_DURATION),
    "email": _EMAIL,
    "idn-email": _EMAIL,
    "hostname": _HOSTNAME,
    "idn-hostname": _HOSTNAME,
    "ipv4": Format(
        lambda r: f"10.{r.randint(0, 255)}.{r.randint(0, 255)}.{r.randint(1, 254)}",
        _is_address("IPv4Address"),
    ),
    "ipv6": Format(
        lambda r: f"2001:db8::{r.randint(1, 65535):x}:{r.randint(1, 65535):x}", _is_address("IPv6Address")
    ),
    "uri": _URI,
    "iri": _URI,
    "url": _URI,
    "uri-reference": _REFERENCE,
    "iri-reference": _REFERENCE,
    "uuid": Format(
        _uuid, _matching("[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}")
    ),
    "json-pointer": Format(
        lambda r: f"/{r.choice(WORDS)}/{r.randint(0, 9)}", _matching(r"(?:/(?:[^~/]|~[01])*)*")
    ),
    "byte": _BASE64,
    "base64": _BASE64,
}
"""Those of JSON Schema, where a few lines tell; of OpenAPI `byte`; and what other tools write.
 Others are no
constraint, as the specification has it.
"""
