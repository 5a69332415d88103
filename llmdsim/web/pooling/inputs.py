"""The prompts of a pooling request: tokenized, cut, and held against the context."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from llmdsim.tokenization.chat import render_chat
from llmdsim.tokenization.prompt import Prompt
from llmdsim.web import prompt_forms
from llmdsim.web.context import Context
from llmdsim.web.context_length import check_context
from llmdsim.web.errors import ApiError
from llmdsim.web.pooling.request import InputRequest, PoolingRequest
from llmdsim.web.prompts import ids_prompt, is_short, text_prompt

#: Prompts that are looked at in half a millisecond.
PROMPTS_AT_ONCE = 64


def prompts_of(context: Context, request: InputRequest) -> Generator[None, None, list[Prompt]]:
    """The prompts of a request, none of them empty, in steps. Raises ApiError 400."""
    conversations = request.conversations
    if conversations:
        prompt_forms.check_count(len(conversations), "messages", context.limits)
        return (yield from tokenized(context, request, list(map(render_chat, conversations))))
    # What holds conversations has been dealt with.
    given = prompt_forms.separate(request.input, "input", context.limits)  # type: ignore[arg-type]
    return (yield from tokenized(context, request, given))


def tokenized(
    context: Context, request: PoolingRequest, given: Sequence[prompt_forms.Prompt]
) -> Generator[None, None, list[Prompt]]:
    """A prompt for each text or list of ids, in steps; counted, and cut as the request says."""
    prompts: list[Prompt] = []
    for place, item in enumerate(given, start=1):
        if place % PROMPTS_AT_ONCE == 0:
            yield
        if not isinstance(item, str):
            prompt = ids_prompt(context, request, Prompt(context.tokenizer, ids=item))
        elif is_short(context, request, item):
            prompt = Prompt(context.tokenizer, item)
        else:
            prompt = yield from text_prompt(context, request, item)
        check_context(request, len(prompt), context.limits)
        if not len(prompt):
            raise ApiError(400, "The prompt cannot be empty.")
        prompts.append(prompt)
    return prompts


def ids_of(prompt: Prompt) -> Generator[None, None, Sequence[int]]:
    """A prompt's token ids, found in steps where there are many."""
    if prompt.text is None or not prompt.long:
        return prompt.ids
    yield from prompt.lay_out()
    return prompt.layout.ids
