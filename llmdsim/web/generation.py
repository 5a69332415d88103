"""From a validated generation request to sequences in the engine, for chat and text alike."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from msgspec.structs import replace

from llmdsim.engine.admission import Overloaded, QueueFull
from llmdsim.engine.sequence import Family, Sink
from llmdsim.engine.sequence import Sequence as EngineSequence
from llmdsim.reply.ask import Ask
from llmdsim.reply.plan import Plan
from llmdsim.tokenization.prompt import Prompt
from llmdsim.web.account import Account
from llmdsim.web.cache_threshold import cache_threshold
from llmdsim.web.context import Context
from llmdsim.web.deltas import MOST_JOINED
from llmdsim.web.errors import ApiError
from llmdsim.web.generation_request import GenerationRequest
from llmdsim.web.overload import refusal
from llmdsim.web.reply_head import ReplyHead
from llmdsim.web.sampling import Sampling
from llmdsim.web.stored import may_be_stored
from llmdsim.web.transfer import PrefillAnswer, transfer_of
from llmdsim.web.wants import ReplyWants
from llmdsim.wire.request import Request

#: What one reply may echo, in characters, and the log probabilities it may list.
MOST_REPEATED = 64 << 20
MOST_LISTED = 2_000_000


def asks_of(
    context: Context, prompt: Prompt, echoed: Prompt, sampling: Sampling, plan: Plan | None = None
) -> list[Ask]:
    """One ask for each of the `n` choices of a prompt; with a seed, choice i has seed + i (vLLM)."""
    max_tokens = sampling.max_tokens
    if sampling.requested_max is None and (
        context.echoes or (context.stored is not None and may_be_stored(plan))
    ):
        # The default of an API is no request to cut an echo short, or what a dataset says.
        max_tokens = context.limits.max_model_len - len(prompt)
    seed = sampling.seed
    ask = Ask(
        prompt=prompt,
        echoed=echoed,
        plan=plan,
        max_tokens=max_tokens,
        requested_max=sampling.requested_max,
        min_tokens=sampling.min_tokens,
        ignore_eos=sampling.ignore_eos,
        stop=sampling.stop,
        stop_token_ids=sampling.stop_token_ids,
        include_stop=sampling.include_stop,
        skip_special_tokens=sampling.skip_special_tokens,
        spaces_between_special_tokens=sampling.spaces_between_special_tokens,
        seed=seed,
    )
    if seed is None or sampling.n == 1:
        return [ask] * sampling.n
    return [replace(ask, seed=seed + choice) for choice in range(sampling.n)]


def refuse_too_much(context: Context, asks: Sequence[Sequence[Ask]], wants: ReplyWants) -> None:
    """Refuse a reply that would repeat the prompt, or list log probabilities, beyond all measure."""
    first = wants.choices[0]
    if context.echoes or first.lead:
        repeated = sum(len(choice.lead) for choice in wants.choices)
        if context.echoes:
            repeated += sum(len(ask.echoed.text or "") for choices in asks for ask in choices)
        if repeated > MOST_REPEATED:
            raise ApiError(400, f"The reply would echo more than {MOST_REPEATED} characters.", param="n")
    shape = first.logprobs
    if shape is not None:
        # Random replies to clients that name no length are short.
        tokens = sum(
            max(ask.min_tokens, 0 if ask.stored is None else len(ask.stored.ids))
            if ask.requested_max is None and not ask.ignore_eos and not context.echoes
            else ask.max_tokens
            for choices in asks
            for ask in choices
        )
        listed = shape.listed * tokens
        if listed > MOST_LISTED:
            raise ApiError(400, f"The reply would list more than {MOST_LISTED} log probabilities.", param="n")


class Answer(Protocol):
    """A reply in the making; `sequences` are its choices' in the order of their indexes."""

    request: Request
    wants: ReplyWants
    sequences: Sequence[EngineSequence]
    #: Whether tokens are sent as they fall due.
    streamed: bool

    def sinks(self) -> Sequence[Sink]:
        """A sink for each choice."""

    def open(self) -> None:
        """Send what can be sent before the first token, if nothing has been."""


def _interval(context: Context, asked: GenerationRequest, wants: ReplyWants) -> int:
    """Tokens of one delta: as the server or the request has it, whichever is more (vLLM)."""
    shape = wants.choices[0].logprobs
    most = MOST_JOINED if shape is None else max(1, MOST_JOINED // (1 + shape.listed))
    return min(max(context.config.stream_interval, asked.stream_interval or 1), most)


def _priority(asked: GenerationRequest, request: Request) -> int:
    """The place in the queue that is asked for: by a number in the header, else by the body (vLLM)."""
    text = request.headers.get(b"x-vllm-priority")
    if text is not None:
        with suppress(ValueError):
            return int(text)
    return asked.priority


def generate(
    context: Context,
    asked: GenerationRequest,
    asks: Sequence[Sequence[Ask]],
    answer: Answer,
    head: ReplyHead,
) -> None:
    """Have the choices that a request asks for, prompt by prompt, made into `answer`.

    Raises ApiError: 429 or 503 when the engine has no room for all of them, none is started then; 503 while
    it is paused or asleep.
    """
    request = answer.request
    # Again: to prepare a long prompt takes a while.
    if context.suspension.refusal is not None:
        context.suspension.refuse()
    adapter = head.served.adapter
    wants = answer.wants
    first = wants.choices[0]
    if first.logprobs is not None or first.lead or context.echoes:
        refuse_too_much(context, asks, wants)
    everyday = asked.everyday
    transfer = None if everyday else transfer_of(asked)
    if transfer is not None:
        if transfer.to_decode:
            wants.prefill = PrefillAnswer(context.connector, head.id, context.port)
        wants.told_cached = transfer.cached
    request.common_headers += context.reply_headers
    if asked.stream_interval is not None or context.config.stream_interval > 1:
        wants.interval = _interval(context, asked, wants)
    priority = _priority(asked, request) if context.by_priority else 0
    sinks = answer.sinks()
    sequences: list[EngineSequence] = []
    for choices in asks:
        family = Family(len(choices)) if len(choices) > 1 else None
        for ask in choices:
            index = len(sequences)
            sequences.append(EngineSequence(ask, sinks[index], index, family, head.id, adapter, priority))
    answer.sequences = sequences
    if transfer is not None and transfer.prefilled:
        for sequence in sequences:
            sequence.remote_prefill = context.transfers.draw(transfer.cached)
    if context.caches and not everyday and (asked.cache_salt is not None or not asked.reads_cache):
        for sequence in sequences:
            sequence.cache_salt = asked.cache_salt
            sequence.reads_cache = asked.reads_cache
    threshold = cache_threshold(context.config, request, asked.cache_hit_threshold)
    if threshold is not None:
        for sequence in sequences:
            sequence.cache_hit_threshold = threshold
    if context.accounted:
        request.account = Account(head.id, head.served.name, wants.prompt_tokens, sequences)
    try:
        context.driver.submit(sequences)
    except (QueueFull, Overloaded) as reason:
        request.on_lost = request.on_drain = request.on_failure = None
        raise refusal(reason) from None
    if context.tells_generations:
        request.account.log_start(answer.streamed)
    context.driver.run()
    answer.open()
