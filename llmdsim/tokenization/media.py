"""Images, sounds and videos in a conversation: what they read as, and the prompt tokens they take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple
from zlib import crc32

Modality = Literal["image", "audio", "video"]

#: Tokens of one item, whatever is in it: nothing is fetched or decoded. Any one fits the default context.
TOKENS: dict[Modality, int] = {"image": 256, "audio": 128, "video": 512}

#: Characters of a source that are read; what is longer is data and goes by its checksum.
LONGEST_SOURCE = 256

_KEYS: dict[str, tuple[Modality, tuple[str, ...]]] = {
    "image_url": ("image", ("image_url",)),
    "input_image": ("image", ("image_url", "file_id")),
    "image_pil": ("image", ("image_pil",)),
    "image_embeds": ("image", ("image_embeds",)),
    "audio_url": ("audio", ("audio_url",)),
    "input_audio": ("audio", ("input_audio",)),
    "audio_embeds": ("audio", ("audio_embeds",)),
    "video_url": ("video", ("video_url",)),
    "video_embeds": ("video", ("video_embeds",)),
}


class Item(NamedTuple):
    """One item; `source` is its URL, its data or its id, "" where there is none."""

    modality: Modality
    source: str

    @property
    def line(self) -> str:
        """What it reads as, without the tokens it takes."""
        return f"{self.modality}: {_shortened(self.source)}" if self.source else self.modality

    @property
    def text(self) -> str:
        """What it reads as in a prompt."""
        return f"{self.line}\n{self.placeholders}"

    @property
    def placeholders(self) -> str:
        """A text of as many tokens as it takes; every tokenizer has these words."""
        return " ".join([self.modality] * TOKENS[self.modality])


def item_of(part: Mapping[str, Any]) -> Item | None:
    """The item in a content part; None for other parts."""
    kind = part.get("type")
    if kind is None:
        kind = next((key for key in _KEYS if key in part), None)
    if not isinstance(kind, str) or kind not in _KEYS:
        return None
    modality, keys = _KEYS[kind]
    for key in keys:
        source = part.get(key)
        if isinstance(source, Mapping):
            source = source.get("url") or source.get("data")
        if isinstance(source, str):
            return Item(modality, source)
    return Item(modality, "")


def items_of(messages: Iterable[Mapping[str, Any]]) -> list[Item]:
    """All media of a conversation, in order."""
    items = []
    for message in messages:
        content = message.get("content")
        if type(content) is list:
            for part in content:
                item = item_of(part) if isinstance(part, Mapping) else None
                if item is not None:
                    items.append(item)
    return items


def media_tokens(messages: Iterable[Mapping[str, Any]]) -> int:
    """The tokens that all media of a conversation take."""
    total = 0
    for modality, _ in items_of(messages):
        total += TOKENS[modality]
    return total


def _shortened(source: str) -> str:
    if len(source) <= LONGEST_SOURCE:
        return source
    checksum = crc32(source.encode("utf-8", "surrogatepass"))
    return f"{source[:64]}...{checksum:08x}"
