"""The body of `POST /v1/completions`: decoded, checked as vLLM 0.33 checks it, or refused with its 400."""

from __future__ import annotations

from typing import Any

import msgspec

from llmdsim.web import coercion, decoding, prompt_forms, raw_rules
from llmdsim.web.errors import ApiError
from llmdsim.web.generation_request import GenerationRequest
from llmdsim.web.limits import Limits
from llmdsim.web.request_rules import read_thinking_token_budget, settle

#: `max_tokens` where the client sends none, or null
DEFAULT_MAX_TOKENS = 16


class TextRequest(GenerationRequest, kw_only=True):
    """A valid text completion request; `prompts` gives its prompts one by one."""

    #: text, texts, ids or lists of ids: never a mixture. Non-empty, but its members may be empty
    prompt: prompt_forms.Prompts | None = None
    n: int = 1
    #: -1 is the whole vocabulary
    logprobs: int | None = None
    suffix: str | None = None
    prompt_embeds: str | list[str] | None = None
    add_special_tokens: bool = True

    @property
    def echoed_logprobs(self) -> int | None:
        return self.logprobs

    @property
    def asked_max_tokens(self) -> tuple[int | None, str]:
        """The client's own bound on the answer, if any, and the field it came in."""
        return self.max_tokens, "max_tokens"


_decoder = msgspec.json.Decoder(TextRequest)


def decode_text(body: bytes, content_type: str | None = None) -> TextRequest:
    """The request in `body`. Raises `ApiError` 400; never another exception, whatever the bytes."""
    return checked(typed(body, content_type), body)


def typed(body: bytes, content_type: str | None = None) -> TextRequest | None:
    """The first half of `decode_text`: the request where every value has its type already, else None."""
    if content_type is not None:
        decoding.refuse_media_type(content_type)
    return decoding.exact(_decoder, body)


def checked(request: TextRequest | None, body: bytes) -> TextRequest:
    """The second half: what `typed` made of the body, or else the body read again."""
    if (
        request is None
        or not prompt_forms.uniform(request.prompt)
        or _may_be_refused(request)
        or decoding.bad_utf8(body)
    ):
        return _read_leniently(body)
    decoding.refuse_too_deep(body, request)
    _settle_options(request)
    return request


def prompts(request: TextRequest, limits: Limits) -> list[prompt_forms.Prompt]:
    """The prompts of a request, each a text or a non-empty list of ids below `limits.vocab_size`.

    Raises a 400 as `prompt_forms.separate` does, and for more choices in all than the larger of `max_n` and
    `max_prompts`. An empty text counts no tokens, which `sampling` refuses.
    """
    assert request.prompt  # decode_text refuses null and []
    found = prompt_forms.separate(request.prompt, "prompt", limits)
    count, n = len(found), request.n
    most = max(limits.max_n, limits.max_prompts)
    if n <= limits.max_n and count * n > most:
        raise ApiError.parameter(f"{count} prompts with n={n} make more than {most} choices.", "n", n)
    return found


def _may_be_refused(request: TextRequest) -> bool:
    """Whether `_apply_raw_rules` may refuse this; the lenient reading then decides. False: it would not."""
    of_prompt = request.prompt_logprobs
    return bool(
        (request.stream_options is not None and not request.stream)
        or (request.logprobs is not None and request.logprobs < -1)
        or (of_prompt is not None and (of_prompt < -1 or (of_prompt != 0 and request.stream)))
        or request.use_beam_search
        or request.logprob_token_ids
        or request.response_format is not None
        or request.structured_outputs is not None
        or request.cache_salt is not None
    )


def _read_leniently(body: bytes) -> TextRequest:
    data = decoding.parse(body)
    _apply_raw_rules(data)
    request = coercion.read_whole(TextRequest, data, _SPECIAL)
    _settle_options(request)
    return request


def _apply_raw_rules(data: dict[str, Any]) -> None:
    """The combinations vLLM refuses before it looks at types, in its order; the first hit is the answer."""
    prompt = data.get("prompt")
    if prompt in (None, "", []) and data.get("prompt_embeds") in (None, []):
        raise ApiError.parameter("A prompt must be provided, and must not be empty.", "prompt")
    raw_rules.stream_options(data)
    echo, logprobs = data.get("echo"), data.get("logprobs")
    if data.get("logprob_token_ids") and data.get("use_beam_search"):
        raw_rules.logprob_token_ids(data, True)
    if data.get("use_beam_search") and echo and logprobs is not None:
        raise ApiError.parameter("`echo` with `logprobs` does not work with beam search.", "echo")
    if data.get("logprob_token_ids") and echo and data.get("max_tokens") == 0:
        message = "`logprob_token_ids` has no tokens to score with `echo=True` and `max_tokens=0`."
        raise ApiError.parameter(message, "logprob_token_ids")
    raw_rules.logprob_token_ids(data, logprobs is not None)
    raw_rules.integers(data, "prompt_logprobs", "logprobs")
    raw_rules.prompt_logprobs(data)
    raw_rules.non_negative(data, "logprobs")
    raw_rules.structured_outputs(data, "structured_outputs")
    raw_rules.response_format(data)
    raw_rules.cache_salt(data)


def _settle_options(request: TextRequest) -> None:
    """What vLLM finds out after the types are right."""
    if request.use_beam_search and request.stream:
        raise ApiError(400, "Streaming is not supported with beam search.")
    if request.suffix is not None:
        raise ApiError(
            400, "suffix needs a model that fills in the middle, which this one is not.", param="suffix"
        )
    if request.prompt_embeds not in (None, []):
        message = "Prompt embeddings need `--enable-prompt-embeds`, which this server does not have."
        raise ApiError.parameter(message, "prompt_embeds")
    settle(request)


_SPECIAL = {"prompt": prompt_forms.read, "thinking_token_budget": read_thinking_token_budget}
