"""The embedding of a prompt: a vector made from its tokens and nothing else.

Each token has a vector of its own, drawn from its id; a prompt's is the direction of their sum. So the same
tokens always give the same vector, prompts that share tokens point the same way the more they share, and
prompts that share none are nearly at right angles. A shorter embedding is the beginning of a longer one, made
unit length again, as of a model that was trained to be cut (Matryoshka).

Numbers have six decimals: such a number is its own shortest text, as a double and as the float32 that models
compute with.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from hashlib import shake_128
from math import exp, hypot
from struct import unpack

#: Tokens of a prompt that its vector is made from, the first ones: the sums below have room for no more.
MOST_TOKENS = 1 << 24
#: What half a millisecond is enough for: ids to count, and components to finish.
_IDS_AT_ONCE = 8192
_COMPONENTS_AT_ONCE = 2048

#: What a classifier tells apart.
LABELS = ("LABEL_0", "LABEL_1")


def embedding(
    ids: Sequence[int], dimensions: int, *, normalized: bool = True
) -> Generator[None, None, list[float]]:
    """The vector of at least one token, in steps of about half a millisecond.

    Its length is 1, or without `normalized` what the mean of the tokens' vectors makes it, below 1 in each
    component.
    """
    ids = ids[:MOST_TOKENS]
    counts = Counter(ids[:_IDS_AT_ONCE])
    for start in range(_IDS_AT_ONCE, len(ids), _IDS_AT_ONCE):
        yield
        counts.update(ids[start : start + _IDS_AT_ONCE])
    # All components at once, as one long number of 32 bits for each, of which a token's own take the lowest
    # eight: to add such numbers costs a hundredth of adding lists.
    total = 0
    tokens_at_once = max(1, 50_000 // (dimensions + 256))
    for number, (token, times) in enumerate(counts.items()):
        if number and number % tokens_at_once == 0:
            yield
        drawn = bytearray(4 * dimensions)
        drawn[::4] = shake_128(b"%d" % token).digest(dimensions)
        total += int.from_bytes(drawn, "little") * times
    sums = unpack(f"<{dimensions}I", total.to_bytes(4 * dimensions, "little"))
    # From numbers around 127.5 to numbers around 0, of which not all can be 0.
    shift = 0.25 - 127.5 * len(ids)
    centred: list[float] = []
    for start in range(0, dimensions, _COMPONENTS_AT_ONCE):
        if start:
            yield
        centred += [component + shift for component in sums[start : start + _COMPONENTS_AT_ONCE]]
    scale = 1e6 / (hypot(*centred) if normalized else 128.0 * len(ids))
    values: list[float] = []
    for start in range(0, dimensions, _COMPONENTS_AT_ONCE):
        if start:
            yield
        values += [round(value * scale) / 1e6 for value in centred[start : start + _COMPONENTS_AT_ONCE]]
    return values


def classification(ids: Sequence[int], *, activated: bool = True) -> Generator[None, None, list[float]]:
    """A number for each of `LABELS`: probabilities, or without `activated` the logits behind them."""
    logits = [2 * value for value in (yield from embedding(ids, len(LABELS)))]
    if not activated:
        return logits
    weights = list(map(exp, logits))
    return [weight / sum(weights) for weight in weights]
