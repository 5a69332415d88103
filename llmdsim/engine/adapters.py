"""The LoRA adapters that requests may name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count


@dataclass(frozen=True, slots=True, eq=False)
class Adapter:
    """One adapter as it was loaded. `id` counts from 1; `parent` is the name of its base model."""

    name: str
    path: str
    id: int
    parent: str


class Adapters:
    """The adapters known now, in the order they were loaded.

    Sequences hold the `Adapter` itself, so one that is unloaded or replaced while they run or wait stays what
    it is to them.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, Adapter] = {}
        self._ids = count(1)

    def load(self, name: str, path: str, parent: str) -> Adapter:
        """Make an adapter known. One of that name is replaced, and its id and place are kept (vLLM)."""
        known = self._by_name.get(name)
        adapter = Adapter(name, path, next(self._ids) if known is None else known.id, parent)
        self._by_name[name] = adapter
        return adapter

    def unload(self, name: str) -> None:
        """Forget an adapter. Raises KeyError where it is not known."""
        del self._by_name[name]

    def get(self, name: str) -> Adapter | None:
        """The adapter of that name."""
        return self._by_name.get(name)

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Adapter]:
        return iter(self._by_name.values())
