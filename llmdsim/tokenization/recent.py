"""What was found out about texts seen lately."""

from __future__ import annotations

from typing import Generic, TypeVar

#: Characters of all texts that are remembered; with ids of theirs that takes some 10 MB.
_REMEMBERED = 2_000_000

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """Values by text, forgotten when they have not been asked for in a long while.

    That of a text of more than half of what is remembered is not kept. Several threads may use it.
    """

    def __init__(self) -> None:
        self._young: dict[str, Value] = {}
        self._old: dict[str, Value] = {}
        self._room = _REMEMBERED // 2

    def get(self, text: str) -> Value | None:
        """What was put for this text."""
        value = self._young.get(text)
        if value is None:
            value = self._old.get(text)
            if value is not None:
                self.put(text, value)
        return value

    def put(self, text: str, value: Value) -> None:
        """Remember a value."""
        cost = len(text) + 100
        if cost > _REMEMBERED // 2:
            return
        self._room -= cost
        if self._room < 0:
            self._old, self._young = self._young, {}
            self._room = _REMEMBERED // 2 - cost
        self._young[text] = value
