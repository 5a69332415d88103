"""`/admin/kv`: what is in the KV cache, and what of a prompt would be found there."""

from __future__ import annotations

from collections.abc import Generator
from typing import Annotated, Any, TypeAlias

import msgspec
from klein import Klein
from msgspec import Meta
from twisted.internet.defer import Deferred

from llmdsim.engine.adapters import Adapter
from llmdsim.engine.blocks import content
from llmdsim.engine.kvcache import BlockHash, KvCache
from llmdsim.engine.kvcache.inspection import Inspection, Seen
from llmdsim.engine.kvcache.pool import Block
from llmdsim.tokenization.prompt import Prompt
from llmdsim.web.admin.development import require_development
from llmdsim.web.chat_request import ChatRequest, decode_chat
from llmdsim.web.context import Context, content_type
from llmdsim.web.conversation import prepare
from llmdsim.web.errors import ApiError
from llmdsim.web.generation_request import GenerationRequest
from llmdsim.web.prompts import prompt_of
from llmdsim.web.query import read_query
from llmdsim.web.sampling import sampling
from llmdsim.web.takes import takes
from llmdsim.web.text import decode_long
from llmdsim.web.text_request import TextRequest, decode_text, prompts
from llmdsim.web.turns import LONG_BODY, Steps
from llmdsim.wire.request import Request

json = msgspec.json.encode

#: Blocks that are written as JSON in half a millisecond.
BLOCKS_AT_ONCE = 500


Asked: TypeAlias = tuple[GenerationRequest, Prompt, Adapter | None]


class BlocksQuery(msgspec.Struct):
    """What `/admin/kv` takes: so many blocks, after `offset` others."""

    offset: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=10_000)] = 1000


class _Kind(msgspec.Struct):
    """What tells a chat from a text."""

    messages: Any = None


class Kv:
    """Routes of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def mount(self, app: Klein) -> None:
        """Add the routes."""
        app.route("/admin/kv", methods=["GET"], endpoint="kv")(self.blocks)
        app.route("/admin/kv/probe", methods=["POST"], endpoint="kv-probe")(self.probe)

    def blocks(self, request: Request) -> Deferred[None] | None:
        """All blocks that can be found."""
        return self._context.turns.take(self._blocks(request))

    @takes(ChatRequest, TextRequest)
    def probe(self, request: Request) -> Deferred[None] | None:
        """What of a prompt would be found, were it sent now; nothing changes by that."""
        return self._context.turns.take(self._probe(request))

    def _cache(self) -> KvCache:
        require_development(self._context.config, "To look into the KV cache")
        cache = self._context.driver.engine.cache
        if cache is None:
            raise ApiError(409, "There is no KV cache: it takes --enable-kvcache.")
        return cache

    def _blocks(self, request: Request) -> Steps:
        cache = self._cache()
        query = read_query(BlocksQuery, request)
        yield from cache.keep_promises()
        rows, following = yield from Inspection(cache.pool).rows(query.offset, query.limit)
        parts: list[bytes] = []
        for start in range(0, len(rows), BLOCKS_AT_ONCE):
            parts.append(json([_shown(row) for row in rows[start : start + BLOCKS_AT_ONCE]])[1:-1])
            if len(rows) > BLOCKS_AT_ONCE:
                yield
        pool = cache.pool
        answer = {
            "block_size": cache.block_size,
            "total": pool.total,
            "used": pool.used,
            "free": pool.free,
            "cached": pool.findable,
            "usage": pool.usage,
            "host": None if cache.host is None else {"total": cache.host.total, "cached": len(cache.host)},
            "blocks": msgspec.Raw(b"[%b]" % b",".join(parts)),
            "next_offset": following,
        }
        request.respond(200, json(answer))

    def _probe(self, request: Request) -> Steps:
        cache = self._cache()
        read = self._chat if _is_chat(request) else self._text
        asked, prompt, adapter = yield from read(request)
        yield from prompt.tokenize()
        found: list[Block] = []
        hosted = 0
        if asked.reads_cache:
            of_prompt = content(adapter, asked.cache_salt, prompt.media)
            found = cache.find(prompt.packed, of_prompt)
            hosted = cache.hosted(prompt.packed, of_prompt, found)
        answer = {
            "prompt_tokens": len(prompt),
            "cached_tokens": (len(found) + hosted) * cache.block_size,
            "host_tokens": hosted * cache.block_size,
            "would_hit": bool(found or hosted),
            "blocks": [
                {"number": block.number, "refs": block.refs, **_hashes(block.hash)} for block in found
            ],
        }
        request.respond(200, json(answer))

    def _chat(self, request: Request) -> Generator[Any, Any, Asked]:
        chat = decode_chat(request.body, content_type(request))
        if len(request.body) > LONG_BODY:
            yield
        served = self._context.serving(chat.model)
        conversation = yield from prepare(self._context, chat)
        return chat, conversation.prompt, served.adapter

    def _text(self, request: Request) -> Generator[Any, Any, Asked]:
        context = self._context
        if len(request.body) > LONG_BODY:
            text = yield from decode_long(request)
        else:
            text = decode_text(request.body, content_type(request))
        served = context.serving(text.model)
        wanted = prompts(text, context.limits)
        if len(wanted) > 1:
            raise ApiError(400, "One prompt at a time can be looked for.", param="prompt")
        prompt = yield from prompt_of(context, text, wanted[0])
        sampling(text, len(prompt), context.limits)
        return text, prompt, served.adapter


def _is_chat(request: Request) -> bool:
    try:
        return msgspec.json.decode(request.body, type=_Kind).messages is not None
    except (msgspec.DecodeError, RecursionError):
        return False  # what is wrong will be told of a text


def _shown(row: Seen) -> dict[str, Any]:
    return {
        "number": row.number,
        "refs": row.refs,
        **_hashes(row.hash),
        "parent": row.parent,
        "depth": row.depth,
        "adapter": row.adapter,
        "cache_salt": row.salt,
    }


def _hashes(made: BlockHash | None) -> dict[str, Any]:
    """The whole hash, and its last 64 bits, as events have it as a number."""
    if made is None:
        return {"hash": None, "event_hash": None}
    if isinstance(made, int):
        made = made.to_bytes(8, "big")
    return {"hash": made.hex(), "event_hash": int.from_bytes(made[-8:], "big")}
