"""The prompt of a request: counted, cut and shown, in steps where it is long."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from itertools import pairwise
from typing import Any

import msgspec
from msgspec import to_builtins

from llmdsim.tokenization.prompt import Prompt
from llmdsim.tokenization.rendered_prompt import RenderedPrompt
from llmdsim.tokenization.steps import Step
from llmdsim.tokenization.tokenizer import Tokenizer
from llmdsim.web.chat_request import ChatRequest
from llmdsim.web.context import Context
from llmdsim.web.context_length import Prompted, refuse_by_characters, truncation
from llmdsim.web.media_features import Features, features

json = msgspec.json.encode

#: Ids that are written as JSON in half a millisecond.
IDS_AT_ONCE = 16384
#: The same of tokens' texts.
TEXTS_AT_ONCE = 4096


def is_short(context: Context, request: Prompted, text: str) -> bool:
    """Whether a text is a prompt as it is: nothing to refuse, cut, add or ask before it is counted."""
    tokenizer = context.tokenizer
    return (
        len(text) <= tokenizer.longest_piece
        and request.truncate_prompt_tokens is None
        and (tokenizer.around is None or not request.add_special_tokens)
        and context.render_service is None
    )


def prompt_of(context: Context, request: Prompted, given: str | list[int]) -> Generator[Any, None, Prompt]:
    """The prompt of a text or of ids, counted and cut. Raises ApiError as `text_prompt` does."""
    if isinstance(given, str):
        if context.render_service is not None:
            return (yield from text_ids(context, request, given))
        return (yield from text_prompt(context, request, given))
    return ids_prompt(context, request, Prompt.of_ids(context.tokenizer, given))


def text_prompt(context: Context, request: Prompted, text: str) -> Generator[Step, None, Prompt]:
    """The prompt of a text, cut as `truncate_prompt_tokens` says: from the left, unless told otherwise.

    It comes counted, in steps where it is long. Raises ApiError 400 for one so long that it cannot fit
    however it is split.
    """
    tokenizer, limits = context.tokenizer, context.limits
    longest = tokenizer.longest_piece
    if len(text) > longest:
        refuse_by_characters(request, len(text), limits, longest)
    if request.truncate_prompt_tokens is None:
        prompt = Prompt(tokenizer, text, most=limits.max_model_len, special=request.add_special_tokens)
        if prompt.long:
            yield from prompt.count()
            if context.caches and len(prompt) <= limits.max_model_len:
                yield from prompt.tokenize()
        return prompt
    kept = truncation(request, limits)
    assert kept is not None
    from_right = request.truncation_side != "right"
    window = (kept + 1) * longest
    while True:
        part = text[-window:] if from_right else text[:window]
        prompt = Prompt(tokenizer, part, special=request.add_special_tokens)
        yield from prompt.count()
        # With one token more than is kept, none of those kept is a piece of one.
        if len(part) == len(text) or len(prompt) > kept:
            if prompt.long and len(prompt) > kept:
                yield from prompt.tokenize()
            return ids_prompt(context, request, prompt)
        window *= 2


def ids_prompt(context: Context, request: Prompted, prompt: Prompt) -> Prompt:
    """The prompt cut to the ids that `truncate_prompt_tokens` keeps."""
    kept = truncation(request, context.limits)
    if kept is None or len(prompt) <= kept:
        return prompt
    ids = prompt.ids
    kept_ids = ids[:kept] if request.truncation_side == "right" else ids[len(ids) - kept :]
    return Prompt.of_ids(context.tokenizer, kept_ids)


def text_ids(context: Context, request: Prompted, text: str) -> Generator[Any, None, Prompt]:
    """The prompt of a text with the ids that the render service finds, cut. Raises ApiError as that does."""
    service = context.render_service
    assert service is not None
    refuse_by_characters(request, len(text), context.limits, context.tokenizer.longest_piece)
    found = yield from service.text(text, request.add_special_tokens)
    return ids_prompt(context, request, RenderedPrompt.of(context.tokenizer, text, found.token_ids))


def chat_ids(context: Context, chat: ChatRequest) -> Generator[Any, None, tuple[Prompt, Features | None]]:
    """The prompt of a chat, of ids alone, and its media: both as the render service finds them.

    Of a prompt that was cut the media are not told. Raises ApiError as the service does.
    """
    service = context.render_service
    assert service is not None
    found = yield from service.chat(chat)
    whole = Prompt.of_ids(context.tokenizer, found.token_ids)
    prompt = ids_prompt(context, chat, whole)
    if found.features is None or prompt is not whole:
        return prompt, None
    ranges = {modality: to_builtins(places) for modality, places in found.features.mm_placeholders.items()}
    return prompt, features(found.features.mm_hashes, ranges)


def ids_json(prompt: Prompt) -> Generator[Step, None, bytes]:
    """The prompt's ids as JSON, made in steps where there are many."""
    if not prompt.long:
        return json(prompt.ids)
    yield from prompt.tokenize()
    ids = prompt.tokens
    parts = (list(ids[start : start + IDS_AT_ONCE]) for start in range(0, len(ids), IDS_AT_ONCE))
    return (yield from _list_json(parts))


def entries_json(tokenizer: Tokenizer, prompt: Prompt) -> Generator[Step, None, bytes]:
    """What the vocabulary has for the prompt's tokens as JSON, made in steps where there are many."""
    if tokenizer.entries(()) is None:
        return (yield from texts_json(prompt))
    yield from prompt.tokenize()
    ids = prompt.tokens
    starts = range(0, len(ids), TEXTS_AT_ONCE)
    parts = (tokenizer.entries(ids[start : start + TEXTS_AT_ONCE]) for start in starts)
    return (yield from _list_json(parts))


def texts_json(prompt: Prompt) -> Generator[Step, None, bytes]:
    """The texts of the prompt's tokens as JSON, made in steps where there are many."""
    if not prompt.long:
        return json(prompt.texts)
    yield from prompt.lay_out()
    text, ends, _ = prompt.layout
    starts = range(0, len(ends) - 1, TEXTS_AT_ONCE)
    parts = ([text[a:b] for a, b in pairwise(ends[at : at + TEXTS_AT_ONCE + 1])] for at in starts)
    return (yield from _list_json(parts))


def _list_json(parts: Iterable[object]) -> Generator[Step, None, bytes]:
    """The JSON of the list that the lists in `parts`, none of them empty, make up: a step for each."""
    written = []
    for part in parts:
        written.append(json(part)[1:-1])
        yield None
    return b"[%b]" % b",".join(written)
