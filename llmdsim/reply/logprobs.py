"""Synthetic log probabilities: the numbers and alternatives of llm-d-inference-sim, with token ids."""

from typing import NamedTuple

from llmdsim.tokenization.fnv import fnv1a32


class Logprob(NamedTuple):
    id: int
    text: str
    logprob: float


def main(position: int) -> float:
    """The log probability of the token at a position: -1.0, -1.1, -1.2, -1.0, ..."""
    return -1.0 - 0.1 * (position % 3)


def candidates(token_id: int, text: str, position: int, k: int, vocab_size: int = 2**32) -> list[Logprob]:
    """The token said at a position, then `k` alternatives; an entry's rank is its index plus one.

    vLLM shows the first `top_logprobs` of them in a chat and up to `logprobs` + 1 in a text completion (the
    one more where the token said is not among the most probable, which it always is here).
    Alternative j reads as the token's text with `_j` behind it. Its id is the hash of that; with a smaller
    vocabulary it is below `vocab_size` and no other's, as far as there are so many. Prompt tokens have theirs
    by the same rule, with their position in the prompt.
    """
    highest = main(position)
    entries = [Logprob(token_id, text, highest)]
    if k > 0:
        state = fnv1a32(f"{text}_".encode("utf-8", "surrogatepass"))
        # Where the ids of a small vocabulary, counted from a first one, come to the token's own.
        own = (token_id - state) % vocab_size or vocab_size
        for rank in range(1, k + 1):
            number = str(rank)
            if vocab_size < 2**32:
                alternative = (state + rank + (rank >= own)) % vocab_size
            else:
                alternative = fnv1a32(number.encode(), state)
            entries.append(Logprob(alternative, f"{text}_{number}", highest - 0.5 * rank))
    return entries
