"""What chats ask for besides their messages, by the text around these: clients mostly ask the same again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import asdict, replace

from llmdsim.reply.ask import Ask
from llmdsim.tokenization.chat import everyday_text
from llmdsim.web import decoding, messages
from llmdsim.web.chat_request import ChatRequest, decode_chat, decoder
from llmdsim.web.errors import ApiError
from llmdsim.web.messages import Message
from llmdsim.web.recurring import Recurring
from llmdsim.web.sampling import Sampling
from llmdsim.web.wants import ReplyWants

#: How long the text on either side of messages may be, in bytes.
LONGEST_KNOWN = 512

#: Bytes of bodies that are looked at: in those of longer ones little is gained.
LONGEST_BODY = 16_384

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

_messages = msgspec.json.Decoder(list[dict[str, Any]])


class Options(msgspec.Struct, frozen=True):
    """What options came to, whatever the messages: plain text of one choice, and nothing of it refused.

    `sampled` holds for prompts of 1 to `longest_prompt` tokens. The text of everyday messages is a prompt as
    it is, up to `longest_text` characters; that is negative where they may read as something else. `ask` and
    `wants` lack the prompt.
    """

    sampled: Sampling
    longest_prompt: int
    longest_text: int
    ask: Ask
    wants: ReplyWants


class KnownChat(ChatRequest, kw_only=True):
    """A valid chat request whose options are known."""

    everyday = True

    options: Options
    #: What its messages read as in the built-in form, where they are everyday ones.
    text: str | None = None

    def with_messages(self, conversation: list[Message], text: str | None) -> KnownChat:
        """The same with other messages."""
        # At half the cost of `replace`, which looks at all fields' names; msgspec does not declare it.
        chat: KnownChat = self.__copy__()  # type: ignore[attr-defined]
        chat.messages = conversation
        chat.text = text
        return chat


class KnownChats(Recurring[KnownChat]):
    """Reads chats, and remembers those that recur but for their messages; None for what is not to be known.

    They are known by the text around their messages, in one piece: it ends before them where their key does.
    `work_out` tells what the options of an everyday chat come to, or None, and may raise ApiError. Nothing of
    that may depend on what can change at run time.
    """

    def __init__(self, work_out: Callable[[ChatRequest], Options | None]) -> None:
        super().__init__()
        self._work_out = work_out

    def decode(self, body: bytes, content_type: str | None = None) -> ChatRequest:
        """The request in `body`, as `decode_chat` reads it."""
        start = body.find(_KEY, 0, LONGEST_KNOWN)
        end = body.rfind(b"]", -LONGEST_KNOWN) + 1
        if start < 0 or not end or content_type is not None or len(body) > LONGEST_BODY:
            return decode_chat(body, content_type)
        start += len(_KEY)
        around = body[:start] + body[end:]
        # False where it was never met twice.
        known: KnownChat | Literal[False] | None = self.get(around, False)
        if known and not decoding.may_nest_too_deeply(body):
            conversation = decoding.exact(_messages, body[start:end])
            if conversation is not None:
                text = everyday_text(conversation)
                if text is not None or messages.plain(conversation) or _settled(conversation):
                    return known.with_messages(conversation, text)
        chat = decode_chat(body)
        if known is False and self.recurs(around):
            self._learn(around, body[start:end], body)
        return chat

    def _learn(self, around: bytes, between: bytes, body: bytes) -> None:
        """Remember a valid body, which has `between` where its messages seem to be."""
        # If what is between is a list, the key before it is a key; no other can mean "messages", but inside
        # that list. Another list in its place leaves the rest as it is.
        certain = (
            b"\\" not in around
            and around.count(b"messages") == 1
            and decoding.exact(_messages, between) is not None
        )
        self[around] = self._known(body) if certain else None

    def _known(self, body: bytes) -> KnownChat | None:
        chat = decoding.exact(decoder, body)
        if chat is None or replace(chat, **_EVERYDAY) != _PLAIN:
            return None
        try:
            options = self._work_out(chat)
        except ApiError:
            return None  # its turn to be raised comes later
        return None if options is None else KnownChat(**{**asdict(chat), "messages": []}, options=options)


def _settled(conversation: list[Message]) -> bool:
    """Whether `decode_chat` would take such messages as they are. Raises ApiError as it does."""
    if messages.problems_of(conversation, ()):
        return False
    messages.settle(conversation)
    return True
