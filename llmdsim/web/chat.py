"""`POST /v1/chat/completions`."""

from __future__ import annotations

import msgspec
from klein import Klein
from twisted.internet.defer import Deferred

from llmdsim.tokenization.chat import last_text
from llmdsim.web.chat_request import ChatRequest, decode_chat
from llmdsim.web.context import Context, content_type
from llmdsim.web.conversation import prepare
from llmdsim.web.encoder import encodings_of
from llmdsim.web.errors import ApiError
from llmdsim.web.frames import NULL, ChatFrames
from llmdsim.web.generation import Answer, asks_of, generate
from llmdsim.web.images import Images
from llmdsim.web.keep_alive import keep_alive
from llmdsim.web.logprobs import ChatLogprobs
from llmdsim.web.prompts import ids_json
from llmdsim.web.reply_head import reply_head
from llmdsim.web.stream import ReplyStream
from llmdsim.web.takes import takes
from llmdsim.web.turns import LONG_BODY, Steps
from llmdsim.web.wants import ChoiceWants, ReplyWants
from llmdsim.web.whole import WholeReply, chat_body
from llmdsim.wire.request import Request

#: Characters of a role that a reply may have: it is in every stream.
LONGEST_ROLE = 256


class Chat:
    """The chat route of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._images = Images(context.config)

    def mount(self, app: Klein) -> None:
        """Add the route."""
        app.route("/v1/chat/completions", methods=["POST"], endpoint="chat")(self.chat)

    @takes(ChatRequest)
    def chat(self, request: Request) -> Deferred[None] | None:
        """Answer one chat request, now or later."""
        return self._context.turns.take(self._answer(request))

    def _answer(self, request: Request) -> Steps:
        context = self._context
        context.refuse_unavailable()
        chat = decode_chat(request.body, content_type(request))
        if len(request.body) > LONG_BODY:
            yield
        served = context.admit(request, chat.model)
        image = context.config.omni and self._images.wanted(request, context.config)
        conversation = yield from prepare(context, chat, image)
        prompt, sampled, plan = conversation.prompt, conversation.sampled, conversation.plan
        role, lead = self._role_and_lead(chat)
        # What hides the text of tokens hides their ids and log probabilities as well (vLLM).
        hides = plan is not None and plan.reasoning == "hidden"
        logprobs = None
        if sampled.logprobs is not None and not hides:
            logprobs = ChatLogprobs(sampled.logprobs, context.shows_ids(chat), context.limits.vocab_size)
        show_ids = bool(chat.return_token_ids) and not hides
        prompt_ids = (yield from ids_json(prompt)) if show_ids else NULL
        choice = ChoiceWants(
            prompt,
            lead=lead,
            logprobs=logprobs,
            prompt_ids=prompt_ids,
            parted=plan is not None and plan.parted,
        )
        head = reply_head(context, request, served, "chatcmpl-", chat.request_id)
        wants = ReplyWants(
            choices=[choice] * sampled.n,
            prompt_tokens=len(prompt),
            token_ids=show_ids,
            usage=context.always_usage or chat.include_usage,
            continuous_usage=context.always_usage or chat.continuous_usage,
            cached=context.config.enable_prompt_tokens_details,
            reasoning=bool(context.config.reasoning_parser),
            ec_transfer=encodings_of(context.config, chat),
            prompt_logprobs=sampled.prompt_logprobs,
            vocab_size=context.limits.vocab_size,
        )
        asks = [asks_of(context, prompt, conversation.echoed, sampled, plan)]
        if context.stored is not None:
            asks = yield from context.stored.filled(asks)
        answer: Answer
        if chat.stream:
            answer = ReplyStream(request, context.driver, ChatFrames(head, role, wants), context.turns)
            keep_alive(context, request)
        else:
            answer = WholeReply(request, context.driver, chat_body(head, role, wants), wants)
        generate(context, chat, asks, answer, head)

    def _role_and_lead(self, chat: ChatRequest) -> tuple[str, bytes]:
        """The reply's role, and as the inside of a JSON string what `echo` puts before its text.

        Without a generation prompt the reply goes on with the last message, in whose role it then is (vLLM).
        """
        role = self._context.config.response_role
        if not chat.add_generation_prompt:
            role = chat.messages[-1]["role"]
            if len(role) > LONGEST_ROLE:
                message = f"A role that replies take over is at most {LONGEST_ROLE} characters long."
                raise ApiError.parameter(message, "messages")
        if not chat.echo or chat.messages[-1]["role"] != role:
            return role, b""
        return role, msgspec.json.encode(last_text(chat.messages))[1:-1]
