"""No event keeps the daemon from going on."""

from __future__ import annotations

import pytest

from llmdsim.logs.lines import JsonLines, Lines, TextLines
from tests.logs.rig import Log


class Broken:
    def __str__(self) -> str:
        raise RuntimeError("sk-secret")

    __repr__ = __str__


@pytest.mark.parametrize("lines", [TextLines(), JsonLines()])
def test_an_event_that_cannot_be_shown_is_a_plain_line(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(lines=lines)
    log.logger().info("got {thing}", thing=Broken())
    log.logger().info(None, thing=Broken())
    log.logger().info("{unknown} {", thing=1)
    assert len(log.lines) == 2, "an event without words is no line"
    form = type(lines).line
    calls: list[object] = []

    def line(self: Lines, event: dict[str, object]) -> str:
        calls.append(event)
        if len(calls) == 1:
            raise RuntimeError("on purpose")
        return form(self, event)  # type: ignore[arg-type]

    monkeypatch.setattr(type(lines), "line", line)
    log.logger().error("got it")
    assert "an event could not be shown: RuntimeError" in log.lines[-1]
    assert "ERROR" in log.lines[-1]
    assert len(log.lines) == 3


def test_a_level_of_another_kind_is_no_reason_to_fail() -> None:
    log = Log()
    log.observer({"log_format": "hello", "log_level": "strange"})
    log.observer({"log_format": "hello"})
    log.observer({"log_level": ["not", "hashable"], "log_format": "x"})
    assert len(log.lines) == 3
