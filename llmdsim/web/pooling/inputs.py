"""The prompts of a pooling request: tokenized, cut, and held against the context."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from llmdsim.tokenization.chat import render_chat
from llmdsim.tokenization.media import media_tokens
from llmdsim.tokenization.prompt import Prompt
from llmdsim.tokenization.steps import Step
from llmdsim.web import prompt_forms
from llmdsim.web.context import Context
from llmdsim.web.context_length import check_context, over_context
from llmdsim.web.errors import ApiError
from llmdsim.web.messages import Message
from llmdsim.web.pooling.request import InputRequest, PoolingRequest
from llmdsim.web.prompts import prompt_of

#: Prompts that are looked at in half a millisecond.
PROMPTS_AT_ONCE = 64

#: Conversations that templates render in half a millisecond.
CHATS_AT_ONCE = 8

#: Tokens of all images and the like in one request, if one context is not more.
MOST_MEDIA = 1 << 20


def prompts_of(context: Context, request: InputRequest) -> Generator[Step, None, list[Prompt]]:
    """The prompts of a request, none of them empty, in steps. Raises ApiError 400."""
    conversations = request.conversations
    if conversations:
        prompt_forms.check_count(len(conversations), "messages", context.limits)
        kwargs = {
            **(request.chat_template_kwargs or {}),
            "add_generation_prompt": request.add_generation_prompt,
            "continue_final_message": request.continue_final_message,
        }
        texts = yield from rendered(context, conversations, kwargs, request.chat_template)
        return (yield from tokenized(context, request, texts))
    # What holds conversations has been dealt with.
    given = prompt_forms.separate(request.input, "input", context.limits)  # type: ignore[arg-type]
    return (yield from tokenized(context, request, given))


def rendered(
    context: Context,
    conversations: Sequence[Sequence[Message]],
    kwargs: Mapping[str, Any] = MappingProxyType({}),
    source: str | None = None,
) -> Generator[Any, None, list[str]]:
    """The prompt text of each conversation, by a chat template or in the built-in form.

    `kwargs` and `source` are those of the request. Raises ApiError 400 where media alone take too many tokens
    (they are held against the context before, since what is rendered has a word for each), or a template
    refuses.
    """
    limits = context.limits
    media = list(map(media_tokens, conversations))
    if max(media) > limits.max_model_len:
        raise over_context(max(media), limits)
    if sum(media) > max(MOST_MEDIA, limits.max_model_len):
        raise ApiError(400, f"The media of a request take {sum(media)} tokens, more than {MOST_MEDIA}.")
    if context.templates is None:
        return list(map(render_chat, conversations))
    texts = []
    for place, conversation in enumerate(conversations, start=1):
        if place % CHATS_AT_ONCE == 0:
            yield
        text = yield from context.templates.text(conversation, kwargs, source=source)
        texts.append(render_chat(conversation) if text is None else text)
    return texts


def tokenized(
    context: Context, request: PoolingRequest, given: Sequence[prompt_forms.Prompt]
) -> Generator[Step, None, list[Prompt]]:
    """A prompt for each text or list of ids, in steps; counted, and cut as the request says."""
    prompts: list[Prompt] = []
    for place, item in enumerate(given, start=1):
        if place % PROMPTS_AT_ONCE == 0:
            yield None
        prompt = yield from prompt_of(context, request, item)
        check_context(request, len(prompt), context.limits)
        if not len(prompt):
            raise ApiError(400, "The prompt cannot be empty.")
        prompts.append(prompt)
    return prompts


def ids_of(prompt: Prompt) -> Generator[Step, None, Sequence[int]]:
    """A prompt's token ids, found in steps where there are many."""
    if prompt.text is None or not prompt.long:
        return prompt.ids
    yield from prompt.tokenize()
    return prompt.tokens
