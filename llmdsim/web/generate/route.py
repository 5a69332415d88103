"""`POST /inference/v1/generate`: the route."""

from __future__ import annotations

from itertools import chain

import msgspec
from klein import Klein
from twisted.internet.defer import Deferred

from llmdsim.reply.plan import Plan
from llmdsim.tokenization.prompt import Prompt
from llmdsim.web.constraints import constraint_of
from llmdsim.web.context import Context, content_type
from llmdsim.web.encoder import encodings
from llmdsim.web.frames import NULL
from llmdsim.web.generate.body import generate_body
from llmdsim.web.generate.conversion import TokensRequest, refuse_too_many, sampled_of, text_of
from llmdsim.web.generate.derender import derender_plan
from llmdsim.web.generate.frames import GenerateFrames
from llmdsim.web.generate.logprobs import TokenLogprobs
from llmdsim.web.generate.request import GenerateRequest, checked, typed
from llmdsim.web.generate.scores import scores_json
from llmdsim.web.generation import Answer, asks_of, generate
from llmdsim.web.logprobs import ChatLogprobs, LogprobShape
from llmdsim.web.prompts import ids_json
from llmdsim.web.reply_head import reply_head
from llmdsim.web.sampling import Sampling
from llmdsim.web.stream import ReplyStream
from llmdsim.web.takes import takes
from llmdsim.web.text_request import prompts
from llmdsim.web.turns import LONG_BODY, Steps
from llmdsim.web.wants import ChoiceWants, ReplyWants
from llmdsim.web.whole import WholeReply
from llmdsim.wire.request import Request


class Generate:
    """The route of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def mount(self, app: Klein) -> None:
        """Add the route."""
        app.route("/inference/v1/generate", methods=["POST"], endpoint="generate")(self.generate)

    @takes(GenerateRequest)
    def generate(self, request: Request) -> Deferred[None] | None:
        """Answer one generate request, now or later."""
        return self._context.turns.take(self._answer(request))

    def _answer(self, request: Request) -> Steps:
        context = self._context
        context.refuse_unavailable()
        long = len(request.body) > LONG_BODY
        found = typed(request.body, content_type(request))
        if long:
            yield
        wanted = checked(found, request.body)
        if long:
            yield
        served = context.admit(request, wanted.model)
        refuse_too_many(wanted.sampling_params, context.config)
        text = text_of(wanted)
        plan = self._plan(wanted, text)
        (given,) = prompts(text, context.limits)
        assert not isinstance(given, str)
        prompt = Prompt.of_ids(context.tokenizer, given)
        sampled = sampled_of(wanted, text, prompt, context.limits)
        of_prompt = None if wanted.stream else sampled.prompt_logprobs
        if prompt.long and (context.echoes or of_prompt is not None):
            yield from prompt.lay_out()
        prompt_ids = (yield from ids_json(prompt)) if wanted.return_token_ids else NULL
        scores = yield from scores_json(wanted.sampling_params, prompt)
        # What hides reasoning hides ids and log probabilities as well (vLLM).
        hides = plan is not None and plan.reasoning == "hidden"
        choice = ChoiceWants(
            prompt,
            logprobs=None if hides else self._logprobs(wanted, sampled),
            prompt_ids=prompt_ids,
            parted=plan is not None and plan.parted,
        )
        wants = ReplyWants(
            choices=[choice] * sampled.n,
            prompt_tokens=len(prompt),
            token_ids=not hides,
            usage=text.include_usage,
            continuous_usage=text.continuous_usage,
            cached=context.config.enable_prompt_tokens_details,
            prompt_logprobs=of_prompt,
            vocab_size=context.limits.vocab_size,
        )
        head = reply_head(context, request, served, "generate-tokens-", wanted.request_id)
        if context.config.mm_encoder_only and wanted.features is not None:
            wants.ec_transfer = encodings(chain.from_iterable(wanted.features.mm_hashes.values()))
        placeholders = NULL
        if wanted.return_token_ids and wanted.features is not None:
            placeholders = msgspec.json.encode(wanted.features.mm_placeholders)
        asks = [asks_of(context, prompt, prompt, sampled, plan)]
        if context.stored is not None:
            asks = yield from context.stored.filled(asks)
        answer: Answer
        if wanted.stream:
            opening = b""
            if wanted.return_token_ids:
                opening = b'"prompt_token_ids":%b,' % prompt_ids
                if wanted.features is not None:
                    opening += b'"mm_placeholders":%b,' % placeholders
            frames = GenerateFrames(head.id, wants, wanted.output_mode == "text", opening)
            answer = ReplyStream(request, context.driver, frames, context.turns)
        else:
            body = generate_body(head, wants, wanted.output_mode, scores, placeholders)
            answer = WholeReply(request, context.driver, body, wants)
        generate(context, text, asks, answer, head)

    def _plan(self, wanted: GenerateRequest, text: TokensRequest) -> Plan | None:
        if wanted.output_mode == "derender":
            return derender_plan(self._context, wanted)
        return None if text.structured_outputs is None else Plan(constraint=constraint_of(text))

    def _logprobs(self, wanted: GenerateRequest, sampled: Sampling) -> LogprobShape | None:
        as_ids = self._context.config.return_tokens_as_token_ids
        vocab_size = self._context.limits.vocab_size
        count = sampled.logprobs
        # Chosen ids alone bring log probabilities to messages and to nothing else (vLLM).
        if count is None or (wanted.output_mode != "derender" and wanted.sampling_params.logprobs is None):
            return None
        if wanted.output_mode == "tokens":
            return TokenLogprobs(count, vocab_size)
        # A text's are a chat's, and list all that the engine looked at.
        return ChatLogprobs(max(count, 1) if wanted.output_mode == "text" else count, as_ids, vocab_size)
