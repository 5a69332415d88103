"""Events as lines for people and as JSON."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twisted.logger import LogLevel
from twisted.logger._legacy import publishToNewObserver
from twisted.python.failure import Failure
from twisted.python.log import textFromEventDict

from llmdsim.logs.lines import JsonLines, TextLines
from llmdsim.logs.stamp import Stamp
from tests.logs.rig import Log

AT = datetime.fromisoformat("2026-11-30T19:13:49.1234+05:30").timestamp()


@pytest.fixture(autouse=True)
def _zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(os.environ, "TZ", "Asia/Kolkata")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def event(**more: Any) -> dict[str, Any]:
    return {
        "log_time": AT,
        "log_level": LogLevel.info,
        "log_namespace": "llmdsim.services.drain",
        "log_format": "drained {n}",
        "n": 3,
        **more,
    }


def failed(text: str = "on purpose") -> Failure:
    try:
        raise ValueError(text)
    except ValueError:
        return Failure()


def test_a_line_for_people() -> None:
    assert TextLines().line(event()) == "2026-11-30 19:13:49.123 INFO drain: drained 3\n"


@pytest.mark.parametrize(
    ("level", "word"),
    [
        (LogLevel.debug, "DEBUG"),
        (LogLevel.warn, "WARNING"),
        (LogLevel.error, "ERROR"),
        (LogLevel.critical, "CRITICAL"),
    ],
)
def test_levels_are_words(level: Any, word: str) -> None:
    assert f" {word} drain: " in TextLines().line(event(log_level=level))
    assert json.loads(JsonLines().line(event(log_level=level)))["level"] == word


def test_headers_may_be_left_out_or_tell_the_package() -> None:
    assert TextLines(skip_headers=True).line(event()) == "drained 3\n"
    assert " INFO services/drain: drained" in TextLines(add_dir_header=True).line(event())
    others = event(log_namespace="twisted.internet.defer")
    assert " INFO twisted.internet.defer: " in TextLines(add_dir_header=True).line(others)


def test_lines_of_a_rank_tell_which_one() -> None:
    assert " INFO (rank 3) drain: drained 3\n" in TextLines().of_rank(3).line(event())
    assert TextLines(skip_headers=True).of_rank(0).line(event()) == "(rank 0) drained 3\n"
    assert " (rank 1) services/drain: " in TextLines(add_dir_header=True).of_rank(1).line(event())
    found = json.loads(JsonLines().of_rank(3).line(event(rank="x")))
    assert list(found)[:4] == ["time", "level", "logger", "rank"]
    assert found["rank"] == 3


def test_an_object_has_time_level_logger_message_and_the_plain_fields() -> None:
    line = JsonLines().line(event(name="x", part=0.5, nothing=None, raw=b"/p\xff", thing=object(), v=5))
    found = json.loads(line)
    assert list(found)[:4] == ["time", "level", "logger", "message"]
    assert found == {
        "time": "2026-11-30T19:13:49.123+05:30",
        "level": "INFO",
        "logger": "llmdsim.services.drain",
        "message": "drained 3",
        "n": 3,
        "name": "x",
        "part": 0.5,
        "nothing": None,
        "raw": "/p\\xff",
    }
    assert datetime.fromisoformat(found["time"]).timestamp() == pytest.approx(AT, abs=0.001)


def test_a_field_cannot_pass_for_one_of_ours() -> None:
    found = json.loads(JsonLines().line(event(level="x", logger="x", message="x", exception="x")))
    assert (found["level"], found["logger"], found["message"]) == (
        "INFO",
        "llmdsim.services.drain",
        "drained 3",
    )
    assert "exception" not in found


def test_numbers_that_are_none_still_parse() -> None:
    line = JsonLines().line(event(bad=float("nan"), far=float("-inf")))
    found = json.loads(line, parse_constant=pytest.fail)
    assert (found["bad"], found["far"]) == ("nan", "-inf")


def test_a_traceback_follows_set_in() -> None:
    text = TextLines().line(event(log_failure=failed("two\n2026-11-30 00:00:00.000 ERROR fake: line")))
    first, *rest = text.splitlines()
    assert first.endswith("drain: drained 3")
    assert rest[0] == "    Traceback (most recent call last):"
    assert all(line.startswith("    ") for line in rest)
    found = json.loads(JsonLines().line(event(log_failure=failed())))
    assert "ValueError: on purpose" in found["exception"]
    assert found["message"] == "drained 3"


@pytest.mark.parametrize("why", [None, "it is so"])
def test_an_old_error_of_twisted_has_its_traceback_once(why: str | None) -> None:
    log = Log()
    old = {"time": AT, "isError": 1, "message": (), "failure": failed(), "why": why}
    publishToNewObserver(log.observer, old, textFromEventDict)
    assert log.lines[0].endswith(f" CRITICAL twisted: {why or 'Unhandled Error'}")
    assert log.text.count("ValueError: on purpose") == 1
    assert "    Traceback" in log.text


@given(st.text() | st.binary(), st.text())
def test_whatever_is_logged_is_one_line(value: Any, namespace: str) -> None:
    told = event(value=value, log_format="got {value}", log_namespace=namespace)
    assert re.fullmatch(r"[^\n]*\n", TextLines(skip_headers=True).line(told))
    line = JsonLines().line(told)
    assert len(line.splitlines()) == 1
    assert json.loads(line)["logger"] == namespace


def test_a_stamp_follows_the_seconds() -> None:
    stamp = Stamp()
    assert [stamp(AT), stamp(AT + 0.9), stamp(AT), stamp(int(AT) + 0.9996)] == [
        "2026-11-30 19:13:49.123",
        "2026-11-30 19:13:50.023",
        "2026-11-30 19:13:49.123",
        "2026-11-30 19:13:49.999",
    ]
