"""What the render routes answer: a request for `/inference/v1/generate`, as vLLM 0.33 writes it."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import msgspec

from llmdsim.tokenization.prompt import Prompt
from llmdsim.tokenization.steps import Step
from llmdsim.web.chat_request import ChatRequest
from llmdsim.web.prompts import ids_json
from llmdsim.web.sampling import Sampling
from llmdsim.web.sampling_params import sampling_params
from llmdsim.web.text_request import TextRequest

json = msgspec.json.encode

#: Offsets that are written as JSON in half a millisecond.
OFFSETS_AT_ONCE = 4096


def rendered(
    request: ChatRequest | TextRequest,
    request_id: str,
    prompt: Prompt,
    sampled: Sampling,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> Generator[Step, None, bytes]:
    """The JSON for one prompt of `request`, made in steps where it is long. Every key is there.

    `more` has values for keys that are null otherwise.
    """
    ids = yield from ids_json(prompt)
    offsets = None
    # Ids, sent or cut, are no part of a text that could be pointed into.
    if request.return_token_offsets and prompt.text is not None:
        offsets = msgspec.Raw((yield from _offsets_json(prompt)))
    answer = {
        "request_id": request_id,
        "token_ids": msgspec.Raw(ids),
        "token_offsets": offsets,
        "features": None,
        "content_parts": None,
        "sampling_params": sampling_params(request, sampled),
        "model": request.model,
        "reasoning_ended": None,
        "reasoning_parser_kwargs": None,
        "return_token_ids": request.return_token_ids,
        "output_mode": "tokens",
        "parse_context": None,
        "stream": bool(request.stream),
        "stream_options": request.stream_options if request.stream else None,
        "cache_salt": request.cache_salt,
        "priority": request.priority,
        "kv_transfer_params": request.kv_transfer_params or None,
        "ec_transfer_params": request.ec_transfer_params or None,
    }
    answer.update(more)
    return json(answer)


def _offsets_json(prompt: Prompt) -> Generator[Step, None, bytes]:
    """Where each token begins and ends in the text, in characters."""
    if prompt.long:
        yield from prompt.lay_out()
    ends = prompt.layout.ends
    parts = []
    for start in range(0, len(ends) - 1, OFFSETS_AT_ONCE):
        parts.append(json([*pairwise(ends[start : start + OFFSETS_AT_ONCE + 1])])[1:-1])
        if prompt.long:
            yield None
    return b"[%b]" % b",".join(parts)
