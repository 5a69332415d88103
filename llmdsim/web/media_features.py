"""Where the media of a rendered chat are in its prompt: vLLM's `features`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from llmdsim.tokenization.media import TOKENS, items_of
from llmdsim.tokenization.prompt import MediaSpan, Prompt
from llmdsim.web.encoder import media_hashes

#: By modality: `mm_hashes`, and beside them `mm_placeholders`, each an offset and a length in tokens.
Features = dict[str, Any]


def features_of(messages: Sequence[Mapping[str, Any]], prompt: Prompt) -> Features | None:
    """Hashes of the items and ranges of their tokens, by modality; `prompt` is the conversation's.

    None without media, and for a prompt that was cut, in which they may not be whole.
    """
    items = items_of(messages)
    if not items or prompt.text is None:
        return None
    hashes: dict[str, list[str]] = {}
    ranges: dict[str, list[dict[str, int]]] = {}
    text, ends, _ = prompt.layout
    at = 0
    for item, name in zip(items, media_hashes(items), strict=True):
        # A template may leave the line out.
        for shown in (item.text, item.placeholders):
            found = text.find(shown, at)
            if found >= 0:
                at = found + len(shown)
                offset = bisect_left(ends, at - len(item.placeholders))
                hashes.setdefault(item.modality, []).append(name)
                place = {"offset": offset, "length": TOKENS[item.modality]}
                ranges.setdefault(item.modality, []).append(place)
                break
        # Not found, a part that has a text as well reads as that.
    return features(hashes, ranges)


def features(hashes: Mapping[str, list[str]], ranges: Mapping[str, list[dict[str, int]]]) -> Features:
    """As vLLM has them of items that are cached already: there is no data."""
    return {"mm_hashes": hashes, "mm_placeholders": ranges, "kwargs_data": None, "mm_metadata": None}


def media_of(found: Features | None) -> tuple[MediaSpan, ...]:
    """The items, in the order of the prompt."""
    if found is None:
        return ()
    media = []
    for modality, places in found["mm_placeholders"].items():
        names = found["mm_hashes"].get(modality, ())
        media += [
            MediaSpan(name, place["offset"], place["length"])
            for name, place in zip(names, places, strict=False)
        ]
    return tuple(sorted(media, key=lambda item: item.offset))
