"""Which steps of a reply are one delta of a stream: the first alone, then `interval` together."""

from __future__ import annotations

from itertools import groupby, pairwise

from llmdsim.reply.reply import Delta, Reply

#: The most tokens of one delta, log probabilities listed with them counted too, so that none takes long.
MOST_JOINED = 1024


def last_end(steps: int, interval: int) -> int:
    """Where the last delta ends that so many steps complete."""
    return 1 + (steps - 1) // interval * interval if steps else 0


def spans(start: int, stop: int, interval: int) -> list[tuple[int, int]]:
    """The steps of each delta between `start`, where one begins, and `stop`, where one is cut off."""
    if start == stop:
        return []
    return [*pairwise((start, *range(start + interval if start else 1, stop, interval), stop))]


def pieces(reply: Reply, start: int, stop: int, interval: int) -> list[bytes]:
    """The text of each delta, as the inside of a JSON string."""
    single = reply.pieces(start, stop)
    if interval == 1:
        return single
    return [b"".join(single[first - start : end - start]) for first, end in spans(start, stop, interval)]


def deltas(reply: Reply, start: int, stop: int, interval: int) -> list[list[Delta]]:
    """What each delta adds to parts, to each of them once."""
    single = reply.deltas(start, stop)
    if interval == 1:
        return single
    return [
        _joined([delta for step in single[first - start : end - start] for delta in step])
        for first, end in spans(start, stop, interval)
    ]


def _joined(added: list[Delta]) -> list[Delta]:
    return [
        Delta(part, "".join([delta.text for delta in group]))
        for part, group in groupby(added, key=lambda delta: delta.part)
    ]
