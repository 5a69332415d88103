"""Log probabilities of ids, as generate replies have them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import msgspec

from llmdsim.reply.logprobs import candidates
from llmdsim.web.logprobs import MOST_ALTERNATIVES

json = msgspec.json.encode


class TokenLogprobs:
    """`{"content": [{token_id, logprob, rank, top_logprobs}]}`; alternatives begin with the token itself.

    All that the engine looked at are listed, so with 0 the token itself is.
    """

    def __init__(self, alternatives: int, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._others = max(min(alternatives, MOST_ALTERNATIVES) - 1, 0)
        self.listed = self._others + 1

    def render(self, ids: Sequence[int], texts: Sequence[str], position: int) -> bytes:
        return json(
            {"content": [self._entry(*token) for token in zip(ids, texts, count(position), strict=False)]}
        )

    def _entry(self, token_id: int, text: str, position: int) -> dict[str, Any]:
        found = candidates(token_id, text, position, self._others, self._vocab_size)
        top = [
            {"token_id": candidate.id, "logprob": candidate.logprob, "rank": rank}
            for rank, candidate in enumerate(found, start=1)
        ]
        return {**top[0], "top_logprobs": top}
