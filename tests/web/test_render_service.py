"""Prompts whose tokens a render service finds: what it is asked, and what becomes of what it says."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.internet.defer import CancelledError, Deferred, maybeDeferred
from twisted.internet.error import ConnectionRefusedError
from twisted.logger import capturedLogs
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone, ResponseFailed, ResponseNeverReceived
from twisted.web.http_headers import Headers

from llmdsim.config import ConfigError, parse
from llmdsim.web import render_service
from llmdsim.web.chat_request import decode_chat
from llmdsim.web.conversation import Conversation, prepare
from llmdsim.web.media_features import media_of
from llmdsim.web.render_service import RenderService
from tests.web.rig import PassRig
from tests.wire.channel import read_replies

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
USER = {"role": "user", "content": "hi there"}
IMAGE = {"type": "image_url", "image_url": {"url": "x"}}


class Response:
    """An answer of the service, as an agent gives it."""

    def __init__(self, code: int, body: bytes, end: Exception | None = None) -> None:
        self.code = code
        self.headers = Headers()
        self.length = len(body)
        self.left = False
        self._body = body
        self._end = Failure(end or ResponseDone())

    def deliverBody(self, protocol: Any) -> None:
        protocol.transport = self
        self.left = False
        for at in range(0, len(self._body), 1000):
            if not self.left:
                protocol.dataReceived(self._body[at : at + 1000])
        protocol.connectionLost(self._end)

    def loseConnection(self) -> None:
        self.left = True


class Agent:
    """Gives out `answer`, later where that is a Deferred, and notes what it is asked."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def request(self, method: bytes, uri: bytes, headers: Any, bodyProducer: Any) -> Deferred[Any]:
        assert method == b"POST"
        assert headers.getRawHeaders("content-type") == ["application/json"]
        self.asked.append((uri.decode(), json.loads(bodyProducer._inputFile.read())))
        return maybeDeferred(self._answer)

    def _answer(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def good(*ids: int, **more: Any) -> Response:
    return Response(200, json.dumps({"token_ids": ids, **more}).encode())


class Rig(PassRig):
    """A rank that asks a service of which the agent takes the place."""

    def __init__(self, answer: Any, *flags: str) -> None:
        super().__init__("--render-url", "http://render:1/", *flags)
        context = self.rank.context
        context.turns._in_thread = maybeDeferred
        self.agent = Agent(answer)
        context.render_service = RenderService(context.config, self.clock, self.agent)

    def json(self, path: str, body: dict[str, Any]) -> Any:
        reply = self.ask(path, body)
        assert reply.status == 200, reply.body
        return json.loads(reply.body)

    @property
    def asked(self) -> tuple[str, dict[str, Any]]:
        """The one call."""
        (call,) = self.agent.asked
        return call


def chat(content: Any = "hi there", **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}], **fields}


# --- when it is asked


@pytest.mark.parametrize(
    ("flags", "asks"),
    [
        ((), False),
        (("--render-url", "http://localhost:8082"), True),
        (("--render-url", "http://localhost:8082", "--force-dummy-tokenizer"), False),
        (("--render-url", ""), False),
    ],
)
def test_it_is_asked_only_if_it_is_named(flags: tuple[str, ...], asks: bool) -> None:
    assert (PassRig(*flags).rank.context.render_service is not None) is asks


