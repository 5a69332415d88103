"""A conversation made ready for the engine, in steps where it is long."""

from __future__ import annotations

from collections.abc import Generator

import msgspec

from llmdsim.reply.plan import Plan
from llmdsim.tokenization.chat import last_text, render_chat
from llmdsim.tokenization.media import media_tokens
from llmdsim.tokenization.prompt import Prompt
from llmdsim.tokenization.steps import Step
from llmdsim.web.chat_request import ChatRequest, refuse_untrusted
from llmdsim.web.context import Context
from llmdsim.web.context_length import over_context
from llmdsim.web.plans import plan_of
from llmdsim.web.prompts import is_short, text_prompt
from llmdsim.web.sampling import Sampling, sampling


class Conversation(msgspec.Struct, frozen=True):
    """`echoed` is what echo mode answers; `plan` is None where the answer is plain text."""

    prompt: Prompt
    echoed: Prompt
    sampled: Sampling
    plan: Plan | None


def chat_text(context: Context, chat: ChatRequest) -> str:
    """What a chat reads as. Raises ApiError."""
    refuse_untrusted(chat)
    media = media_tokens(chat.messages)
    if media > context.limits.max_model_len:
        # Here, since what is rendered has a word for each of these tokens.
        raise over_context(media, context.limits)
    return render_chat(chat.messages)


def prepare(context: Context, chat: ChatRequest, image: bool = False) -> Generator[Step, None, Conversation]:
    """What there is to know of a chat before it is given to the engine; `image`: its answer has one.

    Raises ApiError.
    """
    text = chat_text(context, chat)
    if is_short(context, chat, text):
        prompt = Prompt(context.tokenizer, text)
    else:
        prompt = yield from text_prompt(context, chat, text)
    sampled = sampling(chat, len(prompt), context.limits)
    if sampled.prompt_logprobs is not None and prompt.long:
        yield from prompt.lay_out()
    echoed = prompt
    if context.echoes:
        echoed = Prompt(context.tokenizer, last_text(chat.messages))
        if echoed.long:
            yield from echoed.lay_out()
    return Conversation(prompt, echoed, sampled, plan_of(context, chat, image))
