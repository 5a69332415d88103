"""`POST /v1/completions`."""

from __future__ import annotations

from collections.abc import Generator

import msgspec
from klein import Klein
from twisted.internet.defer import Deferred

from llmdsim.reply.ask import Ask
from llmdsim.reply.plan import Plan
from llmdsim.tokenization.prompt import Prompt
from llmdsim.web.constraints import constraint_of, is_constrained
from llmdsim.web.context import Context, content_type
from llmdsim.web.frames import NULL, TextFrames
from llmdsim.web.generation import Answer, asks_of, generate
from llmdsim.web.keep_alive import keep_alive
from llmdsim.web.logprobs import TextLogprobs
from llmdsim.web.prompts import ids_json, is_short, prompt_of
from llmdsim.web.reply_head import reply_head
from llmdsim.web.sampling import Sampling, sampling
from llmdsim.web.stream import ReplyStream
from llmdsim.web.takes import takes
from llmdsim.web.text_request import TextRequest, checked, decode_text, prompts, typed
from llmdsim.web.turns import LONG_BODY, Steps
from llmdsim.web.wants import ChoiceWants, ReplyWants
from llmdsim.web.whole import WholeReply, text_body
from llmdsim.wire.request import Request

#: Prompts of one request that are looked at in half a millisecond.
PROMPTS_AT_ONCE = 64


class Text:
    """The text completion route of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def mount(self, app: Klein) -> None:
        """Add the route."""
        app.route("/v1/completions", methods=["POST"], endpoint="text")(self.text)

    @takes(TextRequest)
    def text(self, request: Request) -> Deferred[None] | None:
        """Answer one text completion request, now or later."""
        return self._context.turns.take(self._answer(request))

    def _answer(self, request: Request) -> Steps:
        context = self._context
        context.refuse_unavailable()
        if len(request.body) > LONG_BODY:
            text = yield from decode_long(request)
        else:
            text = decode_text(request.body, content_type(request))
        served = context.admit(request, text.model)
        limits = context.limits
        plan = Plan(constraint=constraint_of(text)) if is_constrained(text) else None
        asks: list[list[Ask]] = []
        choices: list[ChoiceWants] = []
        prompt_tokens = 0
        counted = None
        for place, given in enumerate(prompts(text, limits), start=1):
            if place % PROMPTS_AT_ONCE == 0:
                yield
            if isinstance(given, str) and is_short(context, text, given):
                prompt = Prompt(context.tokenizer, given)
                if context.caches:
                    prompt.number()
            else:
                prompt = yield from prompt_of(context, text, given)
            sampled = sampling(text, len(prompt), limits)
            counted = sampled.prompt_logprobs
            prompt_tokens += len(prompt)
            echoed = prompt
            if context.echoes:
                echoed = prompt.bare
                if echoed.long:
                    yield from echoed.lay_out()
            if prompt.long and _shows_prompt(text, prompt, sampled):
                yield from prompt.lay_out()
            # A streamed echo tells the prompt's ids unasked (vLLM).
            show_ids = text.return_token_ids or (text.echo and text.stream)
            prompt_ids = (yield from ids_json(prompt)) if show_ids else NULL
            asks.append(asks_of(context, prompt, echoed, sampled, plan))
            lead = _lead(text, prompt)
            choices += [self._choice(text, prompt, sampled, prompt_ids, lead) for _ in range(sampled.n)]
        if context.stored is not None:
            asks = yield from context.stored.filled(asks)
        wants = ReplyWants(
            choices=choices,
            prompt_tokens=prompt_tokens,
            token_ids=bool(text.return_token_ids),
            usage=context.always_usage or text.include_usage,
            continuous_usage=context.always_usage or text.continuous_usage,
            cached=context.config.enable_prompt_tokens_details,
            prompt_logprobs=counted,
            vocab_size=context.limits.vocab_size,
        )
        head = reply_head(context, request, served, "cmpl-", text.request_id)
        answer: Answer
        if text.stream:
            answer = ReplyStream(request, context.driver, TextFrames(head, wants), context.turns)
            keep_alive(context, request)
        else:
            answer = WholeReply(request, context.driver, text_body(head, wants), wants)
        generate(context, text, asks, answer, head)

    def _choice(
        self, text: TextRequest, prompt: Prompt, sampled: Sampling, prompt_ids: bytes, lead: bytes
    ) -> ChoiceWants:
        logprobs = None
        if sampled.logprobs is not None:
            logprobs = TextLogprobs(
                sampled.logprobs, self._context.shows_ids(text), self._context.limits.vocab_size
            )
            if text.echo:
                logprobs.echo(prompt)
        return ChoiceWants(
            prompt, lead=lead, logprobs=logprobs, prompt_ids=prompt_ids, prompt_only=sampled.prompt_only
        )


def _lead(text: TextRequest, prompt: Prompt) -> bytes:
    """What an echo puts before the reply, as the inside of a JSON string."""
    if not text.echo or text.return_token_ids:
        return b""
    shown = prompt.text if prompt.text is not None else prompt.layout.text
    return msgspec.json.encode(shown)[1:-1]


def decode_long(request: Request) -> Generator[None, None, TextRequest]:
    """The request in a body that is long, in steps."""
    found = typed(request.body, content_type(request))
    yield
    text = checked(found, request.body)
    yield
    return text


def _shows_prompt(text: TextRequest, prompt: Prompt, sampled: Sampling) -> bool:
    """Whether the reply shows the prompt's tokens, or the text of one of ids."""
    if sampled.prompt_logprobs is not None:
        return True
    return bool(text.echo) and (prompt.text is None or sampled.logprobs is not None)
