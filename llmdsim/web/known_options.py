"""What chats ask for besides their messages, by the text around these: clients mostly ask the same again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import asdict, replace

from llmdsim.reply.ask import Ask
from llmdsim.web import decoding, messages
from llmdsim.web.chat_request import ChatRequest, decode_chat
from llmdsim.web.errors import ApiError
from llmdsim.web.messages import Message
from llmdsim.web.sampling import Sampling
from llmdsim.web.wants import ReplyWants

#: How many options are known at most, and how long the text on either side of messages may be, in bytes.
MOST_KNOWN, LONGEST_KNOWN = 128, 512

_KEY: Final = b'"messages":'

_PLAIN: Final = ChatRequest(messages=[])
#: Defaults of the fields that may have any value in a chat to be known. The others must have their own.
_EVERYDAY: Final[dict[str, Any]] = {
    name: getattr(_PLAIN, name)
    for name in (
        "frequency_penalty",
        "ignore_eos",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "min_p",
        "min_tokens",
        "model",
        "presence_penalty",
        "priority",
        "repetition_penalty",
        "seed",
        "stop",
        "stream",
        "stream_options",
        "temperature",
        "top_k",
        "top_p",
        "user",
    )
}

_request = msgspec.json.Decoder(ChatRequest)
_messages = msgspec.json.Decoder(list[dict[str, Any]])


class Options(msgspec.Struct, frozen=True):
    """What options came to, whatever the messages: plain text of one choice, and nothing of it refused.

    `sampled` holds for prompts of 1 to `longest_prompt` tokens. `ask` and `wants` lack the prompt.
    """

    sampled: Sampling
    longest_prompt: int
    ask: Ask
    wants: ReplyWants


class KnownChat(ChatRequest, kw_only=True):
    """A valid chat request whose options are known."""

    options: Options


#: The text before messages, and that after them.
Around: TypeAlias = tuple[bytes, bytes]


class KnownChats(dict[Around, KnownChat | None]):
    """Reads chats, and remembers those that recur but for their messages; None for what is not to be known.

    `work_out` tells what the options of an everyday chat come to, or None, and may raise ApiError. Nothing of
    that may depend on what can change at run time.
    """

    def __init__(self, work_out: Callable[[ChatRequest], Options | None]) -> None:
        self._work_out = work_out
        #: What was met once: a `user` or a `seed` may make it the last time.
        self._met: set[Around] = set()

    def decode(self, body: bytes, content_type: str | None = None) -> ChatRequest:
        """The request in `body`, as `decode_chat` reads it."""
        start = body.find(_KEY, 0, LONGEST_KNOWN)
        end = body.rfind(b"]", -LONGEST_KNOWN) + 1
        if start < 0 or not end or content_type is not None:
            return decode_chat(body, content_type)
        start += len(_KEY)
        around = body[:start], body[end:]
        known = self.get(around)
        if known is not None and not decoding.may_nest_too_deeply(body):
            conversation = _read(body[start:end])
            if conversation is not None:
                return replace(known, messages=conversation)
        chat = decode_chat(body)
        if around not in self:
            self._meet(around, body)
        return chat

    def _meet(self, around: Around, body: bytes) -> None:
        """Remember a valid body, if it is met for the second time."""
        if around in self._met:
            self._met.remove(around)
            if len(self) >= MOST_KNOWN:
                self.clear()
            self[around] = self._known(around, body)
        else:
            if len(self._met) >= MOST_KNOWN:
                self._met.clear()
            self._met.add(around)

    def _known(self, around: Around, body: bytes) -> KnownChat | None:
        """What is to be known of a valid body with `around` around its messages, whatever these are."""
        before, after = around
        text = before + after
        if b"\\" in text or text.count(b"messages") != 1:
            return None
        # What is between is a list, so the key before it is a key; no other can mean "messages", but inside
        # that list. Another list in its place leaves the rest as it is.
        if decoding.exact(_messages, body[len(before) : len(body) - len(after)]) is None:
            return None
        chat = decoding.exact(_request, body)
        if chat is None or replace(chat, **_EVERYDAY) != _PLAIN:
            return None
        try:
            options = self._work_out(chat)
        except ApiError:
            return None  # its turn to be raised comes later
        return None if options is None else KnownChat(**{**asdict(chat), "messages": []}, options=options)


def _read(text: bytes) -> list[Message] | None:
    """The messages in `text`, checked; None where `decode_chat` would not take them as they are.

    Raises ApiError.
    """
    conversation = decoding.exact(_messages, text)
    if conversation is None:
        return None
    if not messages.plain(conversation):
        if messages.problems_of(conversation, ()):
            return None
        messages.settle(conversation)
    return conversation