@pytest.mark.parametrize(
    ("url", "problem"),
    [("localhost:8082", "is not a URL of http or https"), ("http://u:p@h", "a user or a password")],
)
def test_a_url_that_cannot_be_used(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parse(["--model", "m", "--render-url", url], {})


# --- what it is asked, and what its answer is used for


def test_a_chat() -> None:
    rig = Rig(good(7, 8, 9), "--served-model-name", "alias")
    usage = rig.json(CHAT, chat(max_tokens=1))["usage"]
    assert usage["prompt_tokens"] == 3
    assert rig.asked == ("http://render:1/v1/chat/completions/render", {"model": "m", "messages": [USER]})


def test_what_a_chat_says_of_how_it_is_rendered_goes_along() -> None:
    rig = Rig(good(7))
    tool = {"type": "function", "function": {"name": "f"}}
    said = {
        "tools": [tool],
        "documents": [{"title": "t"}],
        "chat_template_kwargs": {"a": 1},
        "add_generation_prompt": False,
        "continue_final_message": True,
        "add_special_tokens": True,
        "reasoning_effort": "low",
    }
    rig.json(CHAT, chat(max_tokens=1, **said))
    shown = {"name": "f", "description": None, "parameters": None}
    asked = {**said, "tools": [{"type": "function", "function": shown}], "tool_choice": "none"}
    assert rig.asked[1] == {"model": "m", "messages": [USER], **asked}


def test_a_text() -> None:
    rig = Rig(Response(200, b'[{"token_ids":[7,8,9]}]'))
    answer = rig.json(TEXT, {"prompt": "one two three", "max_tokens": 1, "return_token_ids": True})
    assert answer["choices"][0]["prompt_token_ids"] == [7, 8, 9]
    assert answer["usage"]["prompt_tokens"] == 3
    assert rig.asked == ("http://render:1/v1/completions/render", {"model": "m", "prompt": "one two three"})


def test_a_text_without_special_tokens() -> None:
    rig = Rig(good(7))
    rig.json("/tokenize", {"prompt": "a", "add_special_tokens": False})
    assert rig.asked[1] == {"model": "m", "prompt": "a", "add_special_tokens": False}


def test_ids_need_no_asking() -> None:
    rig = Rig(good(7))
    assert rig.json(TEXT, {"prompt": [1, 2], "max_tokens": 1})["usage"]["prompt_tokens"] == 2
    assert rig.agent.asked == []


def test_an_echo_is_of_the_text() -> None:
    rig = Rig(good(7, 8), "--mode", "echo")
    assert rig.json(CHAT, chat("one two three"))["choices"][0]["message"]["content"] == "one two three"
    answer = rig.json(TEXT, {"prompt": "one two three", "max_tokens": 9, "echo": True, "logprobs": 0})
    (choice,) = answer["choices"]
    assert choice["text"] == "one two threeone two three"
    assert choice["logprobs"]["tokens"] == ["one ", "two three"] * 2
    assert answer["usage"]["prompt_tokens"] == 2


def test_what_is_cut_is_cut() -> None:
    rig = Rig(good(1, 2, 3, 4))
    body = {"prompt": "a b c", "max_tokens": 1, "truncate_prompt_tokens": 2, "return_token_ids": True}
    assert rig.json(TEXT, body)["choices"][0]["prompt_token_ids"] == [3, 4]


def test_token_routes() -> None:
    rig = Rig(good(7, 8))
    assert rig.json("/tokenize", chat())["tokens"] == [7, 8]
    shown = rig.json("/tokenize", {"prompt": "one two", "return_token_strs": True})
    assert (shown["tokens"], shown["token_strs"]) == ([7, 8], ["one ", "two"])
    rendered = rig.json(f"{CHAT}/render", chat())
    assert (rendered["token_ids"], rendered["features"]) == ([7, 8], None)
    (rendered,) = rig.json(f"{TEXT}/render", {"prompt": "one two"})
    assert rendered["token_ids"] == [7, 8]
    assert rig.json("/v1/embeddings", {"input": ["a", "b"]})["usage"]["prompt_tokens"] == 4
    count = {"model": "m", "messages": [USER]}
    assert rig.json("/v1/messages/count_tokens", count)["input_tokens"] == 2


def test_a_prompt_that_does_not_fit_is_refused() -> None:
    rig = Rig(good(*range(2000)))
    assert rig.ask(CHAT, chat()).status == 400
    assert rig.ask(TEXT, {"prompt": "a", "max_tokens": 1}).status == 400
    before = len(rig.agent.asked)
    assert rig.ask(TEXT, {"prompt": "a" * 300_000, "max_tokens": 1}).status == 400
    assert len(rig.agent.asked) == before


def test_an_empty_prompt_is_refused() -> None:
    assert Rig(good()).ask(CHAT, chat()).status == 400


def test_media_are_where_it_says() -> None:
    told = {
        "mm_hashes": {"image": ["a", "b"], "audio": ["c"]},
        "mm_placeholders": {
            "image": [{"offset": 5, "length": 2, "is_embed": None}, {"offset": 1, "length": 3}],
            "audio": [{"offset": 4, "length": 1}],
        },
        "kwargs_data": {"image": ["xxxx", None]},
    }
    rig = Rig(good(*range(9), features=told))
    conversation = prepared(rig, chat([IMAGE]))
    assert media_of(conversation.features) == (("b", 1, 3), ("c", 4, 1), ("a", 5, 2))
    features = rig.json(f"{CHAT}/render", chat([IMAGE]))["features"]
    assert features["mm_hashes"] == told["mm_hashes"]
    assert features["mm_placeholders"]["image"] == [{"offset": 5, "length": 2}, {"offset": 1, "length": 3}]
    assert features["kwargs_data"] is None
    assert rig.json(f"{CHAT}/render", chat([IMAGE], truncate_prompt_tokens=5))["features"] is None


def prepared(rig: Rig, body: dict[str, Any]) -> Conversation:
    steps = prepare(rig.rank.context, decode_chat(json.dumps(body).encode()))
    while True:
        try:
            next(steps)
        except StopIteration as end:
            conversation: Conversation = end.value
            return conversation


# --- what goes wrong


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (Response(500, b'{"error": "out of order"}'), 'answers 500: {"error": "out of order"}'),
        (Response(404, b"\xff" * 5000), "answers 404: �"),
        (Response(307, b""), "answers 307."),
        (Response(500, b"gone", ResponseFailed([])), "answers 500: gone"),
        (Response(200, b""), "gives an answer that cannot be read: Input data was truncated"),
        (Response(200, b"junk"), "gives an answer that cannot be read: JSON is malformed"),
        (Response(200, b"\xff\xfe"), "gives an answer that cannot be read: "),
        (Response(200, b"[" * 100_000), "gives an answer that cannot be read: "),
        (Response(200, b"null"), "gives an answer that cannot be read: Expected `object | array`"),
        (Response(200, b"[]"), "gives an answer without a prompt"),
        (Response(200, b"{}"), "missing required field `token_ids`"),
        (Response(200, b'{"token_ids":null}'), "gives an answer that cannot be read: "),
        (Response(200, b'{"token_ids":["a"]}'), "gives an answer that cannot be read: "),
        (Response(200, b'{"token_ids":[-1]}'), "gives an answer that cannot be read: "),
        (Response(200, b'{"token_ids":[4294967296]}'), "gives an answer that cannot be read: "),
        (Response(200, b'{"token_ids":[1],"features":[]}'), "gives an answer that cannot be read: "),
        (Response(200, b'{"token_ids":', ResponseFailed([])), "ended the connection before"),
        (
            ResponseNeverReceived([Failure(ConnectionRefusedError())]),
            "cannot be reached: Connection was refused",
        ),
        (ConnectionRefusedError("no"), "cannot be reached: Connection was refused by other side: no"),
    ],
)
def test_what_goes_wrong_is_a_502(answer: Any, problem: str) -> None:
    rig = Rig(answer)
    for path, body in (CHAT, chat()), (TEXT, {"prompt": "a"}), ("/tokenize", chat()):
        reply = rig.ask(path, body)
        assert reply.status == 502
        error = reply.error["error"]
        assert error["message"].startswith("The render service ")
        assert problem in error["message"]
        assert not error["message"].endswith((": .", ".."))
        assert len(error["message"]) < 500
    assert rig.rank.engine.idle


