"""How many tokens a random reply has: the rules of llm-d-inference-sim's README and those of its code.

Every rule takes the greatest length `most` (>= 1) and a source of random numbers and returns 1 .. `most`.
"""

from random import Random

_WEIGHTS_SUMMED = (0.20, 0.50, 0.70, 0.75, 0.85)  # 20, 30, 20, 5, 10 % and the rest

_MEAN = 40.0
_DEVIATION = 20.0
_SHORTEST_GAUSSIAN = 20


def _bucket(draw: float) -> int:
    for index, limit in enumerate(_WEIGHTS_SUMMED):
        if draw < limit:
            return index
    return 5


def uniform(most: int, random: Random) -> int:
    return 1 + int(random.random() * most)


def readme_bucket(most: int, index: int) -> tuple[int, int]:
    """First and last length of bucket 0 .. 5 for `most` >= 6, by the README.

    Up to 120 all six are equal (as nearly as whole numbers allow); above, all are 20 wide but the fourth,
    which takes what remains.
    """
    if most <= 120:
        return most * index // 6 + 1, most * (index + 1) // 6
    if index < 3:
        return 20 * index + 1, 20 * index + 20
    if index == 3:
        return 61, most - 40
    return most - 20 * (6 - index) + 1, most - 20 * (5 - index)


def readme_length(most: int, random: Random) -> int:
    """For a requested maximum: a bucket by weight, then uniform in it; all uniform below six lengths."""
    if most < 6:
        return uniform(most, random)
    low, high = readme_bucket(most, _bucket(random.random()))
    return low + int(random.random() * (high - low + 1))


def peer_bucket(most: int, index: int) -> tuple[int, int]:
    """First and last length of bucket 0 .. 4 for `most` >= 7, by the code; the sixth is `most` itself."""
    if most <= 101:
        return (most - 1) * index // 5 + 1, (most - 1) * (index + 1) // 5
    if index < 3:
        return 20 * index + 1, 20 * index + 20
    if index == 3:
        return 61, most - 20
    return most - 19, most - 1


def peer_length(most: int, random: Random) -> int:
    """For a requested maximum, by the code: 15 % of replies run to the maximum."""
    if most <= 6:
        return uniform(most, random)
    index = _bucket(random.random())
    if index == 5:
        return most
    low, high = peer_bucket(most, index)
    return low + int(random.random() * (high - low + 1))


def unrequested_length(most: int, random: Random) -> int:
    """Without a requested maximum: Normal(40, 20), drawn again while outside 1 .. `most`; else uniform."""
    if most < _SHORTEST_GAUSSIAN:
        return uniform(most, random)
    while True:
        length = random.gauss(_MEAN, _DEVIATION)
        if 1.0 <= length <= most:
            return int(length + 0.5)
