"""The routes of `/v1/responses`."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Annotated, Any, Literal
from zlib import crc32

import msgspec
from klein import Klein
from twisted.internet.defer import Deferred

from llmdsim.tokenization.prompt import Prompt
from llmdsim.tokenization.steps import Step
from llmdsim.web.chat_request import ChatRequest
from llmdsim.web.context import Context, content_type
from llmdsim.web.conversation import prepare
from llmdsim.web.decoding import Problem, refusal
from llmdsim.web.errors import ApiError, shown
from llmdsim.web.generation import Answer, asks_of, generate
from llmdsim.web.prompts import ids_json
from llmdsim.web.query import read_query
from llmdsim.web.reply_head import ReplyHead
from llmdsim.web.responses.background import Background
from llmdsim.web.responses.conversion import to_chat
from llmdsim.web.responses.frames import ResponseFrames
from llmdsim.web.responses.logprobs import ResponseLogprobs
from llmdsim.web.responses.request import ResponsesRequest, decode_responses, response_id
from llmdsim.web.responses.response import Response, raw_message
from llmdsim.web.responses.response_object import ResponseObject
from llmdsim.web.responses.store import Store, Stored
from llmdsim.web.responses.whole import WholeResponse
from llmdsim.web.stream import ReplyStream
from llmdsim.web.takes import takes
from llmdsim.web.turns import LONG_BODY, Steps
from llmdsim.web.wants import ChoiceWants, ReplyWants
from llmdsim.wire.request import Request

json = msgspec.json.encode


class RetrieveQuery(msgspec.Struct):
    """What a response is asked for by."""

    stream: bool | None = False
    starting_after: int | None = None


class ListQuery(msgspec.Struct):
    """Which of a response's input items are asked for."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=100)] = 20
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None


