"""What every answer of the generation routes must be, whatever was asked."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, NoReturn

from tests.web.clients import CHAT, events

REFUSALS = range(400, 500)


class Answer(NamedTuple):
    """A judged answer; a refusal has no choices. `tokens` is `usage.completion_tokens`, where it is told."""

    status: int
    texts: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    tokens: int | None = None


def judge(path: str, status: int, headers: dict[str, str], body: bytes) -> Answer:
    """The answer, taken apart; an AssertionError if it is not a proper one. Header names are lower-case."""
    if status != 200:
        assert status in REFUSALS, body[:500]
        assert headers["content-type"] == "application/json"
        refused(status, body)
        return Answer(status)
    if headers["content-type"] == "application/json":
        return _whole(path, strict(body))
    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    return _streamed(path, body)


def refused(status: int, body: bytes) -> None:
    """The error object, in its one form."""
    document = strict(body)
    assert list(document) == ["error"], document
    error = document["error"]
    assert list(error) == ["message", "type", "param", "code"], error
    assert type(error["message"]) is str
    assert error["message"]
    assert type(error["type"]) is str
    assert isinstance(error["param"], str | None)
    assert type(error["code"]) is int
    assert error["code"] == status
    assert len(body) < 20_000, "a refusal that repeats what it was sent"


def strict(body: bytes) -> Any:
    """JSON as the standard has it: UTF-8, no NaN, no key twice, no half of a surrogate pair."""
    document = json.loads(body.decode(), parse_constant=_no_number, object_pairs_hook=_unique)
    json.dumps(document, ensure_ascii=False).encode()
    return document


def _no_number(text: str) -> NoReturn:
    raise AssertionError(f"{text} is not JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    # Two tokens may read the same among the alternatives of a text's log probabilities.
    assert len(found) == len(pairs) or all(isinstance(value, float) for value in found.values()), pairs
    return found


def _usage(usage: Any) -> int:
    prompt, total, completion = usage["prompt_tokens"], usage["total_tokens"], usage["completion_tokens"]
    assert all(type(count) is int and count >= 0 for count in (prompt, total, completion)), usage
    assert prompt + completion == total
    assert prompt > 0
    return int(completion)


def _whole(path: str, document: Any) -> Answer:
    chat = path == CHAT
    assert document["object"] == ("chat.completion" if chat else "text_completion")
    assert document["id"].startswith("chatcmpl-" if chat else "cmpl-")
    choices = document["choices"]
    assert [choice["index"] for choice in choices] == list(range(len(choices)))
    assert choices
    tokens = _usage(document["usage"])
    shown = [choice["token_ids"] for choice in choices]
    if None not in shown:
        assert sum(map(len, shown)) == tokens
    for choice in choices:
        _reason(choice["finish_reason"], chat and choice["message"].get("tool_calls"))
        for call in (chat and choice["message"].get("tool_calls")) or ():
            assert list(call) == ["id", "type", "function"]
            if choice["finish_reason"] != "length":
                assert type(strict(call["function"]["arguments"].encode())) is dict
    listed = [choice["logprobs"] for choice in choices]
    if chat and None not in listed:
        assert sum(len(found["content"]) for found in listed) == tokens
        for found in listed:
            _chat_logprobs(found)
    elif None not in listed:
        for found in listed:
            _text_logprobs(found)
    texts = tuple((choice["message"]["content"] or "") if chat else choice["text"] for choice in choices)
    assert all(type(text) is str for text in texts)
    return Answer(200, texts, tuple(choice["finish_reason"] for choice in choices), tokens)


def _reason(reason: str, calls: Any) -> None:
    assert reason in ("stop", "length", "tool_calls")
    assert calls or reason != "tool_calls"


def _chat_logprobs(found: Any) -> None:
    for entry in found["content"]:
        assert entry["logprob"] <= 0
        assert type(entry["token"]) is str
        assert all(top["logprob"] <= 0 for top in entry["top_logprobs"])


def _text_logprobs(found: Any) -> None:
    lengths = {len(found[name]) for name in ("text_offset", "token_logprobs", "tokens", "top_logprobs")}
    assert len(lengths) == 1
    assert found["text_offset"] == sorted(found["text_offset"])


def _streamed(path: str, body: bytes) -> Answer:
    chat = path == CHAT
    assert body.endswith(b"data: [DONE]\n\n")
    assert events(body)  # strict about framing
    frames = [strict(event[6:]) for event in body[:-2].split(b"\n\n")[:-1]]
    assert len({frame["id"] for frame in frames}) == 1
    wanted = "chat.completion.chunk" if chat else "text_completion"
    texts: dict[int, str] = {}
    reasons: dict[int, str] = {}
    counted: dict[int, int] = {}
    seen: dict[int, int] = {}
    calls: dict[int, dict[int, str]] = {}
    tokens = None
    for place, frame in enumerate(frames):
        assert "error" not in frame, frame
        assert frame["object"] == wanted
        if not frame["choices"]:
            assert place == len(frames) - 1
            tokens = _usage(frame["usage"])
            continue
        (choice,) = frame["choices"]
        index = choice["index"]
        assert index not in reasons, "a frame behind the last of its choice"
        piece = choice["delta"].get("content", "") if chat else choice["text"]
        assert type(piece) is str
        texts[index] = texts.get(index, "") + piece
        for call in choice["delta"].get("tool_calls", ()) if chat else ():
            _call_delta(call, calls.setdefault(index, {}))
        if choice.get("token_ids") is not None:
            seen[index] = seen.get(index, 0) + len(choice["token_ids"])
        if "usage" in frame:
            count = _usage(frame["usage"])
            assert count >= counted.get(index, 0), "usage that shrinks"
            counted[index] = count
        if choice["finish_reason"] is not None:
            _reason(choice["finish_reason"], calls.get(index))
            reasons[index] = choice["finish_reason"]
            if choice["finish_reason"] != "length":
                for arguments in calls.get(index, {}).values():
                    assert type(strict(arguments.encode())) is dict
    assert sorted(texts) == sorted(reasons) == list(range(len(texts)))
    for sums in (counted, seen):
        if sums and tokens is not None:
            assert sum(sums.values()) == tokens
    order = range(len(texts))
    return Answer(
        200, tuple(texts[index] for index in order), tuple(reasons[index] for index in order), tokens
    )


def _call_delta(call: Any, arguments: dict[int, str]) -> None:
    """One piece of a call: its identity in the first, only its place in the others."""
    index = call["index"]
    if index in arguments:
        assert list(call) == ["index", "function"], call
        assert list(call["function"]) == ["arguments"], call
    else:
        assert index == len(arguments)
        assert list(call) == ["id", "type", "index", "function"], call
        arguments[index] = ""
    arguments[index] += call["function"]["arguments"]
