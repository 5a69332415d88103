"""A conversation made ready for the engine, in steps where it is long."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec

from llmdsim.reply.plan import Plan
from llmdsim.tokenization.chat import last_text, render_chat
from llmdsim.tokenization.media import media_tokens
from llmdsim.tokenization.prompt import Prompt
from llmdsim.web.chat_request import ChatRequest, refuse_untrusted
from llmdsim.web.context import Context
from llmdsim.web.context_length import over_context
from llmdsim.web.known_options import KnownChat, Options
from llmdsim.web.media_features import Features, features_of, media_of
from llmdsim.web.messages import Message
from llmdsim.web.plans import plan_of
from llmdsim.web.prompts import chat_ids, is_short, text_prompt
from llmdsim.web.sampling import Sampling, sampling


class Conversation(msgspec.Struct, frozen=True):
    """`echoed` is what echo mode answers; `plan` is None where the answer is plain text.

    `told` are the features that a render service has told of.
    """

    messages: list[Message]

    prompt: Prompt
    echoed: Prompt
    sampled: Sampling
    plan: Plan | None
    told: Features | None = None

    @property
    def features(self) -> Features | None:
        """Those of the media, if there are any. To find them may take a layout of the prompt."""
        return self.told or features_of(self.messages, self.prompt)


def chat_text(context: Context, chat: ChatRequest) -> Generator[Any, None, str]:
    """What a chat reads as, in the template that counts for it, or else in the built-in form.

    Raises ApiError.
    """
    if context.templates is not None:
        text = yield from context.templates.chat(chat)
        if text is not None:
            return text
    return render_chat(chat.messages)


def chat_prompt(context: Context, chat: ChatRequest) -> Generator[Any, None, tuple[Prompt, Features | None]]:
    """The prompt of a chat, counted and cut, and what a render service tells of its media.

    Raises ApiError.
    """
    if context.render_service is not None:
        refuse_untrusted(chat, context.config.trust_request_chat_template)
        return (yield from chat_ids(context, chat))
    _refuse(context, chat)
    text = yield from chat_text(context, chat)
    return (yield from text_prompt(context, chat, text)), None


def _refuse(context: Context, chat: ChatRequest) -> int:
    """Raise the ApiError for what is wrong with a chat before it is rendered; returns its media's tokens."""
    if not isinstance(chat, KnownChat):
        refuse_untrusted(chat, context.config.trust_request_chat_template)
    media = media_tokens(chat.messages)
    if media > context.limits.max_model_len:
        # Here, since what is rendered has a word for each of these tokens.
        raise over_context(media, context.limits)
    return media


def prepare(context: Context, chat: ChatRequest, image: bool = False) -> Generator[Any, None, Conversation]:
    """What there is to know of a chat before it is given to the engine; `image`: its answer has one.

    Raises ApiError.
    """
    told, media = None, 0
    known: Options | None = None
    text: str | None = None
    if isinstance(chat, KnownChat):
        known, text = chat.options, chat.text
    if known is not None and text is not None and len(text) <= known.longest_text:
        # Nearly every chat.
        prompt = Prompt(context.tokenizer, text)
        if context.caches:
            prompt.number()
    elif context.templates is None and context.render_service is None:
        # What `chat_prompt` comes to for nearly all chats, without its steps.
        media = _refuse(context, chat)
        text = render_chat(chat.messages)
        if is_short(context, chat, text):
            prompt = Prompt(context.tokenizer, text)
            if context.caches:
                prompt.number()
        else:
            prompt = yield from text_prompt(context, chat, text)
    else:
        prompt, told = yield from chat_prompt(context, chat)
        media = media_tokens(chat.messages)
    if media and context.caches:
        if prompt.long:
            yield from prompt.lay_out()
        prompt.media = media_of(told or features_of(chat.messages, prompt))
    if known is not None and 0 < len(prompt) <= known.longest_prompt:
        sampled = known.sampled
    else:
        sampled = sampling(chat, len(prompt), context.limits)
    if sampled.prompt_logprobs is not None and prompt.long:
        yield from prompt.lay_out()
    echoed = prompt
    if context.echoes:
        echoed = Prompt(context.tokenizer, last_text(chat.messages))
        if echoed.long:
            yield from echoed.lay_out()
    plan = None if known is not None else plan_of(context, chat, image)
    return Conversation(chat.messages, prompt, echoed, sampled, plan, told)
