"""From a valid request and its prompt's length to what each choice is asked for, within the server's limits.

Every range is checked in vLLM 0.33's order (renderers/params.py, then sampling_params.py, then the engine's
own checks), and always before the answer's headers go out: vLLM answers some of these inside a stream that
has already begun.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from llmdsim.reply.ask import Bounds
from llmdsim.web.chat_request import ChatRequest
from llmdsim.web.context_length import check_context, check_prompt
from llmdsim.web.errors import ApiError, shown
from llmdsim.web.limits import Limits
from llmdsim.web.text_request import DEFAULT_MAX_TOKENS, TextRequest

__all__ = ["Limits", "Sampling", "sampling"]

#: Below this a temperature means greedy; between it and the floor it is raised to the floor.
GREEDY_BELOW = 1e-5
_TEMPERATURE_FLOOR = 0.01
MAX_LOGPROB_TOKEN_IDS = 128
MAX_BAD_WORDS = 128


class Sampling(Bounds, frozen=True, kw_only=True):
    """What all choices of one prompt are asked for. All values are in range; `seed` is the first choice's."""

    n: int = 1
    #: alternatives to list for each token; 0 gives the token's own alone, None no log probabilities
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    #: ids to give log probabilities of, in place of the likeliest
    logprob_token_ids: tuple[int, ...] = ()
    temperature: float = 1.0
    #: text with `echo` and `max_tokens` 0: one token is generated and counted, the prompt alone is shown
    prompt_only: bool = False


def sampling(request: ChatRequest | TextRequest, prompt_tokens: int, limits: Limits) -> Sampling:
    """Check a request against the server's limits and its prompt, `prompt_tokens` long after truncation.

    Raises `ApiError` 400. For text with several prompts, call once for each.
    """
    is_text = type(request) is TextRequest
    asked, _ = request.asked_max_tokens
    context = limits.max_model_len
    prompt_only = is_text and asked == 0 and request.echo is True
    room = context - prompt_tokens
    if (
        (asked is not None and asked > room)
        or room < 1
        or is_text
        or request.truncate_prompt_tokens is not None
    ):
        check_context(request, prompt_tokens, limits)
    if prompt_only:
        most = 1
    else:
        wanted = DEFAULT_MAX_TOKENS if asked is None and is_text else asked
        most = room if wanted is None or wanted > room else wanted
    temperature = _check_ranges(request, most, limits)
    n = 1 if request.n is None else request.n
    logprobs, prompt_logprobs = _check_logprobs(request, limits)
    stop_token_ids = request.stop_token_ids
    if stop_token_ids:
        _check_ids("stop_token_ids", stop_token_ids, limits)
    if request.logit_bias or request.allowed_token_ids is not None or request.bad_words:
        _check_biases(request, limits)
    if prompt_tokens == 0 or room < 1 or request.routed_experts_prompt_start > prompt_tokens:
        check_prompt(request, prompt_tokens, context)
    stop = request.stop
    sampled = Sampling(
        max_tokens=most,
        requested_max=1 if prompt_only else asked,
        min_tokens=request.min_tokens,
        ignore_eos=request.ignore_eos,
        stop=() if not stop else (stop,) if isinstance(stop, str) else tuple(stop),
        stop_token_ids=frozenset(stop_token_ids) if stop_token_ids else frozenset(),
        include_stop=request.include_stop_str_in_output,
        seed=None if request.seed == -1 else request.seed,
        n=n,
        logprobs=logprobs,
        prompt_logprobs=prompt_logprobs,
        logprob_token_ids=tuple(request.logprob_token_ids) if request.logprob_token_ids else (),
        temperature=temperature,
        prompt_only=prompt_only,
    )
    if request.skip_special_tokens is None and request.spaces_between_special_tokens:
        return sampled
    # Apart: Python makes a dict of more than fifteen keyword arguments.
    return replace(
        sampled,
        skip_special_tokens=request.skip_special_tokens,
        spaces_between_special_tokens=request.spaces_between_special_tokens,
    )


