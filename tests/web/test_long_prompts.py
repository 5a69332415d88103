"""Long prompts: they are tokenized in turns with everybody else, and answered as short ones are."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.logger import capturedLogs

from llmdsim.tokenization import BuiltinTokenizer
from tests.web.clients import CHAT, TEXT, events, post, reply_of, request, said
from tests.web.rig import PassRig
from tests.wire.channel import Reply

BIG = ("--max-model-len", "2000000")
CHINESE = "今天去公园看花。" * 2500  # five parts
ENGLISH = "one two, three. " * 10_000
IDS = [number * 7919 % 150_000 for number in range(10_000)]
TOKENS = BuiltinTokenizer()


def same(found: object, expected: object) -> bool:
    """Whether they are equal, without a word about how these megabytes differ."""
    return found == expected


def usage(reply: Reply) -> dict[str, Any]:
    assert reply.status == 200, reply.body[:300]
    found: dict[str, Any] = json.loads(reply.body)["usage"]
    return found


def long_fields(path: str, text: str = CHINESE) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]} if path == CHAT else {"prompt": text}


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_others_are_answered_while_a_long_prompt_is_counted(path: str) -> None:
    rig = PassRig(*BIG)
    long = post(rig, path, **long_fields(path))
    assert long.received == b""
    assert rig.rank.engine.idle, "it arrives when its prompt is ready"
    other = post(rig, path)
    rig.turns(1)
    assert usage(reply_of(other))["completion_tokens"] == 5
    assert long.received == b""
    assert rig.finish() > 1
    counted = TOKENS.count(f"### user: {CHINESE}\n" if path == CHAT else CHINESE)
    assert usage(reply_of(long))["prompt_tokens"] == counted


def test_long_prompts_take_turns_with_each_other() -> None:
    rig = PassRig(*BIG)
    first, second = (post(rig, TEXT, **long_fields(TEXT)) for _ in range(2))
    rig.turns(4)
    assert not first.received, "one step a turn, of either"
    rig.turns(6)
    assert first.received
    assert second.received


def test_a_prompt_of_one_part_is_answered_at_once() -> None:
    rig = PassRig(*BIG)
    client = post(rig, TEXT, **long_fields(TEXT, "世" * 4000))
    assert usage(reply_of(client))["prompt_tokens"] == 4000


def test_a_client_that_leaves_ends_the_counting() -> None:
    rig = PassRig(*BIG)
    client = post(rig, CHAT, **long_fields(CHAT))
    assert rig.rank.context.turns.busy
    client.rst()
    assert not rig.rank.context.turns.busy
    rig.turns(20)
    assert rig.rank.engine.idle
    assert rig.rank.stats.prompt_tokens == 0


def test_one_that_leaves_later_is_aborted_as_ever() -> None:
    rig = PassRig(*BIG, "--time-to-first-token", "1s")
    client = post(rig, CHAT, **long_fields(CHAT))
    rig.turns(10)
    assert rig.rank.stats.running == 1
    client.rst()
    assert rig.rank.engine.idle


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("given", [CHINESE, ENGLISH, IDS])
def test_a_long_prompt_is_echoed_with_its_ids(stream: bool, given: str | list[int]) -> None:
    """All of it at once: echo mode, the prompt in front, and the ids of both."""
    rig = PassRig("--mode", "echo", *BIG)
    client = post(rig, TEXT, prompt=given, stream=stream, max_tokens=10**6, return_token_ids=True)
    assert rig.finish() > 5
    ids = TOKENS.encode(given) if isinstance(given, str) else given
    text = given if isinstance(given, str) else "".join(TOKENS.decode(given))
    reply = reply_of(client)
    if stream:
        frames = events(reply.body)
        assert same(said(frames), text)
        choices = [frame["choices"][0] for frame in frames[:-1]]
        assert same(choices[0]["prompt_token_ids"], ids)
        assert same([each for choice in choices for each in choice["token_ids"]], ids)
    else:
        (choice,) = json.loads(reply.body)["choices"]
        assert same(choice["text"], text)
        assert same([choice["prompt_token_ids"], choice["token_ids"]], [ids, ids])


def test_choices_share_one_copy_of_the_prompt_they_echo() -> None:
    rig = PassRig("--time-to-first-token", "1s", *BIG)
    post(rig, TEXT, prompt=ENGLISH, echo=True, n=4)
    rig.turns(10)
    (connection,) = rig.site.connections
    answer: Any = connection._current.on_lost.__self__  # type: ignore[union-attr]
    first, *others = answer.wants.choices
    assert len(first.lead) >= len(ENGLISH)
    assert all(choice.lead is first.lead for choice in others)


def test_a_chat_echoes_its_long_last_message() -> None:
    rig = PassRig("--mode", "echo", *BIG)
    client = post(rig, CHAT, **{**long_fields(CHAT), "max_tokens": 10**6, "return_token_ids": True})
    rig.finish()
    reply = json.loads(reply_of(client).body)
    assert same(reply["choices"][0]["message"]["content"], CHINESE)
    assert same(reply["prompt_token_ids"], TOKENS.encode(f"### user: {CHINESE}\n"))
    assert same(reply["choices"][0]["token_ids"], TOKENS.encode(CHINESE))


def test_several_long_prompts_in_one_request() -> None:
    rig = PassRig("--mode", "echo", *BIG)
    prompts = [CHINESE, "short", ENGLISH]
    client = post(rig, TEXT, prompt=prompts, max_tokens=10**6)
    rig.finish()
    reply = json.loads(reply_of(client).body)
    assert same([choice["text"] for choice in reply["choices"]], prompts)
    assert reply["usage"]["prompt_tokens"] == sum(map(TOKENS.count, prompts))


@pytest.mark.parametrize("given", ["short", [1, 2, 3]])
def test_many_short_prompts_are_looked_at_in_turns(given: str | list[int]) -> None:
    rig = PassRig()
    few = post(rig, TEXT, prompt=[given] * 60, max_tokens=1)
    assert not rig.rank.context.turns.busy
    many = post(rig, TEXT, prompt=[given] * 1000, max_tokens=1)
    assert rig.rank.context.turns.busy
    assert rig.finish() > 10
    for client, number in (few, 60), (many, 1000):
        assert len(json.loads(reply_of(client).body)["choices"]) == number


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("given", [CHINESE, ENGLISH, IDS])
def test_a_long_prompt_is_truncated(side: str, given: str | list[int]) -> None:
    rig = PassRig("--max-model-len", "9000")
    client = post(
        rig,
        TEXT,
        prompt=given,
        max_tokens=1,
        truncate_prompt_tokens=8000,
        truncation_side=side,
        return_token_ids=True,
    )
    rig.finish()
    ids = TOKENS.encode(given) if isinstance(given, str) else given
    (choice,) = json.loads(reply_of(client).body)["choices"]
    assert same(choice["prompt_token_ids"], ids[-8000:] if side == "left" else ids[:8000])


def refusal(rig: PassRig, path: str, **more: Any) -> tuple[int, str, str | None]:
    client = post(rig, path, **more)
    rig.finish()
    reply = reply_of(client)
    error = json.loads(reply.body)["error"]
    return reply.status, error["message"], error["param"]


def test_what_does_not_fit_is_refused_as_a_short_one_is() -> None:
    rig = PassRig("--max-model-len", "1024")
    # No more than 256 characters a token, so that it must be counted.
    status, message, param = refusal(rig, TEXT, prompt="世" * 20_000, max_tokens=5)
    assert (status, param) == (400, "input_tokens")
    assert "your prompt has 20000 input tokens" in message
    status, message, param = refusal(rig, TEXT, prompt="世 " * 131_072, max_tokens=5)
    assert (status, param) == (400, "input_tokens")
    status, message, param = refusal(rig, TEXT, prompt="世" * 262_145, max_tokens=5)
    assert (status, param) == (400, "input_text")
    status, message, param = refusal(rig, TEXT, prompt=IDS, max_tokens=5)
    assert (status, param) == (400, "input_tokens")
    assert "your prompt has 10000 input tokens" in message


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_the_first_fault_is_still_the_answer(path: str) -> None:
    """In the order of a short prompt's checks: form, model, bounds, prompt by prompt the rest."""
    rig = PassRig("--max-model-len", "1024")
    text = long_fields(path, "世" * 20_000)
    assert refusal(rig, path, **text, model="other")[0] == 404
    assert refusal(rig, path, **text, max_tokens=2000, temperature=-1)[2] == "max_tokens"
    assert refusal(rig, path, **text, max_tokens=5, temperature=-1)[2] == "input_tokens"
    assert refusal(PassRig(*BIG), path, **text, max_tokens=5, temperature=-1)[2] == "temperature"


