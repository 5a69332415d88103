"""`POST /tokenize`, `POST /detokenize` and `GET /tokenizer_info`."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec
from klein import Klein
from twisted.internet.defer import Deferred

from llmdsim.tokenization.media import media_tokens
from llmdsim.tokenization.prompt import Prompt
from llmdsim.tokenization.rendered_prompt import RenderedPrompt
from llmdsim.tokenization.unicode import well_formed
from llmdsim.web.chat_request import refuse_untrusted
from llmdsim.web.context import Context, content_type
from llmdsim.web.conversation import chat_text
from llmdsim.web.errors import ApiError
from llmdsim.web.frames import NULL
from llmdsim.web.generation import MOST_REPEATED
from llmdsim.web.prompts import chat_ids, entries_json, ids_json
from llmdsim.web.takes import takes
from llmdsim.web.token_requests import (
    MOST_TOKENS,
    Detokenize,
    TokenizeChat,
    TokenizeText,
    decode_detokenize,
    decode_tokenize,
    token_ids,
)
from llmdsim.web.turns import LONG_BODY, Steps
from llmdsim.wire.request import Request

json = msgspec.json.encode

#: What is told of no tokenizer.
_FILES = frozenset(("vocab_file", "merges_file"))


class Tokens:
    """The token routes of one rank. No length of a context bounds them."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def mount(self, app: Klein) -> None:
        """Add the routes; the one about the tokenizer only if it is asked for."""
        app.route("/tokenize", methods=["POST"], endpoint="tokenize")(self.tokenize)
        app.route("/detokenize", methods=["POST"], endpoint="detokenize")(self.detokenize)
        if self._context.config.enable_tokenizer_info_endpoint:
            app.route("/tokenizer_info", methods=["GET"], endpoint="tokenizer-info")(self.info)

    @takes(TokenizeText, TokenizeChat)
    def tokenize(self, request: Request) -> Deferred[None] | None:
        """The ids of a text or a conversation, and on demand the texts of its tokens."""
        return self._context.turns.take(self._tokenize(request))

    @takes(Detokenize)
    def detokenize(self, request: Request) -> Deferred[None] | None:
        """The text of ids."""
        return self._context.turns.take(self._detokenize(request))

    def info(self, request: Request) -> None:
        """The tokenizer's settings, in which tokens are texts, with the template that counts (vLLM)."""
        tokenizer = self._context.tokenizer
        told = {name: value for name, value in tokenizer.settings.items() if name not in _FILES}
        told.setdefault("tokenizer_class", type(tokenizer).__name__)
        templates = self._context.templates
        if templates is not None and templates.given is not None:
            told["chat_template"] = templates.given
        request.respond(200, json(_plain(told)))

    def _tokenize(self, request: Request) -> Steps:
        context = self._context
        wanted = decode_tokenize(request.body, content_type(request))
        if len(request.body) > LONG_BODY:
            yield
        context.serving(wanted.model)
        prompt = yield from self._prompt(wanted)
        if len(prompt) > MOST_TOKENS:
            raise _too_many()
        ids = yield from ids_json(prompt)
        texts = NULL
        if wanted.return_token_strs:
            texts = yield from entries_json(context.tokenizer, prompt)
        request.respond(
            200,
            b'{"count":%d,"max_model_len":%d,"tokens":%b,"token_strs":%b}'
            % (len(prompt), context.limits.max_model_len, ids, texts),
        )

    def _prompt(self, wanted: TokenizeText | TokenizeChat) -> Generator[Any, None, Prompt]:
        """The prompt, counted."""
        context = self._context
        if isinstance(wanted, TokenizeChat):
            refuse_untrusted(wanted, context.config.trust_request_chat_template)
            if context.render_service is not None:
                prompt, _ = yield from chat_ids(context, wanted)
                return prompt
            if media_tokens(wanted.messages) > MOST_TOKENS:
                raise _too_many()
            text = yield from chat_text(context, wanted)
        else:
            text = wanted.prompt
            if context.render_service is not None:
                found = yield from context.render_service.text(text, wanted.add_special_tokens)
                return RenderedPrompt.of(context.tokenizer, text, found.token_ids)
        prompt = Prompt(context.tokenizer, text, most=MOST_TOKENS, special=wanted.add_special_tokens)
        if prompt.long:
            yield from prompt.count()
        return prompt

    def _detokenize(self, request: Request) -> Steps:
        context = self._context
        wanted = decode_detokenize(request.body, content_type(request))
        if len(request.body) > LONG_BODY:
            yield
        context.serving(wanted.model)
        ids = yield from token_ids(wanted.tokens, context.tokenizer.vocab_size)
        text = yield from self._text_json(ids)
        request.respond(200, b'{"prompt":"%b"}' % text)

    def _text_json(self, ids: list[int]) -> Generator[None, None, bytes]:
        """The text of `ids` as the inside of a JSON string."""
        parts = []
        characters = 0
        for texts in self._context.tokenizer.decode_parts(ids):
            characters += sum(map(len, texts))
            if characters > MOST_REPEATED:
                raise ApiError(
                    400, f"These tokens have more than {MOST_REPEATED} characters.", param="tokens"
                )
            parts.append(json("".join(texts))[1:-1])
            yield
        return b"".join(parts)


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        # What was read from a file may have half a surrogate pair, which cannot be told.
        return well_formed(value)
    if isinstance(value, dict):
        return {well_formed(name): _plain(_text(each)) for name, each in value.items()}
    return [_plain(_text(each)) for each in value] if isinstance(value, list) else value


def _text(value: Any) -> Any:
    """That of a token."""
    content = value.get("content") if isinstance(value, dict) else None
    return content if isinstance(content, str) else value


def _too_many() -> ApiError:
    return ApiError(400, f"This text has more than {MOST_TOKENS} tokens.")