def _check_ranges(request: ChatRequest | TextRequest, most: int, limits: Limits) -> float:
    """The ranges of vLLM's sampling parameters, in its order; returns the temperature to use.

    Comparisons are written so that NaN, which a body may hold, falls out of range.
    """
    if request.logit_bias:
        _bias_ids(request.logit_bias)
    n = 1 if request.n is None else request.n
    if n < 1:
        raise ApiError(400, f"n must be at least 1, got {shown(n)}.")
    if n > limits.max_n:
        raise ApiError(400, f"n must be at most {limits.max_n}, got {shown(n)}.")
    if request.vllm_xargs or request.kv_transfer_params or request.ec_transfer_params:
        _check_extra((request.vllm_xargs, request.kv_transfer_params, request.ec_transfer_params))
    penalty = request.presence_penalty
    if penalty is not None and not -2.0 <= penalty <= 2.0:
        raise ApiError(400, f"presence_penalty must be in [-2, 2], got {penalty}.")
    penalty = request.frequency_penalty
    if penalty is not None and not -2.0 <= penalty <= 2.0:
        raise ApiError(400, f"frequency_penalty must be in [-2, 2], got {penalty}.")
    penalty = request.repetition_penalty
    if penalty is not None:
        if not math.isfinite(penalty):
            raise ApiError(400, f"repetition_penalty must be a finite number, got {penalty}.")
        if penalty <= 0.0:
            raise ApiError(400, f"repetition_penalty must be greater than zero, got {penalty}.")
    temperature = request.temperature
    if temperature is None:
        temperature = 1.0
    elif not 0.0 <= temperature <= 2.0:
        rule = "be in [0, 2]" if math.isfinite(temperature) else "be a finite number"
        raise ApiError.parameter(f"temperature must {rule}, got {temperature}.", "temperature", temperature)
    elif 0.0 < temperature < _TEMPERATURE_FLOOR:
        temperature = _TEMPERATURE_FLOOR
    top_p = request.top_p
    if top_p is not None and not 0.0 < top_p <= 1.0:
        raise ApiError.parameter(f"top_p must be in (0, 1], got {top_p}.", "top_p", top_p)
    top_k = request.top_k
    if top_k is not None and top_k < -1:
        raise ApiError(400, f"top_k must be 0 (off) or at least 1, got {shown(top_k)}.")
    min_p = request.min_p
    if min_p is not None and not 0.0 <= min_p <= 1.0:
        raise ApiError(400, f"min_p must be in [0, 1], got {min_p}.")
    if most < 1:
        rule = "max_tokens must be at least 1"
        message = f"{rule}, got {shown(most)}: max_completion_tokens and max_tokens should be positive."
        raise ApiError.parameter(message, "max_tokens", most)
    least = request.min_tokens
    if least < 0:
        raise ApiError(400, f"min_tokens must be greater than or equal to 0, got {shown(least)}.")
    if least > most:
        raise ApiError(
            400, f"min_tokens must be less than or equal to max_tokens={most}, got {shown(least)}."
        )
    stop = request.stop
    if stop is not None and ("" in stop if isinstance(stop, list) else not stop):
        raise ApiError(400, "stop cannot hold an empty string.")
    if request.bad_words and "" in request.bad_words:
        raise ApiError(400, "bad_words cannot hold an empty string.")
    if n > 1 and temperature < GREEDY_BELOW:
        raise ApiError(400, f"n must be 1 when sampling greedily (temperature 0), got {n}.")
    return temperature


def _check_logprobs(request: ChatRequest | TextRequest, limits: Limits) -> tuple[int | None, int | None]:
    """How many alternatives to list for answer tokens and for prompt tokens; None: no log probabilities."""
    chosen = request.logprob_token_ids
    if isinstance(request, ChatRequest):
        wanted = request.top_logprobs if request.logprobs else None
    else:
        wanted = request.logprobs
    if chosen:
        wanted = len(chosen)
        if wanted > MAX_LOGPROB_TOKEN_IDS:
            message = f"logprob_token_ids has {wanted} ids, greater than max allowed: {MAX_LOGPROB_TOKEN_IDS}"
            raise ApiError.parameter(message, "logprob_token_ids", wanted)
        _check_ids("logprob_token_ids", chosen, limits)
    elif wanted:
        wanted = _count_within("sample", wanted, "logprobs", limits)
    of_prompt = request.prompt_alternatives if request.echo else request.prompt_logprobs
    if of_prompt:
        of_prompt = _count_within("prompt", of_prompt, "prompt_logprobs", limits)
    return wanted, of_prompt


def _count_within(which: str, wanted: int, param: str, limits: Limits) -> int:
    if wanted == -1:
        wanted = limits.vocab_size
    most = limits.vocab_size if limits.max_logprobs == -1 else limits.max_logprobs
    if wanted > most:
        message = (
            f"This asks for {shown(wanted)} {which} logprobs, which is greater than max allowed: {most}."
        )
        raise ApiError.parameter(message, param, wanted)
    return wanted


def _check_biases(request: ChatRequest | TextRequest, limits: Limits) -> None:
    if request.logit_bias:
        _check_ids("logit_bias", _bias_ids(request.logit_bias), limits)
    allowed = request.allowed_token_ids
    if allowed is not None:
        if not allowed:
            raise ApiError.parameter(
                "allowed_token_ids must not be empty where given.", "allowed_token_ids", allowed
            )
        _check_ids("allowed_token_ids", allowed, limits)
    # Each word is one token sequence at least; only tokenizing could tell whether it is two.
    words = len(set(request.bad_words))
    if words > MAX_BAD_WORDS:
        message = f"There are too many bad words: {words}, where {MAX_BAD_WORDS} are the most."
        raise ApiError.parameter(message, "bad_words", request.bad_words)


def _bias_ids(bias: dict[str, float]) -> list[int]:
    ids: list[int] = []
    wrong: list[str] = []
    for key in bias:
        try:
            ids.append(int(key))
        except ValueError:
            wrong.append(key)
    if wrong:
        message = f"logit_bias has keys that cannot be converted to integer token IDs: {shown(wrong)}"
        raise ApiError.parameter(message, "logit_bias", wrong)
    return ids


def _check_ids(field: str, ids: Iterable[int], limits: Limits) -> None:
    wrong = [number for number in ids if not 0 <= number < limits.vocab_size]
    if wrong:
        message = f"{field} has out-of-vocab token ids: {shown(wrong)}. Vocabulary size: {limits.vocab_size}"
        raise ApiError.parameter(message, field, wrong)


def _check_extra(values: Iterable[Any]) -> None:
    """Integers on their way to the engine must fit 64 bits, signed or not."""
    pending = list(values)
    while pending:
        value = pending.pop()
        if isinstance(value, int):
            if not -(2**63) <= value < 2**64:
                message = "Integers in vllm_xargs and transfer parameters must be from -2**63 to 2**64 - 1."
                raise ApiError.parameter(message, "extra_args")
        elif isinstance(value, dict):
            pending += value.values()
        elif isinstance(value, list):
            pending += value
