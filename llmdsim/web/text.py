"""`POST /v1/completions`."""

from __future__ import annotations

import msgspec
from klein import Klein

from llmdsim.reply.ask import Ask
from llmdsim.tokenization.prompt import Prompt
from llmdsim.web.context import Context, content_type
from llmdsim.web.frames import TextFrames
from llmdsim.web.generation import Answer, asks_of, generate, ids_prompt, text_prompt
from llmdsim.web.logprobs import TextLogprobs
from llmdsim.web.reply_head import reply_head
from llmdsim.web.sampling import Sampling, sampling
from llmdsim.web.stream import ReplyStream
from llmdsim.web.text_request import TextRequest, decode_text, prompts
from llmdsim.web.wants import ChoiceWants, ReplyWants
from llmdsim.web.whole import WholeReply, text_body
from llmdsim.wire.request import Request


class Text:
    """The text completion route of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def mount(self, app: Klein) -> None:
        """Add the route."""
        app.route("/v1/completions", methods=["POST"], endpoint="text")(self.text)

    def text(self, request: Request) -> None:
        """Answer one text completion request, now or later."""
        context = self._context
        context.refuse_while_draining()
        text = decode_text(request.body, content_type(request))
        context.check_model(text.model)
        limits = context.limits
        asks: list[list[Ask]] = []
        choices: list[ChoiceWants] = []
        prompt_tokens = 0
        counted = None
        for given in prompts(text, limits):
            if isinstance(given, str):
                prompt = text_prompt(context, text, given)
            else:
                prompt = ids_prompt(context, text, Prompt(context.tokenizer, ids=given))
            sampled = sampling(text, len(prompt), limits)
            counted = sampled.prompt_logprobs
            prompt_tokens += len(prompt)
            asks.append(asks_of(context, prompt, prompt.text, sampled))
            choices += [self._choice(text, prompt, sampled) for _ in range(sampled.n)]
        wants = ReplyWants(
            choices=choices,
            prompt_tokens=prompt_tokens,
            token_ids=bool(text.return_token_ids),
            usage=context.always_usage or text.include_usage,
            continuous_usage=context.always_usage or text.continuous_usage,
            cached=context.config.enable_prompt_tokens_details,
            prompt_logprobs=counted,
        )
        head = reply_head(context, request, text.request_id)
        answer: Answer
        if text.stream:
            answer = ReplyStream(request, context.driver, TextFrames(head, wants.usage), wants)
        else:
            answer = WholeReply(request, context.driver, text_body(head, wants), wants)
        generate(context, asks, answer)

    def _choice(self, text: TextRequest, prompt: Prompt, sampled: Sampling) -> ChoiceWants:
        logprobs = None
        if sampled.logprobs is not None:
            logprobs = TextLogprobs(sampled.logprobs, self._context.shows_ids(text))
            if text.echo:
                logprobs.echo(prompt.ids, prompt.texts)
        lead = b""
        if text.echo and not text.return_token_ids:
            shown = prompt.text if prompt.text is not None else "".join(prompt.texts)
            lead = msgspec.json.encode(shown)[1:-1]
        # A streamed echo tells the prompt's ids unasked (vLLM).
        prompt_ids = bool(text.return_token_ids) or bool(text.echo and text.stream)
        return ChoiceWants(
            prompt, lead=lead, logprobs=logprobs, prompt_ids=prompt_ids, prompt_only=sampled.prompt_only
        )
