"""Streams and whole replies as they leave: what is in which write, and one answer whatever fails."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.logger import capturedLogs

from llmdsim.engine.pacing import BURST
from llmdsim.web.stream import StreamedChoice
from llmdsim.wire.request import Request
from tests.web.clients import CHAT, TEXT, choices_of, events, fields, finishes, post, reply_of, request, said
from tests.web.rig import PassRig, RankRig
from tests.wire.channel import Client, read_replies

PACED = ("--time-to-first-token", "1s", "--inter-token-latency", "1s")
BOTH = pytest.mark.parametrize("path", [CHAT, TEXT])
KINDS = pytest.mark.parametrize("stream", [False, True])
USAGE = {"stream_options": {"include_usage": True}}


def frames_of(client: Client) -> list[Any]:
    reply = reply_of(client)
    assert reply.status == 200
    return events(reply.body)


def new_frames(client: Client, before: int) -> list[list[Any]]:
    """The frames of each write from number `before` on, none of which is the head."""
    found = []
    for write in client.transport.writes[before:]:  # type: ignore[attr-defined]
        head = b"HTTP/1.1 200 OK\r\ncontent-type: x\r\ntransfer-encoding: chunked\r\n\r\n"
        (reply,) = read_replies(head + write, [b"POST"], ended=False)
        found.append(events(reply.body))
    return found


def writes(client: Client) -> list[bytes]:
    return client.transport.writes  # type: ignore[attr-defined, no-any-return]


# --- writes


@BOTH
def test_without_latency_a_stream_is_one_write(path: str) -> None:
    client = post(RankRig(), path, stream=True, **USAGE)
    assert len(writes(client)) == 1
    frames = frames_of(client)
    assert len(frames) == (path == CHAT) + 5 + 2
    assert reply_of(client).complete


@BOTH
@pytest.mark.parametrize("n", [1, 3])
def test_a_long_stream_without_latency_takes_turns(path: str, n: int) -> None:
    """What comes in one pass is bounded, so that others get their turn; each token is an event yet."""
    rig = RankRig()
    client = post(rig, path, stream=True, max_tokens=BURST * 2 + 10, n=n)
    assert len(writes(client)) == n
    rig.clock.pump([0.01] * 5)
    assert len(writes(client)) == 3 * n
    frames = frames_of(client)
    assert len(choices_of(frames)) == n * ((path == CHAT) + BURST * 2 + 10)
    assert finishes(frames) == [(index, "length") for index in range(n)]


def test_costly_tokens_leave_in_smaller_portions() -> None:
    """With twenty alternatives a token costs twenty times as much; what is left has turns of its own."""
    rig = PassRig()
    client = post(rig, CHAT, stream=True, max_tokens=BURST, logprobs=True, top_logprobs=20)
    assert rig.rank.engine.idle
    assert len(choices_of(frames_of(client))) < BURST // 4
    assert not reply_of(client).complete
    while rig.rank.context.turns.busy:
        written = len(writes(client))
        rig.turns(1)
        assert len(writes(client)) == written + 1
    frames = frames_of(client)
    assert len(choices_of(frames)) == 1 + BURST
    assert finishes(frames) == [(0, "length")]
    assert reply_of(client).complete


@BOTH
def test_the_head_goes_out_alone_when_the_first_token_is_not_due(path: str) -> None:
    rig = RankRig(*PACED)
    client = post(rig, path, stream=True)
    assert len(writes(client)) == 1
    assert writes(client)[0].endswith(b"\r\n\r\n")
    assert frames_of(client) == []
    rig.clock.advance(1)
    (first,) = new_frames(client, 1)
    if path == CHAT:
        role, token = choices_of(first)
        assert role["delta"] == {"role": "assistant", "content": ""}
        assert token["delta"]["content"]
    else:
        assert len(first) == 1


@BOTH
def test_each_token_is_a_write_and_the_last_takes_the_end_along(path: str) -> None:
    rig = RankRig(*PACED)
    client = post(rig, path, stream=True, **USAGE)
    rig.clock.advance(1)
    begun = len(writes(client))
    for token in range(1, 4):
        rig.clock.advance(1)
        (frames,) = new_frames(client, begun + token - 1)
        assert len(frames) == 1
        assert finishes(frames) == []
    rig.clock.advance(1)
    ((last, usage, done),) = new_frames(client, begun + 3)
    assert finishes([last]) == [(0, "length")]
    assert said([last])
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 5)
    assert done == "[DONE]"
    assert writes(client)[-1].endswith(b"\r\n0\r\n\r\n")


@BOTH
@pytest.mark.parametrize("more", [{}, {"logprobs": 1}, {"return_token_ids": True}])
def test_tokens_that_are_due_together_leave_together_each_its_own_event(
    path: str, more: dict[str, Any]
) -> None:
    if path == CHAT and "logprobs" in more:
        more = {"logprobs": True}
    rig = RankRig(*PACED)
    client = post(rig, path, stream=True, max_tokens=9, **more)
    rig.clock.advance(1)
    begun = len(writes(client))
    rig.clock.advance(4)
    ((*tokens,),) = new_frames(client, begun)
    assert len(tokens) == 4
    assert all(len(choices_of([token])) == 1 and said([token]) for token in tokens)
    rig.clock.advance(40)
    (rest,) = new_frames(client, begun + 1)
    assert len(rest) == 4 + 1
    assert rest[-1] == "[DONE]"


@BOTH
@pytest.mark.parametrize("more", [{"return_token_ids": True}, {"logprobs": 2}, USAGE, {}])
def test_late_or_on_time_a_stream_says_the_same(path: str, more: dict[str, Any]) -> None:
    if path == CHAT and "logprobs" in more:
        more = {"logprobs": True, "top_logprobs": 2}
    streams = []
    for steps in ([1.0] * 20, [0.3] * 60, [2.5] * 9, [20.0]):
        rig = RankRig(*PACED)
        client = post(rig, path, stream=True, seed=7, max_tokens=12, n=2, **more)
        rig.clock.pump(steps)
        frames = frames_of(client)
        for frame in frames[:-1]:
            del frame["id"], frame["created"]
        streams.append(
            [[c for c in choices_of(frames) if c["index"] == index] for index in range(2)] + [frames[-2:]]
        )
    assert streams[0] == streams[1] == streams[2]
    assert [s[:2] for s in streams] == [streams[0][:2]] * 4


# --- several choices


def test_all_roles_come_before_any_token_of_a_chat() -> None:
    rig = RankRig("--max-num-seqs", "2", *PACED)
    client = post(rig, CHAT, stream=True, n=5)
    rig.clock.advance(1)
    choices = choices_of(frames_of(client))
    assert [c["index"] for c in choices[:5]] == [0, 1, 2, 3, 4]
    assert all(c["delta"] == {"role": "assistant", "content": ""} for c in choices[:5])
    # Only two have a slot.
    assert [c["index"] for c in choices[5:]] == [0, 1]
    rig.clock.pump([1.0] * 20)
    frames = frames_of(client)
    assert sum("role" in c["delta"] for c in choices_of(frames)) == 5
    assert sorted(finishes(frames)) == [(index, "length") for index in range(5)]
    assert frames.count("[DONE]") == 1


def test_the_prompts_of_a_stream_have_flat_indexes_and_one_end() -> None:
    rig = RankRig("--mode", "echo", *PACED)
    client = post(rig, TEXT, stream=True, prompt=["a b", "c d e f"], n=2, max_tokens=9, **USAGE)
    rig.clock.pump([1.0] * 9)
    frames = frames_of(client)
    assert [said(frames, index) for index in range(4)] == ["a b", "a b", "c d e f", "c d e f"]
    assert finishes(frames) == [(0, "stop"), (1, "stop"), (2, "stop"), (3, "stop")]
    counts = frames[-2]["usage"]
    # Each prompt once, however many choices it has.
    assert (counts["prompt_tokens"], counts["completion_tokens"]) == (6, 12)
    assert [frames.index("[DONE]"), frames.count("[DONE]")] == [len(frames) - 1, 1]


def test_continuous_usage_counts_each_choice_by_itself() -> None:
    rig = RankRig(*PACED)
    options = {"include_usage": True, "continuous_usage_stats": True}
    client = post(rig, TEXT, stream=True, prompt=["a", "b c"], max_tokens=3, stream_options=options)
    rig.clock.pump([1.0] * 5)
    *frames, last, _ = frames_of(client)
    for index, prompt_tokens in ((0, 1), (1, 2)):
        mine = [frame["usage"] for frame in frames if frame["choices"][0]["index"] == index]
        assert [u["completion_tokens"] for u in mine] == [1, 2, 3]
        assert {u["prompt_tokens"] for u in mine} == {prompt_tokens}
        assert all(u["total_tokens"] == u["prompt_tokens"] + u["completion_tokens"] for u in mine)
    assert (last["usage"]["prompt_tokens"], last["usage"]["completion_tokens"]) == (3, 6)


def test_an_empty_echo_still_ends_with_a_reason() -> None:
    client = post(RankRig("--mode", "echo"), CHAT, stream=True, messages=[{"role": "user", "content": ""}])
    role, finish, done = frames_of(client)
    assert choices_of([role])[0]["delta"]["role"] == "assistant"
    assert (said([finish]), finishes([finish]), done) == ("", [(0, "stop")], "[DONE]")


# --- ends that are not the reply's own


@BOTH
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("begun", [False, True])
def test_a_stream_that_is_given_up_says_so_and_ends(path: str, n: int, begun: bool) -> None:
    rig = RankRig("--max-num-seqs", "2", *PACED)
    client = post(rig, path, stream=True, n=n, **USAGE)
    if begun:
        rig.clock.advance(2)
    count = len(writes(client))
    rig.rank.driver.give_up()
    ((error, done),) = new_frames(client, count)
    assert (error["error"]["code"], error["error"]["type"]) == (503, "ServiceUnavailableError")
    assert done == "[DONE]"
    assert reply_of(client).complete
    assert finishes(frames_of(client)) == []
    assert rig.rank.engine.idle
    assert (rig.rank.stats.finished["abort"], rig.rank.stats.running, rig.rank.stats.waiting) == (n, 0, 0)
    rig.clock.pump([1.0] * 20)
    assert reply_of(client).complete
    assert client.fate == "open"


@BOTH
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("begun", [False, True])
def test_a_whole_reply_that_is_given_up_is_one_503(path: str, n: int, begun: bool) -> None:
    rig = RankRig("--max-num-seqs", "2", *PACED)
    client = post(rig, path, n=n)
    if begun:
        rig.clock.advance(2)
    rig.rank.driver.give_up()
    reply = reply_of(client)
    assert (reply.status, reply.error["error"]["code"]) == (503, 503)
    assert rig.rank.engine.idle
    assert rig.rank.stats.finished["abort"] == n
    rig.clock.pump([1.0] * 20)
    assert len(read_replies(client.received, [b"POST"], ended=False)) == 1


@KINDS
def test_what_was_pipelined_behind_a_reply_given_up_is_served(stream: bool) -> None:
    rig = RankRig(*PACED)
    client = post(rig, CHAT, stream=stream)
    client.send(request(CHAT, fields(CHAT, stream=stream)))
    rig.rank.driver.give_up()
    assert rig.rank.stats.running == 1
    rig.clock.pump([1.0] * 6)
    first, second = read_replies(client.received, [b"POST"] * 2, ended=False)
    assert second.complete
    if stream:
        assert finishes(events(second.body)) == [(0, "length")]
        assert b"[DONE]" in first.body
    else:
        assert (first.status, second.status) == (503, 200)


@BOTH
@KINDS
@pytest.mark.parametrize("n", [1, 3])
@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_rendering_that_fails_is_one_answer_and_frees_everything(
    monkeypatch: pytest.MonkeyPatch, path: str, stream: bool, n: int, at: int
) -> None:
    rig = RankRig("--max-num-seqs", "2", *PACED)
    client = post(rig, path, stream=stream, n=n)
    other = post(rig, path, stream=True)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    rig.clock.pump([1.0] * at)
    assert not reply_of(client).complete if stream else client.received == b""
    sink = next(iter(rig.rank.engine._running)).sink
    with monkeypatch.context() as patch, capturedLogs() as logged:
        if stream:
            patch.setattr(sink._stream, "put", broken)  # type: ignore[attr-defined]
            failing, send = sink._stream.request, Request.send  # type: ignore[attr-defined]
            patch.setattr(
                Request, "send", lambda self, data: broken() if self is failing else send(self, data)
            )
            rig.clock.advance(1)
            # The choice that still waits has nobody to speak to.
            assert rig.rank.stats.running + rig.rank.stats.waiting == 1
        else:
            patch.setattr(sink, "_body", broken)
            rig.clock.pump([1.0] * 30)
    assert len(logged) == (2 if stream and n > 1 else 1)
    reply = reply_of(client)
    assert reply.complete
    if stream:
        error, done = events(reply.body)[-2:]
        assert (error["error"]["code"], done) == (500, "[DONE]")
    else:
        assert reply.status == 500
    rig.clock.pump([1.0] * 30)
    assert finishes(frames_of(other)) == [(0, "length")]
    assert rig.rank.engine.idle
    assert (rig.rank.stats.running, rig.rank.stats.waiting) == (0, 0)


def test_a_sink_that_cannot_even_tell_its_client_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = RankRig(*PACED)
    bad, good = post(rig, CHAT, stream=True), post(rig, CHAT)

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(StreamedChoice, "reveal", broken)
    monkeypatch.setattr(StreamedChoice, "fail", broken)
    with capturedLogs() as logged:
        rig.clock.pump([1.0] * 6)
    assert len(logged) == 2
    assert reply_of(good).status == 200
    assert rig.rank.engine.idle
    assert not reply_of(bad).complete


# --- clients that leave


def leave(client: Client, how: str) -> None:
    if how == "rst":
        client.rst()
    else:
        client.fin()
        client.settle()


def waiting(rig: RankRig) -> int:
    return rig.rank.stats.waiting


@BOTH
@KINDS
@pytest.mark.parametrize(("n", "prompts"), [(1, 1), (3, 1), (2, 3)])
@pytest.mark.parametrize("where", ["running", "begun", "queued"])
@pytest.mark.parametrize("how", ["rst", "fin"])
def test_leaving_aborts_every_choice_at_once(
    path: str, stream: bool, n: int, prompts: int, where: str, how: str
) -> None:
    if path == CHAT and prompts > 1:
        return
    more = {"prompt": ["a"] * prompts} if prompts > 1 else {}
    choices = n * prompts
    rig = RankRig("--max-num-seqs", "2", *PACED)
    engine, stats = rig.rank.engine, rig.rank.stats
    others = [post(rig, CHAT, n=2, max_tokens=50)] if where == "queued" else []
    client = post(rig, path, stream=stream, n=n, **more)
    if where == "begun":
        rig.clock.advance(2)
    before = client.received
    assert stats.running + stats.waiting == choices + 2 * len(others)
    assert stats.waiting == (choices if others else max(0, choices - 2))
    leave(client, how)
    assert (stats.running, stats.waiting) == (2 * len(others), 0)
    assert engine.idle is not bool(others)
    assert stats.finished == {**dict.fromkeys(stats.finished, 0), "abort": choices}
    # What never finished is in no histogram of finished requests.
    assert stats.e2e_latency.count == stats.params_n.count == stats.request_prompt_tokens.count == 0
    rig.clock.pump([1.0] * 5)
    assert client.received == before
    if not others:
        assert rig.clock.getDelayedCalls() == []
        assert engine.pacing.next_deadline() is None


@KINDS
def test_leaving_lets_the_next_one_in_the_same_turn(stream: bool) -> None:
    rig = RankRig("--max-num-seqs", "1", *PACED)
    client, second = post(rig, CHAT, stream=stream), post(rig, CHAT, stream=True)
    rig.clock.advance(0.75)
    client.rst()
    assert (rig.rank.stats.running, waiting(rig)) == (1, 0)
    rig.clock.advance(0.75)
    assert frames_of(second) == []
    rig.clock.advance(0.25)
    assert said(frames_of(second))


@KINDS
def test_leaving_after_the_end_is_no_abort(stream: bool) -> None:
    rig = RankRig()
    client = post(rig, CHAT, stream=stream)
    assert reply_of(client).complete
    client.rst()
    assert (rig.rank.stats.finished["abort"], rig.rank.stats.finished["length"]) == (0, 1)


def test_a_client_lost_between_two_choices_of_one_pass() -> None:
    """The transport may find a client gone while the first of its choices is written."""
    rig = RankRig(*PACED)
    client = post(rig, TEXT, stream=True, n=3)
    rig.clock.advance(1)
    write = client.transport.write
    count = 0

    def gone(data: bytes) -> None:
        nonlocal count
        count += 1
        write(data)
        client.rst()

    client.transport.write = client.protocol.write = gone  # type: ignore[method-assign]
    rig.clock.advance(1)
    assert count == 1
    assert rig.rank.engine.idle
    assert rig.rank.stats.finished["abort"] == 3
    assert rig.clock.getDelayedCalls() == []


def test_what_was_due_is_written_before_a_fin_aborts() -> None:
    rig = RankRig(*PACED)
    client = post(rig, TEXT, stream=True)
    rig.clock.advance(1)
    rig.clock.rightNow += 1  # the token is due, but nobody has looked yet
    client.fin()
    rig.settle()
    assert len(choices_of(events(read_replies(client.received, [b"POST"], False)[0].body))) == 2
    assert rig.rank.engine.idle
    assert client.fate == "closed"


@KINDS
def test_a_half_closed_client_may_be_served(stream: bool) -> None:
    rig = RankRig("--half-close", "serve", *PACED)
    client = post(rig, TEXT, stream=stream).fin()
    rig.settle()
    assert rig.rank.stats.running == 1
    rig.clock.pump([1.0] * 6)
    reply = reply_of(client)
    assert (reply.status, reply.complete, client.fate) == (200, True, "closed")
    assert rig.rank.stats.finished["abort"] == 0


def test_each_choice_of_a_seeded_request_has_a_seed_of_its_own() -> None:
    rig = RankRig()

    def one(seed: int, n: int) -> list[str]:
        frames = frames_of(post(rig, TEXT, stream=True, seed=seed, n=n, max_tokens=40))
        return [said(frames, index) for index in range(n)]

    assert one(7, 3) == [*one(7, 1), *one(8, 1), *one(9, 1)]
    assert len(set(one(7, 3))) == 3


def test_whole_and_streamed_replies_of_a_seed_are_the_same() -> None:
    for path in (CHAT, TEXT):
        rig = RankRig()
        whole = json.loads(reply_of(post(rig, path, seed=3, n=2, max_tokens=40)).body)["choices"]
        frames = frames_of(post(rig, path, seed=3, n=2, max_tokens=40, stream=True))
        for index in range(2):
            text = whole[index]["message"]["content"] if path == CHAT else whole[index]["text"]
            assert said(frames, index) == text
