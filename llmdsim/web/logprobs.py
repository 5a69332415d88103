"""Log probabilities as JSON, in the shapes of chat and text replies."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any, Protocol

import msgspec

from llmdsim.reply.logprobs import Logprob, candidates
from llmdsim.tokenization.prompt import Prompt

json = msgspec.json.encode

#: The most alternatives listed, whatever `--max-logprobs` allows: -1 there is a whole vocabulary of 2**32.
MOST_ALTERNATIVES = 1024


class LogprobShape(Protocol):
    """One choice's log probabilities, rendered piece by piece in order."""

    #: Entries for each token.
    listed: int

    def render(self, ids: Sequence[int], texts: Sequence[str], position: int) -> bytes:
        """JSON for the tokens given, the first of which is at `position` among the generated ones."""


class ChatLogprobs:
    """`{"content": [{token, logprob, bytes, top_logprobs}]}`; alternatives begin with the token itself."""

    def __init__(self, alternatives: int, as_ids: bool, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._count = alternatives
        self._others = max(min(alternatives, MOST_ALTERNATIVES) - 1, 0)
        self.listed = self._others + 1
        self._as_ids = as_ids

    def render(self, ids: Sequence[int], texts: Sequence[str], position: int) -> bytes:
        return json(
            {"content": [self._entry(*token) for token in zip(ids, texts, count(position), strict=False)]}
        )

    def _entry(self, token_id: int, text: str, position: int) -> dict[str, Any]:
        top = candidates(token_id, text, position, self._others, self._vocab_size)
        shown = [self._shown(candidate) for candidate in top]
        # The sampled token's bytes are always those of its text, even where ids are shown instead.
        sampled = {**shown[0], "bytes": list(text.encode())}
        return {**sampled, "top_logprobs": shown[: self._count]}

    def _shown(self, candidate: Logprob) -> dict[str, Any]:
        token = token_text(candidate.id, candidate.text, self._as_ids)
        return {"token": token, "logprob": candidate.logprob, "bytes": list(token.encode())}


class TextLogprobs:
    """`{text_offset, token_logprobs, tokens, top_logprobs}`, parallel lists; offsets run on over pieces."""

    def __init__(self, alternatives: int, as_ids: bool, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        # The sampled token is the likeliest here, and so one of the alternatives asked for.
        self._others = max(min(alternatives, MOST_ALTERNATIVES) - 1, 0)
        self.listed = self._others + 1
        self._as_ids = as_ids
        self._offset = 0
        self._prompt: Prompt | None = None

    def echo(self, prompt: Prompt) -> None:
        """Cover the prompt's tokens too, before the first generated one."""
        self._prompt = prompt

    def render(self, ids: Sequence[int], texts: Sequence[str], position: int) -> bytes:
        offsets: list[int] = []
        values: list[float | None] = []
        tokens: list[str] = []
        tops: list[dict[str, float] | None] = []
        prompt, self._prompt = self._prompt, None
        if prompt is not None:
            rows = [
                *zip(prompt.ids, prompt.texts, count(0), strict=False),
                *zip(ids, texts, count(position), strict=False),
            ]
        else:
            rows = list(zip(ids, texts, count(position), strict=False))
        for row, (token_id, text, place) in enumerate(rows):
            token = token_text(token_id, text, self._as_ids)
            offsets.append(self._offset)
            tokens.append(token)
            self._offset += len(token)
            if prompt is not None and row == 0:
                # Nothing comes before the prompt's first token, so it has no probability.
                values.append(None)
                tops.append(None)
                continue
            top = candidates(token_id, text, place, self._others, self._vocab_size)
            values.append(top[0].logprob)
            tops.append({token_text(c.id, c.text, self._as_ids): c.logprob for c in top})
        return json(
            {"text_offset": offsets, "token_logprobs": values, "tokens": tokens, "top_logprobs": tops}
        )


def prompt_logprobs(ids: Sequence[int], texts: Sequence[str], alternatives: int, vocab_size: int) -> bytes:
    """`prompt_logprobs`: null for the first token, then `{id: {logprob, rank, decoded_token}}` for each."""
    entries: list[dict[str, Any] | None] = []
    others = max(min(alternatives, MOST_ALTERNATIVES) - 1, 0)
    for token_id, text, position in zip(ids, texts, count(0), strict=False):
        if position == 0:
            entries.append(None)
            continue
        top = candidates(token_id, text, position, others, vocab_size)
        entries.append(
            {
                str(c.id): {"logprob": c.logprob, "rank": rank, "decoded_token": c.text}
                for rank, c in enumerate(top, start=1)
            }
        )
    return json(entries)


def token_text(token_id: int, text: str, as_ids: bool) -> str:
    """A token as shown: its text, or `token_id:N`."""
    return f"token_id:{token_id}" if as_ids else text
