"""Where the items of other modalities are among a prompt's ids, as a render step tells."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from llmdsim.web import decoding
from llmdsim.web.decoding import Path, Problem
from llmdsim.web.errors import ApiError, shown


class Placeholders(msgspec.Struct):
    """The ids that stand for one item."""

    offset: Annotated[int, Meta(ge=0)]
    length: Annotated[int, Meta(ge=1)]


class Features(msgspec.Struct):
    """`features`: lists of items by modality, all parallel. What the last two hold is not read."""

    mm_hashes: dict[str, list[str]]
    mm_placeholders: dict[str, list[Placeholders]]
    kwargs_data: dict[str, list[str | None]] | None = None
    mm_metadata: dict[str, list[str | None]] | None = None


def refuse_misplaced(features: Features, prompt_tokens: int, from_encoder: bool) -> None:
    """Raise a 400 unless the lists are parallel, and the items apart and within the prompt (vLLM).

    With `from_encoder` embeddings come from elsewhere, and items need not be here in full.
    """
    lists = ("mm_placeholders", "kwargs_data", "mm_metadata")
    for name in lists:
        _refuse_unparallel(features.mm_hashes, getattr(features, name), name)
    places = [place for items in features.mm_placeholders.values() for place in items]
    # That many cannot be apart, so they need not be sorted.
    if len(places) > prompt_tokens:
        raise _refusal(("features",), "mm_placeholders overlap")
    places.sort(key=lambda place: place.offset)
    if any(place.offset + place.length > following.offset for place, following in pairwise(places)):
        raise _refusal(("features",), "mm_placeholders overlap")
    if not from_encoder:
        _refuse_without_data(features)
    if places and places[-1].offset + places[-1].length > prompt_tokens:
        raise _refusal((), "mm_placeholders must remain within token_ids")


def _refuse_unparallel(hashes: dict[str, list[str]], other: dict[str, list[Any]] | None, name: str) -> None:
    if other is None:
        return
    if other.keys() != hashes.keys():
        raise _refusal(("features",), f"mm_hashes and {name} must have the same modalities")
    for modality, items in other.items():
        if len(items) != len(hashes[modality]):
            message = f"mm_hashes and {name} must have the same length for {shown(modality)}"
            raise _refusal(("features",), message)


def _refuse_without_data(features: Features) -> None:
    """Items of which nothing but metadata is here."""
    data = features.kwargs_data or {}
    for modality, metadata in (features.mm_metadata or {}).items():
        here = data.get(modality) or [None] * len(metadata)
        if any(told is not None and item is None for told, item in zip(metadata, here, strict=True)):
            raise _refusal((), "items with nothing but metadata need ec_transfer_params")


def _refusal(path: Path, message: str) -> ApiError:
    return decoding.refusal([Problem("value_error", path, message)])
