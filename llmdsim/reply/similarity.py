"""How alike two texts are: the cosine of how often each word is in them.

It is 1 for the same words, 0 for none in common, and says more of short texts than the cosine of their
embeddings, since blanks and capitals make tokens of a word differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from itertools import pairwise
from math import hypot

from llmdsim.tokenization.prompt import Prompt
from llmdsim.tokenization.steps import Step

#: Words that are counted in half a millisecond.
_AT_ONCE = 2048


def words(prompt: Prompt) -> Generator[Step, None, Counter[str]]:
    """How often each token's text is in a prompt, capitals and the blanks around it aside; in steps."""
    if prompt.long:
        yield from prompt.lay_out()
    text, ends, _ = prompt.layout
    counts: Counter[str] = Counter()
    for start in range(0, len(prompt), _AT_ONCE):
        if start:
            yield None
        bounds = pairwise(ends[start : start + _AT_ONCE + 1])
        counts.update([text[begin:end].strip().casefold() for begin, end in bounds])
    return counts


def similarity(one: Mapping[str, int], other: Mapping[str, int]) -> Generator[Step, None, float]:
    """From 0 to 1, in steps; neither may be empty."""
    if len(one) > len(other):
        one, other = other, one
    common = 0
    for number, (word, times) in enumerate(one.items(), start=1):
        if number % _AT_ONCE == 0:
            yield None
        common += times * other.get(word, 0)
    return min(1.0, common / (hypot(*one.values()) * hypot(*other.values())))
