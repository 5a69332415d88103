"""The body of `POST /v1/completions`: decoded, checked as vLLM 0.33 checks it, or refused with its 400."""

from __future__ import annotations

from array import array
from typing import Any

import msgspec

from llmdsim.web import coercion, decoding, raw_rules
from llmdsim.web.decoding import Path, Problem
from llmdsim.web.errors import ApiError
from llmdsim.web.generation_request import GenerationRequest
from llmdsim.web.limits import Limits
from llmdsim.web.request_rules import read_thinking_token_budget, settle

#: `max_tokens` where the client sends none, or null
DEFAULT_MAX_TOKENS = 16

Prompt = str | list[int]


class TextRequest(GenerationRequest, kw_only=True):
    """A valid text completion request; `prompts` gives its prompts one by one."""

    #: text, texts, ids or lists of ids: never a mixture. Non-empty, but its members may be empty
    prompt: str | list[str | int | list[int]] | None = None
    n: int = 1
    #: -1 is the whole vocabulary
    logprobs: int | None = None
    suffix: str | None = None
    prompt_embeds: str | list[str] | None = None
    add_special_tokens: bool = True

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
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return None


def checked(request: TextRequest | None, body: bytes) -> TextRequest:
    """The second half: what `typed` made of the body, or else the body read again."""
    if request is None:
        return _read_leniently(body)
    if not _uniform(request.prompt) or _may_be_refused(request) or decoding.bad_utf8(body):
        return _read_leniently(body)
    if decoding.may_nest_too_deeply(body) and decoding.nested_too_deeply(request):
        raise decoding.too_deep()
    _settle_options(request)
    return request


def prompts(request: TextRequest, limits: Limits) -> list[Prompt]:
    """The prompts of a request, each a text or a non-empty list of ids below `limits.vocab_size`.

    Raises a 400 for more prompts than `limits.max_prompts`, more choices in all than the larger of `max_n`
    and `max_prompts`, an empty list of ids, and ids out of the vocabulary. An empty text counts no tokens,
    which `sampling` refuses.
    """
    prompt = request.prompt
    if isinstance(prompt, str):
        return [prompt]
    assert prompt  # decode_text refuses null and []
    if isinstance(prompt[0], int):
        found: list[Any] = [prompt]
    else:
        found = prompt
        _check_count(len(prompt), request.n, limits)
    for item in found:
        if type(item) is list:
            if not item:
                raise ApiError(400, "A prompt cannot be empty.")
            if max(item) >= limits.vocab_size:
                raise ApiError(400, f"Token id {max(item)} is out of vocabulary.")
    return found


def _check_count(count: int, n: int, limits: Limits) -> None:
    if count > limits.max_prompts:
        message = f"prompt holds {count} prompts, which exceeds the maximum of {limits.max_prompts}."
        raise ApiError.parameter(message, "prompt")
    most = max(limits.max_n, limits.max_prompts)
    if n <= limits.max_n and count * n > most:
        raise ApiError.parameter(f"{count} prompts with n={n} make more than {most} choices.", "n", n)


def _uniform(prompt: Any) -> bool:
    """Whether a prompt is one of the four forms, exactly, and not empty; negative ids count as no form."""
    if type(prompt) is not list:
        return bool(prompt)
    if prompt and type(prompt[0]) is int:
        try:
            # Five times as fast as `_are_ids`, but takes booleans, of which there are none here.
            array("Q", prompt)
        except (TypeError, OverflowError):
            return _are_ids(prompt)
        return True
    kinds = set(map(type, prompt))
    if kinds == {str}:
        return True
    return kinds == {list} and all(not inner or min(inner) >= 0 for inner in prompt)


def _are_ids(values: list[Any]) -> bool:
    return set(map(type, values)) == {int} and min(values) >= 0


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


def _read_prompt(value: Any, path: Path, problems: list[Problem]) -> Any:
    """One of the four forms: as it is where it fits one exactly, else as ids read leniently."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, list) and (all(isinstance(item, str) for item in value) or _are_ids(value)):
        return value
    found: list[Problem] = []
    for read in (_read_id, _read_id_list):
        own: list[Problem] = []
        result = _read_each(read, value, path, own)
        if not own:
            return result
        found += own
    found.append(Problem("string_type", path, "expected a string", value))
    _read_each(_read_text, value, path, found)
    problems += found
    return value


def _read_each(read: coercion.Reader, value: Any, path: Path, problems: list[Problem]) -> Any:
    """A list whose items `read` reads, until too many could not be."""
    if not isinstance(value, list):
        problems.append(Problem("list_type", path, "expected a list", value))
        return value
    most = len(problems) + decoding.MAX_PROBLEMS
    result = []
    for index, item in enumerate(value):
        result.append(read(item, (*path, index), problems))
        if len(problems) > most:
            break
    return result


def _read_id(value: Any, path: Path, problems: list[Problem]) -> Any:
    number = coercion.integer(value, path, problems)
    if isinstance(number, int) and number < 0:
        problems.append(Problem("greater_than_equal", path, "expected at least 0", value, {"ge": 0}))
    return number


def _read_id_list(value: Any, path: Path, problems: list[Problem]) -> Any:
    return _read_each(_read_id, value, path, problems)


def _read_text(value: Any, path: Path, problems: list[Problem]) -> Any:
    if not isinstance(value, str):
        problems.append(Problem("string_type", path, "expected a string", value))
    return value


_SPECIAL = {"prompt": _read_prompt, "thinking_token_budget": read_thinking_token_budget}
