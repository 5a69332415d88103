"""`POST /v1/chat/completions`."""

from __future__ import annotations

import msgspec
from klein import Klein
from msgspec.structs import replace
from twisted.internet.defer import Deferred

from llmdsim.tokenization.chat import last_text
from llmdsim.tokenization.prompt import Prompt
from llmdsim.web.chat_request import ChatRequest
from llmdsim.web.context import Context, content_type
from llmdsim.web.conversation import prepare
from llmdsim.web.encoder import encodings_of
from llmdsim.web.errors import ApiError
from llmdsim.web.frames import NULL, ChatFrames
from llmdsim.web.generation import Answer, asks_of, generate
from llmdsim.web.images import Images
from llmdsim.web.keep_alive import keep_alive
from llmdsim.web.known_options import KnownChat, KnownChats, Options
from llmdsim.web.logprobs import ChatLogprobs
from llmdsim.web.prompts import ids_json
from llmdsim.web.reply_head import reply_head
from llmdsim.web.sampling import Sampling, sampling
from llmdsim.web.stream import ReplyStream
from llmdsim.web.takes import takes
from llmdsim.web.turns import LONG_BODY, Steps
from llmdsim.web.wants import ChoiceWants, ReplyWants
from llmdsim.web.whole import WholeReply, chat_body, plain_chat_body
from llmdsim.wire.request import Request

#: Characters of a role that a reply may have: it is in every stream.
LONGEST_ROLE = 256


class Chat:
    """The chat route of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._images = Images(context.config)
        self._known = KnownChats(self._options)

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
        chat = self._known.decode(request.body, content_type(request))
        if len(request.body) > LONG_BODY:
            yield
        served = context.admit(request, chat.model)
        image = context.config.omni and self._images.wanted(request, context.config)
        conversation = yield from prepare(context, chat, image)
        prompt, sampled, plan = conversation.prompt, conversation.sampled, conversation.plan
        if isinstance(chat, KnownChat):
            role, known = context.config.response_role, chat.options
            wants = replace(known.wants, choices=[ChoiceWants(prompt)], prompt_tokens=len(prompt))
        else:
            known = None
            role, lead = self._role_and_lead(chat)
            # What hides the text of tokens hides their ids and log probabilities as well (vLLM).
            hides = plan is not None and plan.reasoning == "hidden"
            logprobs = None
            if sampled.logprobs is not None and not hides:
                logprobs = ChatLogprobs(sampled.logprobs, context.shows_ids(chat), context.limits.vocab_size)
            show_ids = bool(chat.return_token_ids) and not hides
            choice = ChoiceWants(
                prompt,
                lead=lead,
                logprobs=logprobs,
                prompt_ids=(yield from ids_json(prompt)) if show_ids else NULL,
                parted=plan is not None and plan.parted,
            )
            wants = self._wants(chat, sampled, [choice] * sampled.n, len(prompt), show_ids)
        head = reply_head(context, request, served, "chatcmpl-", chat.request_id)
        if known is not None and sampled is known.sampled:
            asks = [[replace(known.ask, prompt=prompt, echoed=conversation.echoed)]]
        else:
            asks = [asks_of(context, prompt, conversation.echoed, sampled, plan)]
        if context.stored is not None:
            asks = yield from context.stored.filled(asks)
        answer: Answer
        if chat.stream:
            answer = ReplyStream(request, context.driver, ChatFrames(head, role, wants), context.turns)
            keep_alive(context, request)
        else:
            body = chat_body if known is None else plain_chat_body
            answer = WholeReply(request, context.driver, body(head, role, wants), wants)
        generate(context, chat, asks, answer, head)

    def _wants(
        self,
        chat: ChatRequest,
        sampled: Sampling,
        choices: list[ChoiceWants],
        prompt_tokens: int,
        show_ids: bool,
    ) -> ReplyWants:
        context, config = self._context, self._context.config
        return ReplyWants(
            choices=choices,
            prompt_tokens=prompt_tokens,
            token_ids=show_ids,
            usage=context.always_usage or chat.include_usage,
            continuous_usage=context.always_usage or chat.continuous_usage,
            cached=config.enable_prompt_tokens_details,
            reasoning=bool(config.reasoning_parser),
            ec_transfer=encodings_of(config, chat),
            prompt_logprobs=sampled.prompt_logprobs,
            vocab_size=context.limits.vocab_size,
        )

    def _options(self, chat: ChatRequest) -> Options | None:
        """What the options of an everyday chat come to; None where there is more to find out each time."""
        context, config = self._context, self._context.config
        asked, _ = chat.asked_max_tokens
        if asked is None or config.reasoning_parser or config.omni or config.mm_encoder_only:
            return None
        sampled = sampling(chat, 1, context.limits)
        nothing = Prompt(context.tokenizer, "")
        return Options(
            sampled,
            context.limits.max_model_len - asked,
            self._longest_text(),
            asks_of(context, nothing, nothing, sampled)[0],
            self._wants(chat, sampled, [], 0, False),
        )

    def _longest_text(self) -> int:
        """Characters of a text that needs no steps, and that nobody refuses before it is counted."""
        context = self._context
        if context.templates is not None or context.render_service is not None:
            return -1
        tokenizer = context.tokenizer
        return min(tokenizer.part, context.limits.max_model_len * tokenizer.longest_piece)

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
