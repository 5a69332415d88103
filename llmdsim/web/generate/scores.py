"""Log probabilities of chosen ids in place of the prompt's: `prompt_logprob_token_ids`, as a `.npy` file."""

from __future__ import annotations

import math
import struct
from array import array
from base64 import b64encode
from collections.abc import Generator

from llmdsim.reply.logprobs import main
from llmdsim.tokenization.prompt import Prompt
from llmdsim.web.errors import ApiError
from llmdsim.web.generate.request import SamplingParams
from llmdsim.web.limits import Limits

#: Scores of one reply.
MOST_SCORES = 2_000_000
#: Scores made in half a millisecond.
_AT_ONCE = 2048


def check_scores(params: SamplingParams, prompt_tokens: int, limits: Limits) -> None:
    """Raise ApiError 400 unless there is a row of ids for each token of the prompt that is scored, if any."""
    rows, start = params.prompt_logprob_token_ids, params.prompt_logprob_start
    if rows is None:
        if start is not None:
            raise _refusal(
                "prompt_logprob_start needs prompt_logprob_token_ids.", start, "prompt_logprob_start"
            )
        return
    width = max(map(len, rows), default=0)
    if not width:
        raise _refusal("prompt_logprob_token_ids must hold rows of ids.", None)
    most = limits.vocab_size if limits.max_logprobs == -1 else limits.max_logprobs
    if width > most:
        raise _refusal(
            f"A row of prompt_logprob_token_ids has {width} ids, where {most} are the most.", width
        )
    ids = [token_id for row in rows for token_id in row]
    if min(ids) < -1 or max(ids) >= limits.vocab_size:
        message = f"prompt_logprob_token_ids has ids out of the vocabulary of {limits.vocab_size}."
        raise _refusal(message, [min(ids), max(ids)])
    if start is not None and start < 0:
        raise _refusal("prompt_logprob_start must be non-negative.", start, "prompt_logprob_start")
    scored = max(prompt_tokens - 1 - (start or 0), 0)
    if len(rows) != scored:
        message = f"prompt_logprob_token_ids has {len(rows)} rows, and the prompt {scored} tokens to score."
        raise _refusal(message, len(rows))
    if len(rows) * width > MOST_SCORES:
        raise _refusal(f"The reply would list more than {MOST_SCORES} scores.", None)


def _refusal(message: str, value: object, param: str = "prompt_logprob_token_ids") -> ApiError:
    return ApiError.parameter(message, param, value)


def scores_json(params: SamplingParams, prompt: Prompt) -> Generator[None, None, bytes]:
    """Base64 of the `.npy` file as JSON, null where none is wanted; made in steps.

    It holds a row of float32 for each row of ids, -inf where a row is shorter than others or has -1.
    """
    rows = params.prompt_logprob_token_ids
    if rows is None:
        return b"null"
    first = (params.prompt_logprob_start or 0) + 1
    width = max(map(len, rows))
    prompt_ids = prompt.ids
    values = array("f")
    made = 0
    for position, row in enumerate(rows, start=first):
        likeliest = main(position)
        said = prompt_ids[position]
        for start in range(0, len(row), _AT_ONCE):
            chosen = row[start : start + _AT_ONCE]
            values.extend(_score(token_id, said, likeliest) for token_id in chosen)
            made += len(chosen)
            if made >= _AT_ONCE:
                made = 0
                yield
        values.extend([-math.inf] * (width - len(row)))
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(rows)}, {width}), }}".encode()
    # The format wants data at a multiple of 64 bytes, and the header to end with a new line.
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    file = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + values.tobytes()
    return b'"%b"' % b64encode(file)


def _score(token_id: int, said: int, likeliest: float) -> float:
    """Of an id where the prompt goes on with `said`; -1 is none."""
    if token_id < 0:
        return -math.inf
    return likeliest if token_id == said else likeliest - 0.5 - token_id % 16
