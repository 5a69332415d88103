"""The KV cache once more, slow and obvious: lists that are searched, and everything worked out anew."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TypeAlias

from llmdsim.engine.kvcache import BlockHash, Cleared, Content, Extra, Record, Removed, Stored
from tests.engine.kvcache.rig import SpelledOut

#: What a block holds, all that comes before it included: for each block, its tokens and what is extra in it.
Prefix: TypeAlias = tuple[tuple[tuple[int, ...], Extra | None], ...]


def extra(content: Content, start: int, stop: int) -> Extra | None:
    """What distinguishes a block, position by position."""
    media: list[tuple[str, int]] = []
    for position in range(start, stop):
        for item in content.media:
            shown = (item.identifier, item.offset - start)
            if item.offset <= position < item.offset + item.length and shown not in media:
                media.append(shown)
    salt = content.salt if start == 0 else None
    return Extra(content.adapter, tuple(media), salt) if content.adapter or media or salt else None


def told(extra: Extra | None) -> tuple[object, ...] | None:
    if extra is None:
        return None
    adapter = [extra.adapter[0]] if extra.adapter else []
    return (*adapter, *extra.media, *([extra.salt] if extra.salt else []))


class Reference:
    """The same as `KvCache` with a hasher, by the numbers of blocks."""

    def __init__(self, total: int, size: int, host: int) -> None:
        self.total = total
        self.size = size
        #: All free blocks, the next to be taken first.
        self.free = [*range(1, total + 1)]
        self.refs = dict.fromkeys(self.free, 0)
        #: What blocks hold, in the order in which they were filled.
        self.held: dict[int, Prefix] = {}
        #: What the host has, used least recently first, and room for how many.
        self.copies: list[Prefix] = []
        self.host = host
        self.records: list[Record] = []

    def prefix(self, tokens: Sequence[int], content: Content, blocks: int) -> Prefix:
        size = self.size
        return tuple(
            (
                tuple(tokens[index * size : (index + 1) * size]),
                extra(content, index * size, (index + 1) * size),
            )
            for index in range(blocks)
        )

    def hash(self, prefix: Prefix) -> BlockHash:
        hasher = SpelledOut()
        first = prefix[0][1]
        made = hasher.root(first.adapter[0] if first is not None and first.adapter else None)
        for tokens, extra in prefix:
            made = hasher.block(made, array("I", tokens), extra)
        return made

    def find(self, tokens: Sequence[int], content: Content) -> list[int]:
        found: list[int] = []
        for blocks in range(1, (len(tokens) - 1) // self.size + 1):
            prefix = self.prefix(tokens, content, blocks)
            matching = [number for number, held in self.held.items() if held == prefix]
            if not matching:
                break
            found.append(matching[0])
        return found

    def hosted(self, tokens: Sequence[int], content: Content, found: int) -> int:
        blocks = found
        while (blocks + 1) * self.size < len(tokens) and self.prefix(
            tokens, content, blocks + 1
        ) in self.copies:
            blocks += 1
        return blocks - found

    def admit(self, tokens: Sequence[int], found: list[int]) -> list[int] | None:
        left = [number for number in self.free if number not in found]
        missing = -(-len(tokens) // self.size) - len(found)
        if missing > len(left):
            return None
        for number in found:
            self.refs[number] += 1
        self.free = left
        return found + self.take(missing)

    def take(self, count: int) -> list[int]:
        taken, self.free = self.free[:count], self.free[count:]
        for number in taken:
            self.refs[number] = 1
            if number in self.held:
                self.records.append(Removed(self.hash(self.held.pop(number))))
        return taken

    def store(
        self, numbers: list[int], tokens: Sequence[int], content: Content, start: int, stop: int
    ) -> None:
        if start >= stop:
            return
        prefix = self.prefix(tokens, content, stop)
        for index in range(start, stop):
            self.held[numbers[index]] = prefix[: index + 1]
        self.tell(prefix, start, tokens, content, "GPU")
        self.copy(prefix[: self.host], tokens, content)

    def copy(self, prefix: Prefix, tokens: Sequence[int], content: Content) -> None:
        wanted = [prefix[: index + 1] for index in range(len(prefix))]
        known = len([each for each in wanted if each in self.copies])
        others = [each for each in self.copies if each not in wanted]
        over = max(len(others) + len(wanted) - self.host, 0)
        self.records += [Removed(self.hash(each), "CPU") for each in others[:over]]
        self.copies = others[over:] + wanted[::-1]
        if known < len(wanted):
            self.tell(prefix, known, tokens, content, "CPU")

    def tell(self, prefix: Prefix, start: int, tokens: Sequence[int], content: Content, medium: str) -> None:
        stop = len(prefix)
        keys = [told(extra) for _, extra in prefix[start:]]
        self.records.append(
            Stored(
                [self.hash(prefix[: index + 1]) for index in range(start, stop)],
                self.hash(prefix[:start]) if start else None,
                array("I", tokens[start * self.size : stop * self.size]),
                self.size,
                content.lora_id,
                content.adapter[0] if content.adapter else None,
                keys if any(keys) else None,  # type: ignore[arg-type]
                medium,
            )
        )

    def release(self, numbers: list[int]) -> None:
        for number in numbers:
            self.refs[number] -= 1
        idle = [number for number in reversed(numbers) if not self.refs[number]]
        empty = [number for number in idle if number not in self.held]
        self.free = empty + self.free + [number for number in idle if number in self.held]

    def clear(self) -> bool:
        if len(self.free) < self.total:
            return False
        self.held.clear()
        self.copies.clear()
        self.records.append(Cleared())
        return True
