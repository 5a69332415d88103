"""Vectors in a reply, in the encoding their client asked for."""

from __future__ import annotations

import json as plain_json
from binascii import b2a_base64
from collections.abc import Generator, Sequence
from typing import Any, Literal

import msgspec

from llmdsim.web.errors import ApiError
from llmdsim.web.pooling.encoding import EmbedDtype, Endianness, float32, pack
from llmdsim.web.pooling.reply import PoolingReply
from llmdsim.web.pooling.request import InputRequest

json = msgspec.json.encode

#: Numbers that are put into any form in half a millisecond.
_AT_ONCE = 2048
#: Bytes of the `metadata` header that clients read: Python's own refuses a longer line.
MOST_METADATA = 65_000


class VectorRequest(InputRequest, kw_only=True):
    """A request whose reply holds vectors."""

    encoding_format: Literal["float", "base64", "bytes", "bytes_only"] = "float"
    embed_dtype: EmbedDtype = "float32"
    endianness: Endianness = "native"
    dimensions: int | None = None


class Vectors:
    """The vectors of one reply; `name` is what each is called, `member` where its numbers are.

    With `shortest` numbers have six decimals, as they were made; else, as vLLM's /pooling has it, they are
    what float32 makes of them.
    """

    def __init__(self, asked: VectorRequest, name: str, member: str, *, shortest: bool) -> None:
        self._asked = asked
        self._opening = f'"object":"{name}","{member}":'.encode()
        self._shortest = shortest
        self._parts: list[bytes] = []
        self._items: list[dict[str, Any]] = []
        self._end = 0

    def add(self, rows: Sequence[Sequence[float]], *, nested: bool) -> Generator[None, None, None]:
        """Add what was made of one prompt, in steps: a vector for each of its tokens, or (not nested) one."""
        asked = self._asked
        index = len(self._parts)
        if asked.encoding_format == "float":
            listed = []
            for place, row in enumerate(rows):
                if place:
                    yield
                listed.append((yield from self._list(row)))
            value = b"[%b]" % b",".join(listed) if nested else listed[0]
            self._parts.append(self._item(index, value))
            return
        data = bytearray()
        for row in rows:
            for start in range(0, len(row), _AT_ONCE):
                if data:
                    yield
                data += pack(row[start : start + _AT_ONCE], asked.embed_dtype, asked.endianness)
        if asked.encoding_format == "base64":
            self._parts.append(self._item(index, b'"%b"' % b2a_base64(data, newline=False)))
            return
        self._parts.append(bytes(data))
        start, self._end = self._end, self._end + len(data)
        shape = [len(rows), len(rows[0])] if nested else [len(rows[0])]
        self._items.append(
            {
                "index": index,
                "embed_dtype": asked.embed_dtype,
                "endianness": asked.endianness,
                "start": start,
                "end": self._end,
                "shape": shape,
            }
        )

    def _list(self, row: Sequence[float]) -> Generator[None, None, bytes]:
        parts = []
        for start in range(0, len(row), _AT_ONCE):
            if start:
                yield
            part = row[start : start + _AT_ONCE]
            parts.append(json(part if self._shortest else float32(part))[1:-1])
        return b"[%b]" % b",".join(parts)

    def _item(self, index: int, value: bytes) -> bytes:
        return b'{"index":%d,%b%b}' % (index, self._opening, value)

    def respond(self, reply: PoolingReply) -> None:
        """Send them. Raises ApiError 400 where their description would be too long for a header."""
        form = self._asked.encoding_format
        if form in ("float", "base64"):
            reply.respond_list(self._parts)
            return
        extra = b""
        if form == "bytes":
            extra = b"metadata: %b\r\n" % self._metadata(reply)
        reply.respond(b"".join(self._parts), b"application/octet-stream", extra)

    def _metadata(self, reply: PoolingReply) -> bytes:
        tokens = reply.prompt_tokens
        # In ASCII, which a header is.
        metadata = plain_json.dumps(
            {
                "id": reply.head.id,
                "created": reply.head.created,
                "model": reply.head.served.name,
                "data": self._items,
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }
        ).encode()
        if len(metadata) > MOST_METADATA:
            message = "With `bytes`, vectors are described in a header, which has no room for so many."
            raise ApiError.parameter(f"{message} Use `bytes_only`, or send fewer.", "encoding_format")
        return metadata
