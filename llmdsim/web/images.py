"""Images in answers (`--omni`): which answers have one, and how they show it."""

from __future__ import annotations

from base64 import b64encode
from random import Random
from struct import pack
from zlib import compress, crc32

from llmdsim.config import Config
from llmdsim.web.flags import is_set
from llmdsim.wire.request import Request

#: Asks for an image, if it is true.
SEND_IMAGE = b"x-send-image"


def _chunk(kind: bytes, data: bytes) -> bytes:
    return pack(">I", len(data)) + kind + data + pack(">I", crc32(kind + data))


def _pixel() -> bytes:
    """A PNG of one transparent pixel."""
    header = pack(">IIBBBBB", 1, 1, 8, 6, 0, 0, 0)
    scanline = b"\0" + bytes(4)
    chunks = _chunk(b"IHDR", header) + _chunk(b"IDAT", compress(scanline)) + _chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


#: The content part that every image is.
IMAGE_PART = b'{"type":"image_url","image_url":{"url":"data:image/png;base64,%b"}}' % b64encode(_pixel())


def text_part(text: bytes) -> bytes:
    """The content part of a text, given as JSON."""
    return b'{"type":"text","text":%b}' % text


class Images:
    """Decides for one rank; with a seed, the same requests in the same order get images."""

    def __init__(self, config: Config) -> None:
        self._random = Random(None if config.seed is None else f"images {config.seed}")

    def wanted(self, request: Request, config: Config) -> bool:
        """Whether the answer to `request` has an image: because it asks for one, or by chance."""
        return is_set(request, SEND_IMAGE) or self._random.random() * 100 < config.image_emission_rate
