"""Log probabilities as messages, in parts that make up one message put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

from llmdsim.reply.logprobs import candidates
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.tokenization.prompt import Prompt
from llmdsim.web.logprobs import MOST_ALTERNATIVES

#: Entries made in half a millisecond.
_AT_ONCE = 256


class OutputLogprobs:
    """`OutputLogProbs`: a token's own score and, where `asked` is not 0, as many of the likeliest.

    The token said is the first of these. For all of the vocabulary, -1, vLLM lists none.
    """

    def __init__(self, asked: int, vocab_size: int) -> None:
        self._lists = asked != 0
        self._top = min(max(asked, 0), MOST_ALTERNATIVES)
        self._vocab_size = vocab_size
        self.listed = max(self._top, 1)

    def render(self, ids: Sequence[int], texts: Sequence[str], position: int) -> bytes:
        """The message for the tokens given, the first of which is at `position` among the generated ones."""
        found = pb.OutputLogProbs()
        for token_id, text, place in zip(ids, texts, count(position), strict=False):
            listed = candidates(token_id, text, place, self.listed - 1, self._vocab_size)
            found.token_ids.append(token_id)
            found.token_logprobs.append(listed[0].logprob)
            if self._lists:
                top = listed[: self._top]
                found.top_logprobs.add(
                    values=[entry.logprob for entry in top], token_ids=[entry.id for entry in top]
                )
        return found.SerializeToString()


def input_logprobs(prompt: Prompt, asked: int, vocab_size: int) -> Iterator[bytes]:
    """Parts of `InputLogProbs`, each made in a step; the first token has no score."""
    ids, texts = prompt.ids, prompt.texts
    top_count = min(max(asked, 0), MOST_ALTERNATIVES)
    at_once = max(_AT_ONCE // max(top_count, 1), 1)
    for start in range(0, len(ids), at_once):
        stop = start + at_once
        found = pb.InputLogProbs(token_ids=ids[start:stop])
        for token_id, text, place in zip(ids[start:stop], texts[start:stop], count(start), strict=False):
            if place:
                listed = candidates(token_id, text, place, max(top_count - 1, 0), vocab_size)
                found.token_logprobs.add(value=listed[0].logprob)
                top = listed[:top_count]
            else:
                found.token_logprobs.add()
                top = []
            if asked:
                found.top_logprobs.add(
                    values=[entry.logprob for entry in top], token_ids=[entry.id for entry in top]
                )
        yield found.SerializeToString()
