"""Long work in steps: what a generator yields between them."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

#: None after some work of half a millisecond, or a function that takes long and may be run in a thread; the
#: next step follows when it has run.
Step: TypeAlias = Callable[[], object] | None


def in_thread(work: Callable[[], T]) -> Generator[Step, None, T]:
    """What `work`, which takes long, comes to: its one step is a function that does it."""
    found: list[T] = []
    yield lambda: found.append(work())
    return found[0]


def at_once(steps: Generator[Step, None, T]) -> T:
    """What the steps come to, in this thread."""
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        if step is not None:
            step()