def test_of_several_prompts_the_first_at_fault_is_told() -> None:
    rig = PassRig("--max-model-len", "1024")
    message = refusal(rig, TEXT, prompt=["世" * 20_000, "世" * 10_000], max_tokens=5)[1]
    assert "20000 input tokens" in message


def test_a_full_queue_refuses_a_long_prompt_when_it_is_ready() -> None:
    rig = PassRig(
        *BIG, "--max-num-seqs", "1", "--max-waiting-queue-length", "0", "--time-to-first-token", "9s"
    )
    post(rig, CHAT)
    long = post(rig, CHAT, **long_fields(CHAT))
    assert long.received == b""
    rig.turns(10)
    reply = reply_of(long)
    assert (reply.status, reply.headers[b"retry-after"]) == (429, b"1")


def test_a_pipelined_request_is_answered_after_the_long_one() -> None:
    rig = PassRig(*BIG)
    client = post(rig, TEXT, **long_fields(TEXT)).send(request(TEXT, {"prompt": "a", "max_tokens": 1}))
    assert client.received == b""
    rig.finish()
    assert client.received.count(b"HTTP/1.1 200 ") == 2


def test_a_fault_while_a_prompt_is_counted_is_a_logged_500(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = PassRig(*BIG)
    long = post(rig, TEXT, **long_fields(TEXT))

    def broken(*_: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(BuiltinTokenizer, "count", broken)
    with capturedLogs() as logged:
        rig.finish()
    assert reply_of(long).status == 500
    assert len(logged) == 1
