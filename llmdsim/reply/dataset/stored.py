"""The stored form of a reply: JSON with the parallel lists `Tokens` and `Strings`."""

from __future__ import annotations

from typing import Annotated

import msgspec

from llmdsim.tokenization import Layout

Id = Annotated[int, msgspec.Meta(ge=0, lt=2**32)]

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ids = msgspec.json.Decoder(list[Id])
_texts = msgspec.json.Decoder(list[str])


def read_stored(stored: object, most: int | None = None) -> Layout:
    """The reply, or the first `most` tokens of it.

    Raises ValueError for anything else than JSON of the form, and for a reply without tokens; RecursionError
    for members nested beyond all measure.
    """
    if not isinstance(stored, str | bytes):
        raise ValueError("is no text")
    # Names count whatever their case, as in llm-d-inference-sim.
    members = {name.lower(): value for name, value in _members.decode(stored).items()}
    if "tokens" not in members or "strings" not in members:
        raise ValueError("has not both Tokens and Strings")
    ids, texts = _ids.decode(members["tokens"]), _texts.decode(members["strings"])
    if len(ids) != len(texts):
        raise ValueError(f"has {len(ids)} tokens and {len(texts)} strings")
    if not ids:
        raise ValueError("has no tokens")
    return Layout.of(texts[:most], ids[:most])


def write_stored(ids: list[int], texts: list[str]) -> str:
    """What `read_stored` reads."""
    return msgspec.json.encode({"Tokens": ids, "Strings": texts}).decode()
