"""The render routes: what a request would ask of the engine, and no answer to it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from klein import Klein
from twisted.internet.defer import Deferred

from llmdsim.web.anthropic.conversion import chat_request
from llmdsim.web.anthropic.reading import decode
from llmdsim.web.anthropic.request import MessagesRequest
from llmdsim.web.chat_request import ChatRequest, decode_chat
from llmdsim.web.context import Context, Served, content_type
from llmdsim.web.conversation import prepare
from llmdsim.web.errors import ApiError
from llmdsim.web.parse_context import context_of_chat
from llmdsim.web.prompts import prompt_of
from llmdsim.web.rendered import rendered
from llmdsim.web.reply_head import reply_head
from llmdsim.web.responses.conversion import to_chat
from llmdsim.web.responses.request import ResponsesRequest, decode_responses, response_id
from llmdsim.web.sampling import sampling
from llmdsim.web.takes import takes
from llmdsim.web.text import decode_long
from llmdsim.web.text_request import TextRequest, decode_text, prompts
from llmdsim.web.token_requests import MOST_TOKENS
from llmdsim.web.turns import LONG_BODY, Steps
from llmdsim.wire.request import Request

#: What is told of a chat and not of a response (vLLM).
_NOT_OF_RESPONSES = MappingProxyType(dict.fromkeys(("reasoning_ended", "parse_context", "stream_options")))

#: Prompts of one request that are rendered in half a millisecond.
PROMPTS_AT_ONCE = 16


class Render:
    """The render routes of one rank. Always there, where vLLM needs `--enable-scale-out` for them."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def mount(self, app: Klein) -> None:
        """Add the routes."""
        app.route("/v1/chat/completions/render", methods=["POST"], endpoint="render-chat")(self.chat)
        app.route("/v1/completions/render", methods=["POST"], endpoint="render-text")(self.text)
        app.route("/v1/messages/render", methods=["POST"], endpoint="render-message")(self.message)
        app.route("/v1/responses/render", methods=["POST"], endpoint="render-response")(self.response)

    @takes(ChatRequest)
    def chat(self, request: Request) -> Deferred[None] | None:
        """One object for a conversation."""
        return self._context.turns.take(self._chat(request))

    @takes(TextRequest)
    def text(self, request: Request) -> Deferred[None] | None:
        """A list with an object for each prompt."""
        return self._context.turns.take(self._text(request))

    @takes(MessagesRequest)
    def message(self, request: Request) -> Deferred[None] | None:
        """One object for a conversation in Anthropic's form."""
        return self._context.turns.take(self._message(request))

    @takes(ResponsesRequest)
    def response(self, request: Request) -> Deferred[None] | None:
        """One object for a request of the Responses API."""
        return self._context.turns.take(self._response(request))

    def _chat(self, request: Request) -> Steps:
        context = self._context
        chat = decode_chat(request.body, content_type(request))
        if len(request.body) > LONG_BODY:
            yield
        served = context.serving(chat.model)
        _refuse_beam_search(chat)
        yield from self._rendered(request, chat, chat_id(context, request, served, chat.request_id))

    def _message(self, request: Request) -> Steps:
        context = self._context
        asked = decode(MessagesRequest, request.body, content_type(request))
        if len(request.body) > LONG_BODY:
            yield
        served = context.serving(asked.model)
        yield from self._rendered(
            request, chat_request(asked, context.merges_system), chat_id(context, request, served, "")
        )

    def _response(self, request: Request) -> Steps:
        asked = decode_responses(request.body, content_type(request))
        if len(request.body) > LONG_BODY:
            yield
        self._context.serving(asked.model)
        if asked.previous_response_id is not None:
            message = "`previous_response_id` is not supported by the render endpoint."
            raise ApiError(400, message, type="invalid_request_error", param="previous_response_id")
        yield from self._rendered(request, to_chat(asked), response_id(asked), _NOT_OF_RESPONSES)

    def _rendered(
        self,
        request: Request,
        chat: ChatRequest,
        request_id: str,
        without: Mapping[str, None] = MappingProxyType({}),
    ) -> Steps:
        """Answer with what a chat is rendered to; the keys of `without` are null."""
        context = self._context
        conversation = yield from prepare(context, chat)
        if conversation.prompt.long:
            yield from conversation.prompt.lay_out()
        more = {**context_of_chat(context, chat, conversation), **without}
        body = yield from rendered(chat, request_id, conversation.prompt, conversation.sampled, more)
        self._respond(request, body)

    def _text(self, request: Request) -> Steps:
        context = self._context
        if len(request.body) > LONG_BODY:
            text = yield from decode_long(request)
        else:
            text = decode_text(request.body, content_type(request))
        served = context.serving(text.model)
        _refuse_beam_search(text)
        base_id = reply_head(context, request, served, "cmpl-", text.request_id).id
        wanted = prompts(text, context.limits)
        tokens = 0
        bodies = []
        for index, given in enumerate(wanted):
            if index % PROMPTS_AT_ONCE == PROMPTS_AT_ONCE - 1:
                yield
            prompt = yield from prompt_of(context, text, given)
            sampled = sampling(text, len(prompt), context.limits)
            tokens += len(prompt)
            if tokens > MOST_TOKENS:
                raise ApiError(400, f"These prompts have more than {MOST_TOKENS} tokens.", param="prompt")
            request_id = base_id if len(wanted) == 1 else f"{base_id}-{index}"
            bodies.append((yield from rendered(text, request_id, prompt, sampled)))
        self._respond(request, b"[%b]" % b",".join(bodies))

    def _respond(self, request: Request, body: bytes) -> None:
        # Routers look for the pod here too, as llm-d-inference-sim tells it.
        request.common_headers += self._context.reply_headers
        request.respond(200, body)


def chat_id(context: Context, request: Request, served: Served, body_id: str) -> str:
    """The id that the answer to a chat would have."""
    return reply_head(context, request, served, "chatcmpl-", body_id).id


def _refuse_beam_search(request: ChatRequest | TextRequest) -> None:
    if request.use_beam_search:
        raise ApiError(400, "Beam search is not supported by the render endpoint.")
