"""From a generate request to the text request that asks for the same, so that one set of rules holds."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, to_builtins

from llmdsim.config import Config
from llmdsim.tokenization.prompt import Prompt
from llmdsim.web.context_length import check_context, check_prompt
from llmdsim.web.errors import ApiError, shown
from llmdsim.web.generate.features import refuse_misplaced
from llmdsim.web.generate.request import DEFAULT_MAX_TOKENS, GenerateRequest, SamplingParams
from llmdsim.web.generate.scores import check_scores
from llmdsim.web.limits import Limits
from llmdsim.web.media_features import features, media_of
from llmdsim.web.request_rules import settle
from llmdsim.web.sampling import Sampling, sampling
from llmdsim.web.text_request import TextRequest


class TokensRequest(TextRequest, kw_only=True):
    """A text request whose `max_tokens`, where there is none, is the rest of the context, as in a chat.

    `skip_reading_prefix_cache` decides whether cached blocks will do, where it is told.
    """

    skip_reading_prefix_cache: bool | None = None

    @property
    def reads_cache(self) -> bool:
        skips = self.skip_reading_prefix_cache
        return self.prompt_alternatives is None if skips is None else not skips


def text_of(request: GenerateRequest) -> TokensRequest:
    """The request, its prompt's ids as they came. Raises ApiError 400 for constraints that cannot be."""
    params = request.sampling_params
    extra = params.extra_args or {}
    skips = params.skip_reading_prefix_cache
    if skips is None and params.prompt_logprob_token_ids is not None:
        skips = True
    text = TokensRequest(
        prompt=request.token_ids,  # type: ignore[arg-type]
        model=request.model,
        stream=request.stream,
        stream_options=request.stream_options,
        priority=request.priority,
        request_id=request.request_id,
        cache_salt=request.cache_salt,
        skip_reading_prefix_cache=skips,
        return_token_ids=request.return_token_ids,
        kv_transfer_params=_transfer(request.kv_transfer_params, extra, "kv_transfer_params"),
        ec_transfer_params=_transfer(request.ec_transfer_params, extra, "ec_transfer_params"),
        do_remote_decode=request.do_remote_decode,
        do_remote_prefill=request.do_remote_prefill,
        vllm_xargs=params.extra_args,
        n=params.n,
        presence_penalty=params.presence_penalty,
        frequency_penalty=params.frequency_penalty,
        repetition_penalty=params.repetition_penalty,
        temperature=params.temperature,
        watermarking=params.watermarking,
        top_p=params.top_p,
        top_k=params.top_k,
        min_p=params.min_p,
        seed=params.seed,
        stop=params.stop,
        stop_token_ids=params.stop_token_ids,
        ignore_eos=params.ignore_eos,
        max_tokens=None if params.max_tokens is UNSET else params.max_tokens,
        min_tokens=params.min_tokens,
        logprobs=params.logprobs,
        prompt_logprobs=params.prompt_logprobs,
        logprob_token_ids=params.logprob_token_ids,
        skip_special_tokens=params.skip_special_tokens,
        spaces_between_special_tokens=params.spaces_between_special_tokens,
        include_stop_str_in_output=params.include_stop_str_in_output,
        structured_outputs=params.structured_outputs,
        logit_bias=params.logit_bias,
        allowed_token_ids=params.allowed_token_ids,
        bad_words=params.bad_words or [],
        thinking_token_budget=params.thinking_token_budget,
        repetition_detection=params.repetition_detection,
        stream_interval=params.stream_interval,
        routed_experts_prompt_start=params.routed_experts_prompt_start,
    )
    settle(text)
    return text


def _transfer(named: dict[str, Any] | None, extra: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Transfer parameters: those beside the sampling parameters, else those within."""
    if named is not None:
        return named
    found = extra.get(name)
    return found if isinstance(found, dict) else None


def sampled_of(request: GenerateRequest, text: TokensRequest, prompt: Prompt, limits: Limits) -> Sampling:
    """What each choice is asked for; `text` is that of `request`. Raises ApiError 400.

    A `max_tokens` beyond the room is no fault, and cut to it, but with `strict_context`.
    """
    params = request.sampling_params
    _check_params(params, bool(request.stream))
    room = limits.max_model_len - len(prompt)
    if room < 1:
        check_context(text, len(prompt), limits)
        check_prompt(text, len(prompt), limits.max_model_len)
    asked = text.max_tokens
    # vLLM compares before it knows the room.
    least, bound = text.min_tokens, DEFAULT_MAX_TOKENS if params.max_tokens is UNSET else asked
    if bound is not None and least > bound >= 1:
        raise ApiError(
            400, f"min_tokens must be less than or equal to max_tokens={bound}, got {shown(least)}."
        )
    if params.max_tokens is not None:
        text.min_tokens = min(least, room)
    if asked is not None and asked > room and not limits.strict_context:
        text.max_tokens = room
    sampled = sampling(text, len(prompt), limits)
    check_scores(params, len(prompt), limits)
    # Behind the rest: a prompt that fits the context has so many places at most.
    if request.features is not None:
        refuse_misplaced(request.features, len(prompt), bool(request.ec_transfer_params))
        places = to_builtins(request.features.mm_placeholders)
        prompt.media = media_of(features(request.features.mm_hashes, places))
    return sampled


def _check_params(params: SamplingParams, stream: bool) -> None:
    """What the other routes have checked before, or do not have."""
    for name, count in (("logprobs", params.logprobs), ("prompt_logprobs", params.prompt_logprobs)):
        if count is not None and count < -1:
            raise ApiError.parameter(f"{name} must be non-negative or -1, got {shown(count)}.", name, count)
    interval = params.stream_interval
    if interval is not None and interval < 1:
        raise ApiError.parameter(
            f"stream_interval must be at least 1, got {interval}.", "stream_interval", interval
        )
    if params.stop and not params.detokenize:
        raise ApiError(400, "Stop strings need detokenize to be true.")
    chosen = params.logprob_token_ids
    if chosen is not None and params.logprobs is not None and params.logprobs != len(chosen):
        message = f"With logprob_token_ids, logprobs must be their number, {len(chosen)}, where it is given."
        raise ApiError.parameter(message, "logprob_token_ids", len(chosen))
    if params.prompt_logprob_token_ids is not None and stream:
        raise ApiError(400, "prompt_logprob_token_ids are not available when stream=true.")
    if params.trace_decode_token_ids is not None:
        message = "This server, which has no model, cannot follow trace_decode_token_ids."
        raise ApiError.parameter(message, "trace_decode_token_ids")


def refuse_too_many(params: SamplingParams, config: Config) -> None:
    """Refuse more choices than can run at once (vLLM)."""
    if params.n > config.max_num_seqs:
        message = f"sampling_params.n must be at most the server's max_num_seqs, {config.max_num_seqs}"
        raise ApiError(400, f"{message}, got {shown(params.n)}.")