def test_answers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render_service, "MOST_BYTES", 5000)
    endless = Response(200, b'{"token_ids":[' + b"1," * 50_000)
    assert b"more than 5000 bytes" in Rig(endless).ask(CHAT, chat()).body
    assert endless.left
    monkeypatch.setattr(render_service, "MOST_COMMAS", 100)
    assert b"tokens" in Rig(good(*[1] * 200)).ask(CHAT, chat()).body


def test_one_that_is_too_slow_is_a_504_and_is_given_up() -> None:
    given_up: list[Any] = []
    rig = Rig(Deferred(given_up.append), "--render-timeout", "2s", "--mm-render-timeout", "5s")
    client = rig.post(CHAT, chat())
    rig.clock.advance(1.9)
    assert not client.received
    rig.clock.advance(0.2)
    rig.finish()
    (reply,) = read_replies(client.received, [b"POST"], ended=False)
    assert reply.status == 504
    assert reply.error["error"]["message"] == "The render service has not answered within 2 seconds."
    assert len(given_up) == 1


def test_images_may_take_longer_than_other_media() -> None:
    rig = Rig(Deferred(), "--render-timeout", "2s", "--mm-render-timeout", "5s")
    image = rig.post(CHAT, chat([IMAGE]))
    rig.agent.answer = Deferred()
    audio = rig.post(CHAT, chat([{"type": "audio_url", "audio_url": {"url": "x"}}]))
    rig.clock.advance(3)
    rig.turns(2)
    assert not image.received
    assert b" 504 " in audio.received
    rig.clock.advance(3)
    rig.turns(2)
    assert b" 504 " in image.received