class Responses:
    """The routes of one rank, and the responses it keeps."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._store = Store(context.config.max_stored_responses)

    def mount(self, app: Klein) -> None:
        """Add the routes."""
        one = "/v1/responses/<response_id>"
        for path, method, handler in (
            ("/v1/responses", "POST", self.create),
            (one, "GET", self.retrieve),
            (one, "DELETE", self.delete),
            (f"{one}/cancel", "POST", self.cancel),
            (f"{one}/input_items", "GET", self.input_items),
        ):
            app.route(path, methods=[method], endpoint=f"{method} {path}")(handler)

    # --- making one

    @takes(ResponsesRequest)
    def create(self, request: Request) -> Deferred[None] | None:
        """Answer one request, now or later."""
        return self._context.turns.take(self._create(request))

    def _create(self, request: Request) -> Steps:
        context = self._context
        context.refuse_unavailable()
        asked = decode_responses(request.body, content_type(request))
        if len(request.body) > LONG_BODY:
            yield
        served = context.admit(request, asked.model)
        self._refuse(asked)
        history = []
        if asked.previous_response_id is not None:
            history = self._store.get(asked.previous_response_id).history()
        chat = to_chat(asked, history)
        self._check_budget(asked)
        conversation = yield from prepare(context, chat)
        prompt, sampled, plan = conversation.prompt, conversation.sampled, conversation.plan
        # What hides the text of tokens hides their log probabilities as well (vLLM).
        hides = plan is not None and plan.reasoning == "hidden"
        shape = None
        if sampled.logprobs is not None and not hides:
            shape = ResponseLogprobs(sampled.logprobs, context.shows_ids(chat), context.limits.vocab_size)
        choice = ChoiceWants(prompt, logprobs=shape, parted=plan is not None and plan.parted)
        wants = ReplyWants(choices=[choice], prompt_tokens=len(prompt))
        head = ReplyHead(response_id(asked), int(time.time()), served, context.fingerprint_json)
        raw = (yield from _raw_prompt(prompt)) if asked.enable_response_messages else None
        response = Response(asked, ResponseObject(asked, sampled, head), wants, shape, raw)
        asks = [asks_of(context, prompt, conversation.echoed, sampled, plan)]
        if context.stored is not None:
            asks = yield from context.stored.filled(asks)
        if asked.background:
            stored, background = self._background(request, asked, chat, response)
            generate(context, chat, asks, background, head)
            self._store.put(stored)
        else:
            generate(context, chat, asks, self._foreground(request, asked, chat, response), head)

    def _refuse(self, asked: ResponsesRequest) -> None:
        if asked.background and not self._store.enabled:
            message = "Nothing is stored here (--max-stored-responses 0), so there is no background mode."
            raise ApiError(400, message, type="invalid_request_error", param="background")
        if asked.previous_input_messages and asked.previous_response_id:
            message = "Only one of `previous_input_messages` and `previous_response_id` can be set."
            raise ApiError(400, message, type="invalid_request_error", param="previous_response_id")

    def _check_budget(self, asked: ResponsesRequest) -> None:
        # As for chat, whose field has another name.
        most, context = asked.max_output_tokens, self._context.limits.max_model_len
        if most is not None and most > context:
            message = f"max_output_tokens={shown(most)} cannot be greater than max_model_len={context}."
            raise ApiError.parameter(message, "max_output_tokens", most)

    def _foreground(
        self, request: Request, asked: ResponsesRequest, chat: ChatRequest, response: Response
    ) -> Answer:
        context, store = self._context, self._store

        def keep(body: bytes) -> None:
            store.put(Stored(response.object.id, chat.messages, asked.input, body))

        kept = keep if asked.store and store.enabled else None
        if asked.stream:
            return ReplyStream(request, context.driver, ResponseFrames(response, kept), context.turns)
        return WholeResponse(request, context.driver, response, kept)

    def _background(
        self, request: Request, asked: ResponsesRequest, chat: ChatRequest, response: Response
    ) -> tuple[Stored, Background]:
        context, store = self._context, self._store

        def keep(body: bytes) -> None:
            stored.body = body
            if store.holds(stored):
                store.put(stored)

        background = Background(request, context.driver, context.turns, response, bool(asked.stream), keep)
        stored = Stored(response.object.id, chat.messages, asked.input, background=background)
        return stored, background

    # --- what became of one

    def retrieve(self, request: Request, response_id: str) -> None:
        """A stored response as it is by now; with `?stream=true` its events, past and future."""
        stored = self._store.get(response_id)
        query = read_query(RetrieveQuery, request)
        background = stored.background
        if query.stream:
            if background is None:
                message = "Only a response in the background can be streamed again."
                raise ApiError(400, message, type="invalid_request_error", param="stream")
            background.follow(request, -1 if query.starting_after is None else query.starting_after)
        elif background is None or background.ended:
            request.respond(200, stored.body)
        else:
            request.respond(200, background.now())

    def cancel(self, request: Request, response_id: str) -> None:
        """End a response in the background before its time."""
        stored = self._store.get(response_id)
        background = stored.background
        if background is None or background.ended:
            message = "Cannot cancel a synchronous response, or one that has ended."
            raise ApiError(400, message, type="invalid_request_error", param="response_id")
        background.cancel()
        request.respond(200, stored.body)

    def delete(self, request: Request, response_id: str) -> None:
        """Forget a response, and end it if it is being made in the background."""
        stored = self._store.get(response_id)
        self._store.discard(response_id)
        if stored.background is not None and not stored.background.ended:
            stored.background.cancel()
        request.respond(200, json({"id": response_id, "object": "response", "deleted": True}))

    def input_items(self, request: Request, response_id: str) -> None:
        """The items that were sent as input, the last ones first if not told otherwise."""
        items = _listed(response_id, self._store.get(response_id).items)
        query = read_query(ListQuery, request)
        if query.order == "desc":
            items.reverse()
        if query.after is not None:
            ids = [item["id"] for item in items]
            if query.after not in ids:
                problem = Problem("value_error", ("after",), "there is no such item", query.after)
                raise refusal([problem], "query")
            del items[: ids.index(query.after) + 1]
        page = items[: query.limit]
        answer = {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": len(items) > query.limit,
        }
        request.respond(200, json(answer))


def _raw_prompt(prompt: Prompt) -> Generator[Step, None, bytes]:
    ids = yield from ids_json(prompt)
    return raw_message(prompt.text if prompt.text is not None else "".join(prompt.texts), ids)


def _listed(response_id: str, items: Any) -> list[dict[str, Any]]:
    """Input as items that each have an id."""
    if isinstance(items, str):
        content = [{"type": "input_text", "text": items}]
        items = [{"type": "message", "role": "user", "status": "completed", "content": content}]
    seed = crc32(response_id.encode())
    found = []
    for index, item in enumerate(items):
        kind = item.get("type") or "message"
        prefix = {"message": "msg", "reasoning": "rs"}.get(kind, "fc")
        made = item.get("id") or f"{prefix}_{seed:08x}{index:08x}"
        found.append({**item, "type": kind, "id": made})
    return found
