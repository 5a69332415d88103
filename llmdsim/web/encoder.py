"""`ec_transfer_params`: where a server that only encodes media has its encodings."""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Iterable

import msgspec

from llmdsim.config import Config
from llmdsim.tokenization.fnv import fnv1a32
from llmdsim.tokenization.media import Item, items_of
from llmdsim.web.chat_request import ChatRequest

json = msgspec.json.encode

#: Of each encoding (llm-d-inference-sim).
_WHERE = {
    "peer_host": "DUMMY",
    "peer_port": 1234,
    "size_bytes": 2359296,
    "nixl_agent_metadata_b64": b64encode(b"NIXL_METADATA_PLACEHOLDER").decode(),
}
_SHORT = {"image": "img"}

#: Characters of a source that its hash is made of; with more, their number is too.
_HASHED = 4096


def media_hashes(items: Iterable[Item]) -> list[str]:
    """`sim_<img, audio or video>_<place among its kind>_<hash>` for each item of a conversation."""
    places: Counter[str] = Counter()
    hashes = []
    for modality, source in items:
        data = source[:_HASHED].encode("utf-8", "surrogatepass")
        if len(source) > _HASHED:
            data += b"%d" % len(source) + source[-64:].encode("utf-8", "surrogatepass")
        hashes.append(f"sim_{_SHORT.get(modality, modality)}_{places[modality]}_{fnv1a32(data):x}")
        places[modality] += 1
    return hashes


def encodings_of(config: Config, chat: ChatRequest) -> bytes:
    """Those of a chat as JSON; null without media, in streams, and where there is a language model."""
    if not config.mm_encoder_only or chat.stream:
        return b"null"
    hashes = media_hashes(items_of(chat.messages))
    return encodings(hashes) if hashes else b"null"


def encodings(hashes: Iterable[str]) -> bytes:
    """`ec_transfer_params` as JSON: where each encoding is."""
    return json(dict.fromkeys(hashes, _WHERE))
