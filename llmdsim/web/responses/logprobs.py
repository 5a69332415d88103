"""Log probabilities of a response's text as JSON: whole, and as events tell them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

import msgspec

from llmdsim.reply.logprobs import candidates
from llmdsim.web.logprobs import MOST_ALTERNATIVES, token_text

json = msgspec.json.encode


class ResponseLogprobs:
    """`[{token, bytes, logprob, top_logprobs}]`; alternatives begin with the token itself."""

    def __init__(self, alternatives: int, as_ids: bool, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._count = min(alternatives, MOST_ALTERNATIVES)
        self.listed = max(self._count, 1)
        self._as_ids = as_ids

    def entries(self, ids: Sequence[int], texts: Sequence[str], position: int) -> list[dict[str, Any]]:
        """One for each token given, the first of which is at `position` among the generated ones."""
        return [self._entry(*token) for token in zip(ids, texts, count(position), strict=False)]

    def render(self, ids: Sequence[int], texts: Sequence[str], position: int) -> bytes:
        return json(self.entries(ids, texts, position))

    def _entry(self, token_id: int, text: str, position: int) -> dict[str, Any]:
        shown = []
        for candidate in candidates(token_id, text, position, self.listed - 1, self._vocab_size):
            token = token_text(candidate.id, candidate.text, self._as_ids)
            shown.append({"token": token, "bytes": list(token.encode()), "logprob": candidate.logprob})
        return {**shown[0], "top_logprobs": shown[: self._count]}


def without_bytes(entries: Sequence[dict[str, Any]]) -> bytes:
    """Entries as delta events tell them."""
    return json(
        [
            {
                "token": entry["token"],
                "logprob": entry["logprob"],
                "top_logprobs": [
                    {"token": top["token"], "logprob": top["logprob"]} for top in entry["top_logprobs"]
                ],
            }
            for entry in entries
        ]
    )
