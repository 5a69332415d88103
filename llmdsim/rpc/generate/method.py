"""`Generate`: the method."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, NamedTuple

from msgspec.structs import asdict, replace
from twisted.internet.defer import Deferred

from llmdsim.reply.ask import Ask
from llmdsim.reply.plan import Plan
from llmdsim.rpc.call import call_id
from llmdsim.rpc.generate.conversion import request_of, text_input
from llmdsim.rpc.generate.frames import GenerateFrames
from llmdsim.rpc.generate.known import LONGEST_CALL, KnownCalls, KnownTokens
from llmdsim.rpc.generate.logprobs import OutputLogprobs, input_logprobs
from llmdsim.rpc.generate.whole import WholeGenerate, whole_messages
from llmdsim.rpc.message_form import MessageForm
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.rpc.prompt_ids import check_ids, prompt_ids
from llmdsim.tokenization.prompt import Prompt
from llmdsim.tokenization.steps import at_once
from llmdsim.web.constraints import constraint_of
from llmdsim.web.context import Context
from llmdsim.web.context_length import check_budget
from llmdsim.web.errors import ApiError
from llmdsim.web.generate.conversion import TokensRequest, sampled_of, text_of
from llmdsim.web.generate.request import GenerateRequest
from llmdsim.web.generation import MOST_LISTED, Answer, asks_of, generate
from llmdsim.web.prompt_forms import separate
from llmdsim.web.prompts import prompt_of
from llmdsim.web.reply_head import ReplyHead
from llmdsim.web.stream import ReplyStream
from llmdsim.web.turns import LONG_BODY, Steps
from llmdsim.web.wants import ChoiceWants, ReplyWants
from llmdsim.wire.request import Request


class Wanted(NamedTuple):
    """What a call came to: its one prompt, as `of_prompt` tells of it, and what each choice is asked for."""

    asked: TokensRequest
    prompt: Prompt
    of_prompt: bytes
    asks: list[Ask]
    logprobs: OutputLogprobs | None = None


class Generate:
    """The method of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known = KnownCalls(self._work_out)

    def generate(self, request: Request, asked: pb.GenerateRequest) -> Deferred[None] | None:
        """Answer one call, now or later."""
        return self._context.turns.take(self._answer(request, asked))

    def _answer(self, request: Request, asked: pb.GenerateRequest) -> Steps:
        context = self._context
        context.refuse_unavailable()
        ids: list[int] = []
        if asked.HasField("tokenized"):
            ids = yield from prompt_ids(asked.tokenized, context.limits)
            asked.ClearField("tokenized")
        request_id = call_id(request, asked.request_id)
        known = None
        if ids and len(request.body) <= LONGEST_CALL:
            asked.ClearField("request_id")
            known = self._known.find(asked)
        if known is not None and len(ids) <= known.longest_prompt:
            served = context.admit(request, None, MessageForm(asked.stream))
            separate(ids, "input_ids", context.limits)  # type: ignore[arg-type]
            prompt = Prompt.of_ids(context.tokenizer, ids)
            wanted = Wanted(known, prompt, b"", [replace(known.ask, prompt=prompt, echoed=prompt)])
        else:
            converted = request_of(asked, ids)
            if len(request.body) > LONG_BODY:
                yield
            served = context.admit(request, None, MessageForm(asked.stream))
            wanted = yield from self._wanted(asked, converted)
            prompt = wanted.prompt
        echoed = prompt.bare
        if context.echoes and echoed.long:
            yield from echoed.lay_out()
        wants = ReplyWants(
            choices=[ChoiceWants(prompt, logprobs=wanted.logprobs)] * len(wanted.asks),
            prompt_tokens=len(prompt),
            token_ids=True,
        )
        head = ReplyHead(request_id, int(time.time()), served, context.fingerprint_json)
        asks = [wanted.asks]
        if context.stored is not None:
            asks = yield from context.stored.filled(asks)
        answer: Answer
        if asked.stream:
            frames = GenerateFrames(request, wants, wanted.of_prompt)
            answer = ReplyStream(request, context.driver, frames, context.turns)
        else:
            answer = WholeGenerate(request, context.driver, whole_messages(wants, wanted.of_prompt), wants)
        generate(context, wanted.asked, asks, answer, head)

    def _wanted(self, asked: pb.GenerateRequest, converted: GenerateRequest) -> Generator[Any, None, Wanted]:
        """What a call comes to that is not known. Raises ApiError 400."""
        context = self._context
        limits = context.limits
        self._refuse_other_rank(asked)
        text = text_of(converted)
        constraint = None if text.structured_outputs is None else constraint_of(text)
        prompt = yield from self._prompt(asked, converted.token_ids)
        sampled = sampled_of(converted, text, prompt, limits)
        params = converted.sampling_params
        of_prompt = yield from self._of_prompt(prompt, params.prompt_logprobs, sampled.n)
        logprobs = None if params.logprobs is None else OutputLogprobs(params.logprobs, limits.vocab_size)
        plan = None if constraint is None else Plan(constraint=constraint)
        return Wanted(text, prompt, of_prompt, asks_of(context, prompt, prompt.bare, sampled, plan), logprobs)

    def _work_out(self, asked: pb.GenerateRequest) -> KnownTokens | None:
        """What a call for the tokens alone of one choice comes to, whatever its prompt."""
        params = asked.sampling_params
        if not params.HasField("max_tokens"):
            return None
        converted = request_of(asked, [1])
        rare = (converted.kv_transfer_params, converted.features, converted.cache_salt)
        if any(value is not None for value in rare):
            return None
        wanted: Wanted = at_once(self._wanted(asked, converted))
        ask, *more = wanted.asks
        if more or wanted.of_prompt or wanted.logprobs is not None:
            return None
        longest = self._context.limits.max_model_len - params.max_tokens
        return KnownTokens(**asdict(wanted.asked), ask=ask, longest_prompt=longest)

    def _refuse_other_rank(self, asked: pb.GenerateRequest) -> None:
        """Each rank has a port of its own, and calls are for the one they came to."""
        if not asked.HasField("data_parallel_rank"):
            return
        rank, own = asked.data_parallel_rank, max(self._context.config.data_parallel_rank, 0)
        if rank != own:
            raise ApiError.parameter(
                f"This port is that of rank {own}, and serves no other.", "data_parallel_rank", rank
            )

    def _prompt(self, asked: pb.GenerateRequest, ids: list[int]) -> Generator[Any, None, Prompt]:
        context = self._context
        if ids:
            yield from check_ids(ids, context.limits)
            return Prompt.of_ids(context.tokenizer, ids)
        as_text = text_input(asked)
        if as_text.truncate_prompt_tokens is not None:
            check_budget(as_text, context.limits)
        return (yield from prompt_of(context, as_text, asked.text))

    def _of_prompt(self, prompt: Prompt, asked: int | None, n: int) -> Generator[Any, None, bytes]:
        """The prompt's InputLogProbs, made in steps; empty where they are not wanted."""
        if asked is None:
            return b""
        if n * len(prompt) * max(asked, 1) > MOST_LISTED:
            message = f"The reply would list more than {MOST_LISTED} log probabilities of prompts."
            raise ApiError.parameter(message, "prompt_logprobs")
        if prompt.long:
            yield from prompt.lay_out()
        parts = []
        for part in input_logprobs(prompt, asked, self._context.limits.vocab_size):
            parts.append(part)
            yield
        return b"".join(parts)
