"""`POST /v1/messages` and `POST /v1/messages/count_tokens`."""

from __future__ import annotations

from klein import Klein
from twisted.internet.defer import Deferred

from llmdsim.web.anthropic.conversion import chat_request
from llmdsim.web.anthropic.events import MessageFrames
from llmdsim.web.anthropic.message import message_body
from llmdsim.web.anthropic.reading import decode
from llmdsim.web.anthropic.request import CountTokensRequest, MessagesRequest
from llmdsim.web.context import Context, content_type
from llmdsim.web.context_length import check_context
from llmdsim.web.conversation import chat_prompt, prepare
from llmdsim.web.encoder import encodings_of
from llmdsim.web.generation import Answer, asks_of, generate
from llmdsim.web.plans import plan_of
from llmdsim.web.reply_head import reply_head
from llmdsim.web.stream import ReplyStream
from llmdsim.web.takes import takes
from llmdsim.web.turns import LONG_BODY, Steps
from llmdsim.web.wants import ChoiceWants, ReplyWants
from llmdsim.web.whole import WholeReply
from llmdsim.wire.request import Request


class Messages:
    """The Messages routes of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def mount(self, app: Klein) -> None:
        """Add the routes."""
        app.route("/v1/messages", methods=["POST"], endpoint="messages")(self.messages)
        app.route("/v1/messages/count_tokens", methods=["POST"], endpoint="count_tokens")(self.count_tokens)

    @takes(MessagesRequest)
    def messages(self, request: Request) -> Deferred[None] | None:
        """Answer one request for a message, now or later."""
        return self._context.turns.take(self._answer(request))

    @takes(CountTokensRequest)
    def count_tokens(self, request: Request) -> Deferred[None] | None:
        """Count the tokens of one conversation, now or later."""
        return self._context.turns.take(self._count(request))

    def _answer(self, request: Request) -> Steps:
        context = self._context
        context.refuse_unavailable()
        asked = decode(MessagesRequest, request.body, content_type(request))
        if len(request.body) > LONG_BODY:
            yield
        served = context.admit(request, asked.model)
        chat = chat_request(asked, context.merges_system)
        conversation = yield from prepare(context, chat)
        prompt, plan = conversation.prompt, conversation.plan
        wants = ReplyWants(
            choices=[ChoiceWants(prompt, parted=plan is not None and plan.parted)],
            prompt_tokens=len(prompt),
            cached=context.config.enable_prompt_tokens_details,
            ec_transfer=encodings_of(context.config, chat),
        )
        head = reply_head(context, request, served, "chatcmpl-", "")
        asks = [asks_of(context, prompt, conversation.echoed, conversation.sampled, plan)]
        if context.stored is not None:
            asks = yield from context.stored.filled(asks)
        answer: Answer
        if asked.stream:
            answer = ReplyStream(request, context.driver, MessageFrames(head, wants), context.turns)
        else:
            answer = WholeReply(request, context.driver, message_body(head, wants), wants)
        generate(context, chat, asks, answer, head)

    def _count(self, request: Request) -> Steps:
        context = self._context
        context.refuse_unavailable()
        asked = decode(CountTokensRequest, request.body, content_type(request))
        if len(request.body) > LONG_BODY:
            yield
        context.admit(request, asked.model)
        chat = chat_request(asked, context.merges_system)
        prompt, _ = yield from chat_prompt(context, chat)
        count = len(prompt)
        check_context(chat, count, context.limits)
        # For what it refuses.
        plan_of(context, chat)
        body = b'{"input_tokens":%d,"context_management":{"original_input_tokens":%d}}' % (count, count)
        request.respond(200, body)
