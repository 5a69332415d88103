"""The bodies of `POST /tokenize` and `POST /detokenize`: decoded as vLLM 0.33 decodes them, or refused."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec

from llmdsim.web import coercion, decoding, messages
from llmdsim.web.chat_request import ChatRequest, read_messages, refuse_template_options
from llmdsim.web.decoding import MAX_PROBLEMS, Path, Problem
from llmdsim.web.errors import ApiError

#: Tokens that one request may ask about: their ids take up to 44 MiB of JSON.
MOST_TOKENS = 4 << 20
#: Ids that are looked at in half a millisecond, whatever the client sent in their place.
IDS_AT_ONCE = 512
#: What a chat to tokenize is told by; vLLM ignores all else that a chat may have.
_CHAT_FIELDS = (
    *("model", "messages", "tools", "return_token_strs", "add_generation_prompt", "continue_final_message"),
    *("add_special_tokens", "chat_template", "chat_template_kwargs", "media_io_kwargs"),
    "mm_processor_kwargs",
)

_ABSENT = msgspec.Raw()


class TokenizeText(msgspec.Struct, kw_only=True):
    """A text to tokenize. It may be empty."""

    model: str | None = None
    prompt: str
    add_special_tokens: bool = True
    return_token_strs: bool | None = False


class _EitherForm(TokenizeText, kw_only=True):
    messages: msgspec.Raw = _ABSENT


class TokenizeChat(ChatRequest, kw_only=True):
    """A conversation to tokenize."""

    return_token_strs: bool | None = False


class Detokenize(msgspec.Struct, kw_only=True):
    """Tokens to turn into text; they are yet to be looked at by `token_ids`."""

    model: str | None = None
    tokens: list[Any]


_text_decoder = msgspec.json.Decoder(_EitherForm)
_chat_decoder = msgspec.json.Decoder(TokenizeChat)
_tokens_decoder = msgspec.json.Decoder(Detokenize)


def decode_tokenize(body: bytes, content_type: str | None) -> TokenizeText | TokenizeChat:
    """The request in `body`; with both forms' fields, the chat. Raises `ApiError` 400, nothing else."""
    decoding.refuse_media_type(content_type)
    if not decoding.bad_utf8(body):
        found = _exactly(body)
        if found is not None:
            return found
    data = decoding.parse(body)
    if data.get("messages") is None and "prompt" in data:
        return coercion.read_whole(TokenizeText, data, {})
    if data.get("messages") is None:
        missing = "a prompt or messages are required"
        raise decoding.refusal([Problem("missing", (form,), missing) for form in ("prompt", "messages")])
    fields = {name: data[name] for name in _CHAT_FIELDS if name in data}
    return _settled(coercion.read_whole(TokenizeChat, fields, {"messages": read_messages}))


def _exactly(body: bytes) -> TokenizeText | TokenizeChat | None:
    """The request, if every value has its type; several times as fast as reading it leniently."""
    text = decoding.exact(_text_decoder, body)
    if text is not None and not bytes(text.messages):
        return text
    chat = decoding.exact(_chat_decoder, body)
    if chat is None or decoding.may_nest_too_deeply(body) or messages.problems_of(chat.messages, ()):
        return None
    return _settled(chat)


def _settled(chat: TokenizeChat) -> TokenizeChat:
    # vLLM's request has no such fields here.
    chat.documents = chat.reasoning_effort = None
    chat.given_tool_choice = msgspec.UNSET
    chat.truncate_prompt_tokens = None
    messages.settle(chat.messages)
    refuse_template_options(chat)
    return chat


def decode_detokenize(body: bytes, content_type: str | None) -> Detokenize:
    """The request in `body`. Raises `ApiError` 400; never another exception, whatever the bytes."""
    decoding.refuse_media_type(content_type)
    request = decoding.exact(_tokens_decoder, body)
    if request is None or decoding.bad_utf8(body) or decoding.may_nest_too_deeply(body):
        request = coercion.read_whole(Detokenize, decoding.parse(body), {"tokens": _read_tokens})
    if len(request.tokens) > MOST_TOKENS:
        raise ApiError.parameter(f"At most {MOST_TOKENS} tokens can be detokenized at a time.", "tokens")
    return request


def _read_tokens(value: Any, path: Path, problems: list[Problem]) -> Any:
    if not isinstance(value, list):
        problems.append(Problem("list_type", path, "expected a list", value))
    return value


def token_ids(tokens: list[Any], vocab_size: int) -> Generator[None, None, list[int]]:
    """Tokens as ids, found in steps. Raises ApiError 400 for what is no id, or is not in the vocabulary."""
    ids: list[int] = []
    problems: list[Problem] = []
    for start in range(0, len(tokens), IDS_AT_ONCE):
        part = tokens[start : start + IDS_AT_ONCE]
        if set(map(type, part)) != {int} or min(part) < 0:
            part = [_token_id(item, start + place, problems) for place, item in enumerate(part)]
            if len(problems) > MAX_PROBLEMS:
                break
        if not problems and max(part) >= vocab_size:
            raise ApiError(400, f"Token id {max(part)} is out of vocabulary.")
        ids += part
        yield
    if problems:
        raise decoding.refusal(problems)
    return ids


def _token_id(item: Any, place: int, problems: list[Problem]) -> Any:
    path = ("tokens", place)
    number = coercion.integer(item, path, problems)
    if isinstance(number, int) and number < 0:
        problems.append(Problem("greater_than_equal", path, "expected at least 0", item, {"ge": 0}))
    return number
