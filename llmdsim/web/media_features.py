"""Where the media of a rendered chat are in its prompt: vLLM's `features`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

from llmdsim.tokenization.media import TOKENS, items_of
from llmdsim.tokenization.prompt import Prompt
from llmdsim.web.encoder import media_hashes


def features_of(messages: Sequence[Mapping[str, Any]], prompt: Prompt) -> dict[str, Any] | None:
    """Hashes of the items and ranges of their tokens, by modality; `prompt` is the conversation's.

    None without media, and for a prompt that was cut, in which they may not be whole. There is no data:
    as for items that are cached already, both keys for it are null.
    """
    items = items_of(messages)
    if not items or prompt.text is None:
        return None
    hashes: dict[str, list[str]] = {}
    ranges: dict[str, list[dict[str, int]]] = {}
    ends = prompt.layout.ends
    at = 0
    for item, name in zip(items, media_hashes(items), strict=True):
        shown = f"{item.line}\n{item.placeholders}"
        found = prompt.text.find(shown, at)
        if found < 0:
            continue  # a part that has a text as well reads as that
        at = found + len(shown)
        offset = bisect_left(ends, at - len(item.placeholders))
        hashes.setdefault(item.modality, []).append(name)
        ranges.setdefault(item.modality, []).append({"offset": offset, "length": TOKENS[item.modality]})
    return {"mm_hashes": hashes, "mm_placeholders": ranges, "kwargs_data": None, "mm_metadata": None}
