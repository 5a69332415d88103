"""`POST /v2/embed`: embeddings in the form of Cohere's API."""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from klein import Klein
from twisted.internet.defer import Deferred

from llmdsim.reply.embedding import embedding
from llmdsim.tokenization.prompt import Prompt
from llmdsim.web import messages
from llmdsim.web.context import Context
from llmdsim.web.errors import ApiError
from llmdsim.web.pooling.admission import admitted
from llmdsim.web.pooling.bodies import BodyReader
from llmdsim.web.pooling.embeddings import dimensions
from llmdsim.web.pooling.encoding import float32, pack
from llmdsim.web.pooling.inputs import ids_of, rendered, tokenized
from llmdsim.web.pooling.reply import PoolingReply, json, refuse_too_many
from llmdsim.web.pooling.request import PoolingRequest
from llmdsim.web.prompt_forms import check_count
from llmdsim.web.takes import takes
from llmdsim.web.turns import Steps
from llmdsim.wire.request import Request

EmbeddingType = Literal["float", "binary", "ubinary", "base64"]
#: In the order of the reply.
TYPES: tuple[EmbeddingType, ...] = ("float", "binary", "ubinary", "base64")


class CohereInput(msgspec.Struct):
    """One of `inputs`: texts and images together."""

    content: list[dict[str, Any]]


class CohereRequest(PoolingRequest, kw_only=True):
    """A valid request: just one of `texts`, `images` and `inputs`. Any `input_type` is taken."""

    input_type: str | None = None
    texts: list[str] | None = None
    images: list[str] | None = None
    inputs: list[CohereInput] | None = None
    output_dimension: int | None = None
    embedding_types: list[EmbeddingType] | None = None
    truncate: Literal["NONE", "START", "END"] = "END"
    max_tokens: int | None = None

    def settle(self) -> None:
        given = [field for field in (self.texts, self.images, self.inputs) if field is not None]
        if len(given) != 1 or not given[0]:
            raise ApiError(400, "Exactly one of texts, images, or inputs must be given, and not be empty.")
        for item in self.inputs or ():
            messages.settle([{"role": "user", "content": item.content}])
        # What this API has in place of the other routes' fields.
        self.truncation_side = "left" if self.truncate == "START" else "right"
        self.truncate_prompt_tokens = None
        if self.truncate != "NONE":
            self.truncate_prompt_tokens = -1 if self.max_tokens is None else self.max_tokens
        if self.max_tokens is not None and self.max_tokens < 0:
            raise ApiError.parameter("max_tokens must not be negative.", "max_tokens", self.max_tokens)

    @property
    def contents(self) -> list[list[dict[str, Any]]]:
        """The parts of each of `images` or `inputs`."""
        if self.images is not None:
            return [[{"type": "image_url", "image_url": {"url": image}}] for image in self.images]
        return [item.content for item in self.inputs or ()]

    @property
    def shows_images(self) -> bool:
        """Whether there are any; all tokens are then billed as theirs (vLLM)."""
        return self.images is not None or any(
            part.get("type") == "image_url" for item in self.inputs or () for part in item.content
        )


class Cohere:
    """The `/v2/embed` route of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._bodies = BodyReader(CohereRequest)

    def mount(self, app: Klein) -> None:
        """Add the route."""
        app.route("/v2/embed", methods=["POST"], endpoint="/v2/embed")(self.embed)

    @takes(CohereRequest)
    def embed(self, request: Request) -> Deferred[None] | None:
        """Answer one request, now or later."""
        return self._context.turns.take(self._answer(request))

    def _answer(self, request: Request) -> Steps:
        context = self._context
        asked = yield from self._bodies.read(request)
        served = admitted(context, asked.model)
        size = dimensions(context, asked.output_dimension, "output_dimension")
        wanted = [kind for kind in TYPES if kind in (asked.embedding_types or ("float",))]
        if size % 8 and ("binary" in wanted or "ubinary" in wanted):
            message = "The dimensions of binary embeddings must be a multiple of 8."
            raise ApiError.parameter(message, "output_dimension", size)
        contents = asked.contents
        count = len(contents if asked.texts is None else asked.texts)
        check_count(count, "inputs", context.limits)
        refuse_too_many(count * size * len(wanted))
        texts = asked.texts
        if texts is None:
            texts = yield from rendered(
                context, [[{"role": "user", "content": content}] for content in contents]
            )
        prompts = yield from tokenized(context, asked, texts)
        _check_lengths(asked, prompts)
        reply = PoolingReply(context, request, served, "embd-", "", prompts)
        embeddings: dict[EmbeddingType, list[bytes]] = {kind: [] for kind in wanted}
        for place, prompt in enumerate(prompts):
            if place:
                yield
            ids = yield from ids_of(prompt)
            made = yield from embedding(ids, size)
            for kind, found in embeddings.items():
                found.append(_encoded(made, kind))
        images = reply.prompt_tokens if asked.shows_images else 0
        reply.respond(
            b'{"id":%b,"embeddings":{%b}%b,"meta":{"api_version":{"version":"2"},'
            b'"billed_units":{"input_tokens":%d,"image_tokens":%d}},"response_type":"embeddings_by_type"}'
            % (
                json(reply.head.id),
                b",".join(
                    b'"%b":[%b]' % (kind.encode(), b",".join(found)) for kind, found in embeddings.items()
                ),
                b"" if asked.texts is None else b',"texts":%b' % json(asked.texts),
                reply.prompt_tokens - images,
                images,
            )
        )


def _check_lengths(asked: CohereRequest, prompts: Sequence[Prompt]) -> None:
    """With `truncate` NONE the client's own bound refuses."""
    most = asked.max_tokens
    longest = max(map(len, prompts))
    if asked.truncate == "NONE" and most is not None and longest > most:
        message = f"An input of {longest} tokens exceeds max_tokens={most} with truncate=NONE."
        raise ApiError.parameter(message, "max_tokens", most)


def _encoded(vector: Sequence[float], kind: EmbeddingType) -> bytes:
    """A vector as JSON; binary ones have a bit for each number, the first the highest of its byte."""
    if kind == "float":
        return json(float32(vector))
    if kind == "base64":
        return b'"%b"' % b2a_base64(pack(vector, "float32", "little"), newline=False)
    bits = "".join("1" if number >= 0 else "0" for number in vector)
    packed = int(bits, 2).to_bytes(len(bits) // 8, "big")
    return json(list(packed) if kind == "ubinary" else [byte - 128 for byte in packed])
