"""The LoRA adapters that requests may name."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count


class Adapter:
    """One adapter. `id` counts from 1; `parent` is the name of its base model.

    Loading it in place changes it; what is loaded under its name after it was unloaded is another adapter.
    """

    __slots__ = ("id", "known", "name", "parent", "path")

    def __init__(self, name: str, path: str, number: int, parent: str) -> None:
        self.name = name
        self.path = path
        self.id = number
        self.parent = parent
        #: False once it is unloaded; sequences that run or wait may hold it still.
        self.known = True


class Adapters:
    """The adapters known now, in the order they were loaded.

    Sequences hold the `Adapter` itself, so one that is unloaded while they run or wait stays what it is to
    them.
    """

    def __init__(self) -> None:
        self._by_name: dict[str, Adapter] = {}
        self._ids = count(1)
        #: Whether there ever was one.
        self.in_use = False

    def load(self, name: str, path: str, parent: str) -> Adapter:
        """Make an adapter known. One of that name is loaded in place: it is the same still (vLLM)."""
        self.in_use = True
        adapter = self._by_name.get(name)
        if adapter is None:
            adapter = self._by_name[name] = Adapter(name, path, next(self._ids), parent)
        else:
            adapter.path, adapter.parent = path, parent
        return adapter

    def unload(self, name: str) -> Adapter:
        """Forget an adapter. Raises KeyError where it is not known."""
        adapter = self._by_name.pop(name)
        adapter.known = False
        return adapter

    def get(self, name: str) -> Adapter | None:
        """The adapter of that name."""
        return self._by_name.get(name)

    def __len__(self) -> int:
        return len(self._by_name)

    def __iter__(self) -> Iterator[Adapter]:
        return iter(self._by_name.values())