def test_a_body_that_stops_is_given_up() -> None:
    class Stalled(Response):
        def deliverBody(self, protocol: Any) -> None:
            protocol.transport = self
            protocol.dataReceived(b'{"token_ids"')

    stalled = Stalled(200, b"")
    rig = Rig(stalled, "--render-timeout", "2s")
    client = rig.post(CHAT, chat())
    rig.clock.advance(3)
    rig.finish()
    assert b" 504 " in client.received
    assert stalled.left


def test_a_client_that_leaves_ends_the_call() -> None:
    given_up: list[Any] = []
    rig = Rig(Deferred(given_up.append))
    client = rig.post(CHAT, chat())
    rig.turns(3)
    assert rig.rank.context.turns.busy
    with capturedLogs() as logs:
        client.fin()
        rig.turns(3)
    assert len(given_up) == 1
    assert not rig.rank.context.turns.busy
    assert rig.rank.engine.idle
    assert logs == []
    assert not rig.clock.getDelayedCalls()


def test_the_end_of_a_drain_ends_the_call() -> None:
    given_up: list[Any] = []
    rig = Rig(Deferred(given_up.append))
    client = rig.post(CHAT, chat())
    rig.rank.context.turns.give_up()
    rig.turns(2)
    assert b" 503 " in client.received
    assert len(given_up) == 1


def test_failures_are_told_once_and_so_is_their_end() -> None:
    rig = Rig(ConnectionRefusedError())
    with capturedLogs() as logs:
        for _ in range(3):
            assert rig.ask(CHAT, chat()).status == 502
        rig.agent.answer = good(7)
        assert rig.ask(CHAT, chat(max_tokens=1)).status == 200
        rig.agent.answer = good(7)
        assert rig.ask(CHAT, chat(max_tokens=1)).status == 200
    told = [event["log_format"].format(**event) for event in logs]
    assert len(told) == 2
    assert "cannot be reached" in told[0]
    assert told[1].endswith("answers again, after 3 failures")


def test_large_bodies_are_put_together_and_read_in_a_thread() -> None:
    rig = Rig(good(*[1] * 100_000), "--max-model-len", "200000")
    threads: list[Any] = []

    def run(work: Any) -> Deferred[Any]:
        threads.append(work)
        return maybeDeferred(work)

    rig.rank.context.turns._in_thread = run  # type: ignore[method-assign]
    assert rig.json("/tokenize", {"prompt": "a " * 100_000})["count"] == 100_000
    assert len(threads) == 2


def test_cancelling_is_no_failure_of_the_service() -> None:
    rig = Rig(Deferred())
    service = rig.rank.context.render_service
    assert service is not None
    steps = service.text("a", True)
    call = next(steps)
    steps.close()
    assert service._failed == 0
    outcome: list[Any] = []
    call.addBoth(outcome.append)
    assert not isinstance(outcome[0], Failure) or not outcome[0].check(CancelledError)
