"""What besides its tokens distinguishes a prompt's blocks from those of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from llmdsim.tokenization.prompt import MediaSpan


class Extra(NamedTuple):
    """What distinguishes one block: the adapter's name and path, media with where each begins, counted from
    the block's first token, and a salt, which only a prompt's first block has."""

    adapter: tuple[str, str] | None
    media: tuple[tuple[str, int], ...]
    salt: str | None


class Content:
    """The same for a whole prompt. `lora_id` is the adapter's number as events tell it."""

    __slots__ = ("adapter", "lora_id", "media", "root", "salt")

    def __init__(
        self,
        adapter: tuple[str, str] | None = None,
        lora_id: int | None = None,
        salt: str | None = None,
        media: Sequence[MediaSpan] = (),
    ) -> None:
        self.adapter = adapter
        self.lora_id = lora_id
        self.salt = salt
        self.media = media
        #: What the first block's content follows.
        self.root = (adapter, salt)

    def media_of(self, start: int, stop: int) -> tuple[tuple[str, int], ...]:
        """The media that have tokens from `start` up to `stop`."""
        return tuple(
            (item.identifier, item.offset - start)
            for item in self.media
            if item.offset < stop and item.offset + item.length > start
        )

    def extra(self, start: int, stop: int) -> Extra | None:
        """What distinguishes the block of those tokens; None if nothing does."""
        media = self.media_of(start, stop)
        salt = None if start else self.salt
        if self.adapter is None and not media and salt is None:
            return None
        return Extra(self.adapter, media, salt)


#: A prompt of the base model that nothing but its tokens distinguishes.
PLAIN = Content()
