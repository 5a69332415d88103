"""The sampling parameters of a request as vLLM's render routes write them."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from llmdsim.web.chat_request import ChatRequest
from llmdsim.web.generation_request import StructuredOutputs
from llmdsim.web.sampling import GREEDY_BELOW, Sampling
from llmdsim.web.text_request import TextRequest

#: How vLLM numbers what its engine puts out: only what is new, or only the end.
_DELTAS, _FINAL = 1, 2

#: What vLLM leaves out where it has this value. Floats it writes even then: it compares by identity.
_DEFAULTS = {
    "n": 1,
    "top_k": 0,
    "ignore_eos": False,
    "max_tokens": 16,
    "min_tokens": 0,
    "skip_special_tokens": True,
    "spaces_between_special_tokens": True,
    "include_stop_str_in_output": False,
    "output_text_buffer_length": 0,
    "routed_experts_prompt_start": 0,
}


def sampling_params(request: ChatRequest | TextRequest, sampled: Sampling) -> dict[str, Any]:
    """The parameters, in the order of vLLM's struct, as JSON values; `sampled` was made from `request`."""
    greedy = sampled.temperature < GREEDY_BELOW
    stop = list(sampled.stop)
    held_back = max(map(len, stop)) - 1 if stop and not sampled.include_stop else 0
    if isinstance(request, ChatRequest):
        listed = request.top_logprobs if request.logprobs else None
    else:
        listed = request.logprobs
    of_prompt = request.prompt_alternatives
    budget = request.thinking_token_budget
    values = {
        "n": sampled.n,
        "presence_penalty": _given(request.presence_penalty, 0.0),
        "frequency_penalty": _given(request.frequency_penalty, 0.0),
        "repetition_penalty": _given(request.repetition_penalty, 1.0),
        "temperature": sampled.temperature,
        "watermarking": request.watermarking,
        "top_p": None if greedy else _given(request.top_p, 1.0),
        "top_k": 0 if greedy or request.top_k is None else request.top_k,
        "min_p": None if greedy else _given(request.min_p, 0.0),
        "seed": sampled.seed,
        "stop": stop,
        "stop_token_ids": list(dict.fromkeys(request.stop_token_ids or ())),
        "ignore_eos": sampled.ignore_eos,
        "max_tokens": sampled.max_tokens,
        "min_tokens": sampled.min_tokens,
        "logprobs": None if request.logprob_token_ids else listed,
        "prompt_logprobs": of_prompt,
        "logprob_token_ids": request.logprob_token_ids or None,
        "skip_special_tokens": request.skip_special_tokens is not False,
        "spaces_between_special_tokens": request.spaces_between_special_tokens,
        "include_stop_str_in_output": sampled.include_stop,
        "output_kind": _DELTAS if request.stream else _FINAL,
        "stream_interval": request.stream_interval,
        "skip_clone": True,
        "output_text_buffer_length": held_back,
        "structured_outputs": _constraints(request),
        "logit_bias": _clamped(request.logit_bias),
        "allowed_token_ids": request.allowed_token_ids,
        "extra_args": request.vllm_xargs or None,
        "bad_words": list(dict.fromkeys(request.bad_words)),
        "skip_reading_prefix_cache": not request.reads_cache,
        "thinking_token_budget": None if budget == -1 else budget,
        "repetition_detection": request.repetition_detection,
        "routed_experts_prompt_start": request.routed_experts_prompt_start,
    }
    return {
        name: value
        for name, value in values.items()
        if value is not None and value != _DEFAULTS.get(name, ...)
    }


def _given(value: float | None, default: float) -> float:
    return default if value is None else value


def _clamped(bias: dict[str, float] | None) -> dict[str, float] | None:
    if bias is None:
        return None
    return {str(int(key)): min(100.0, max(-100.0, value)) for key, value in bias.items()}


def _constraints(request: ChatRequest | TextRequest) -> StructuredOutputs | None:
    """What the output must be, in whichever fields it was asked for."""
    wanted, format_ = request.structured_outputs, request.response_format
    if format_ is None or format_.type == "text":
        return wanted or _guided(request)
    found = StructuredOutputs() if wanted is None else msgspec.structs.replace(wanted)
    schema = None if format_.json_schema is None else format_.json_schema.schema
    if format_.type == "structural_tag":
        if format_.format is not None:
            tag: dict[str, Any] = {"type": format_.type, "format": format_.format}
        else:
            tag = {"type": format_.type, "structures": format_.structures, "triggers": format_.triggers}
        found.structural_tag = json.dumps(tag)
    elif format_.type == "json_schema" and schema is not None:
        found.json = schema
    else:
        found.json_object = True
    return found


def _guided(request: ChatRequest | TextRequest) -> StructuredOutputs | None:
    """The constraint in the fields that older vLLMs had."""
    found = StructuredOutputs(
        json=request.guided_json,
        regex=request.guided_regex,
        choice=request.guided_choice or None,
        grammar=request.guided_grammar,
    )
    return None if found == StructuredOutputs() else found
