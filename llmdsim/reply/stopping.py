"""Where a stop string or a stop token id ends a reply, and what text is shown then (the rules are vLLM's).

Texts are measured in characters; `ends[i]` is the length of the first i tokens' text (so `ends[0]` is 0).
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from llmdsim.reply.ask import Ask
from llmdsim.tokenization import Layout


class Ending(NamedTuple):
    total: int  # tokens, the one that completes the stop included
    shown: int  # characters that are shown
    reason: str | int


class Stopped(NamedTuple):
    """What a `TextReply` is made from, in its order."""

    said: Layout
    finish_reason: str
    stop_reason: str | int | None
    shown: int | None
    held_back: int


def stopped(said: Layout, finish_reason: str, ask: Ask) -> Stopped:
    """These tokens up to the first stop that the ask names; without one they end for `finish_reason`."""
    ending = find_ending(said.text, said.ends, said.ids, ask) if ask.stop or ask.stop_token_ids else None
    if ending is None:
        return Stopped(said, finish_reason, None, None, held_back(ask))
    return Stopped(said.cut(ending.total), "stop", ending.reason, ending.shown, held_back(ask))


def held_back(ask: Ask) -> int:
    """How many last characters a stream withholds until the end: they may become part of a stop string."""
    if not ask.stop or ask.include_stop:
        return 0
    return max(map(len, ask.stop)) - 1


def find_ending(text: str, ends: Sequence[int], ids: Sequence[int], ask: Ask) -> Ending | None:
    """The first stop in a text of `len(ids)` tokens, None if there is none.

    Stops inside the first `min_tokens` tokens do not count. A stop string completed by the same token as a
    stop id wins, which takes `include_stop`: otherwise that token's text is never looked at.
    """
    total = len(ids)
    stopped_at = _stop_token(ids, ask) if ask.stop_token_ids else None
    if stopped_at is None:
        readable = ends[total]
    else:
        readable = ends[stopped_at + 1] if ask.include_stop else ends[stopped_at]
    if ask.stop and ask.min_tokens < total:
        match = first_completed(text, ask.stop, ends[ask.min_tokens], readable)
        if match is not None:
            stop, start = match
            end = start + len(stop)
            return Ending(bisect_left(ends, end), end if ask.include_stop else start, stop)
    if stopped_at is None:
        return None
    return Ending(stopped_at + 1, readable, ids[stopped_at])


def first_completed(text: str, stop: Sequence[str], after: int, before: int) -> tuple[str, int] | None:
    """The stop string whose match in `text[:before]` ends first, but past `after`; and where it starts.

    Of strings that end at the same place the first in the list wins.
    """
    found = None
    for candidate in stop:
        length = len(candidate)
        start = text.find(candidate, max(0, after + 1 - length), before)
        if start >= 0:
            found = candidate, start
            before = start + length - 1  # the next one must end earlier
    return found


def _stop_token(ids: Sequence[int], ask: Ask) -> int | None:
    stop_ids = ask.stop_token_ids
    for index in range(ask.min_tokens, len(ids)):
        if ids[index] in stop_ids:
            return index
    return None
