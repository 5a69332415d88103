"""The render service of `--render-url`: another server that finds the token ids of prompts."""

from __future__ import annotations

import json
from collections.abc import Generator
from functools import partial
from typing import Annotated, Any

import msgspec
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionClosed
from twisted.internet.protocol import Protocol, connectionDone
from twisted.logger import Logger
from twisted.python.failure import Failure

from llmdsim.config import Config
from llmdsim.tokenization.media import items_of
from llmdsim.tokenization.steps import in_thread
from llmdsim.web.chat_request import ChatRequest
from llmdsim.web.errors import ApiError, shown
from llmdsim.web.template_kwargs import tools_of
from llmdsim.web.templates import is_long
from llmdsim.web.token_requests import MOST_TOKENS
from llmdsim.web.turns import LONG_BODY

log = Logger()

#: Bytes of an answer that are read, and commas in it: a request for that many tokens would be refused.
MOST_BYTES = 64 << 20
MOST_COMMAS = MOST_TOKENS + (1 << 16)

#: Bytes of an answer that is no good, to show what it says.
SHOWN_BYTES = 1000

#: How many idle connections are kept, and for how many seconds: less than servers commonly keep them.
KEPT = 32
IDLE = 2.0

#: What a chat may say of how it is rendered, and what it means to say nothing.
_DEFAULTS: dict[str, Any] = {
    "add_generation_prompt": True,
    "continue_final_message": False,
    "add_special_tokens": False,
    "chat_template": None,
    "chat_template_kwargs": None,
    "documents": None,
    "reasoning_effort": None,
}


class Range(msgspec.Struct):
    """The tokens of one item."""

    offset: int
    length: int


class Features(msgspec.Struct):
    """Hashes of media, and where they are in the prompt, by modality."""

    mm_hashes: dict[str, list[str]] = msgspec.field(default_factory=dict)
    mm_placeholders: dict[str, list[Range]] = msgspec.field(default_factory=dict)


class Rendered(msgspec.Struct):
    """What the service says of a prompt."""

    token_ids: list[Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]]
    features: Features | None = None


_decoder = msgspec.json.Decoder(Rendered | list[Rendered])


class RenderFailure(Exception):
    """The service is of no help; `str()` says why."""


class RenderTimeout(RenderFailure):
    """It takes too long."""


def asks_render_service(config: Config) -> bool:
    """Whether one is to be asked: the option's default is no address of ours to call."""
    return "render_url" in config.given and bool(config.render_url) and not config.force_dummy_tokenizer


class RenderService:
    """Asks the service, over connections that are kept. `clock` is an `IReactorTime`.

    `agent` is an `IAgent` to ask by, in place of one of the reactor's.
    """

    def __init__(self, config: Config, clock: Any, agent: Any = None) -> None:
        self._url = config.render_url.rstrip("/")
        self._model = config.model
        self._seconds = config.render_timeout
        self._mm_seconds = config.mm_render_timeout
        self._without_choice = config.exclude_tools_when_tool_choice_none
        self._clock = clock
        self._agent = agent
        self._client: Any = None
        self._pool: Any = None
        #: How many calls have failed since the last good one.
        self._failed = 0

    def text(self, text: str, special: bool) -> Generator[Any, None, Rendered]:
        """The tokens of a text; with `special`, those that the model wants around it too.

        Raises ApiError 502, or 504 where it takes too long. Whoever drops these steps ends the call.
        """
        body: dict[str, Any] = {"model": self._model, "prompt": text}
        if not special:
            body["add_special_tokens"] = False
        return self._rendered("/v1/completions/render", body, self._seconds, len(text) > LONG_BODY)

    def chat(self, chat: ChatRequest) -> Generator[Any, None, Rendered]:
        """The same of a conversation."""
        body: dict[str, Any] = {"model": self._model, "messages": chat.messages}
        tools = tools_of(chat, self._without_choice)
        if tools is not None:
            # They are to be shown and no more; another choice may want a parser that the service lacks.
            body.update(tools=tools, tool_choice="none")
        for name, default in _DEFAULTS.items():
            value = getattr(chat, name)
            if value != default:
                body[name] = value
        shows = any(modality == "image" for modality, _ in items_of(chat.messages))
        seconds = self._mm_seconds if shows else self._seconds
        return self._rendered("/v1/chat/completions/render", body, seconds, is_long(chat.messages, body))

    def close(self) -> None:
        """Let go of idle connections."""
        if self._pool is not None:
            self._pool.closeCachedConnections()

    def _rendered(
        self, path: str, body: dict[str, Any], seconds: float, long: bool
    ) -> Generator[Any, None, Rendered]:
        data = (yield from in_thread(partial(_encoded, body))) if long else _encoded(body)
        found: bytes | Rendered | RenderFailure = yield from self._answered(path, data, seconds)
        if isinstance(found, bytes):
            work = partial(_decoded, found)
            found = (yield from in_thread(work)) if len(found) > LONG_BODY else work()
        if isinstance(found, RenderFailure):
            raise self._refusal(found)
        if self._failed:
            log.info(
                "--render-url {url}: answers again, after {failed} failures",
                url=self._url,
                failed=self._failed,
            )
            self._failed = 0
        return found

    def _answered(
        self, path: str, data: bytes, seconds: float
    ) -> Generator[Any, None, bytes | RenderFailure]:
        """The body of the service's answer to a call."""
        answers: list[bytes | RenderFailure] = []
        call: Deferred[Any] = Deferred.fromCoroutine(self._ask(path, data))
        call.addTimeout(seconds, self._clock, _too_late)
        # It does not fail as such: nobody may be there any more to hear of it.
        call.addErrback(_explained)
        call.addCallback(answers.append)
        try:
            yield call
        finally:
            call.cancel()
        return answers[0]

    def _refusal(self, problem: RenderFailure) -> ApiError:
        if not self._failed:
            log.warn("--render-url {url}: {problem} (told once)", url=self._url, problem=problem)
        self._failed += 1
        status = 504 if isinstance(problem, RenderTimeout) else 502
        return ApiError(status, f"The render service {str(problem).rstrip('.')}.")

    async def _ask(self, path: str, body: bytes) -> bytes:
        if self._client is None:
            self._client = self._connect()
        response = await self._client.post(
            self._url + path,
            data=body,
            headers={"Content-Type": "application/json", "User-Agent": "llmdsim"},
            allow_redirects=False,
            unbuffered=True,
        )
        good = 200 <= response.code < 300
        reader = _Reader(MOST_BYTES if good else SHOWN_BYTES, good)
        response.deliverBody(reader)
        data = await reader.whole
        if not good:
            said = shown(data.decode("utf-8", "replace"))
            raise RenderFailure(f"answers {response.code}: {said}" if said else f"answers {response.code}")
        return data

    def _connect(self) -> Any:
        # Here, since it takes a while to load, and few need it.
        from treq.client import HTTPClient  # noqa: PLC0415
        from twisted.web.client import Agent, HTTPConnectionPool  # noqa: PLC0415

        agent = self._agent
        if agent is None:
            from twisted.internet import reactor  # noqa: PLC0415

            # The pool's timers are all that it wants of a reactor.
            self._pool = HTTPConnectionPool(self._clock)  # type: ignore[no-untyped-call]
            self._pool.maxPersistentPerHost = KEPT
            self._pool.cachedConnectionTimeout = IDLE
            agent = Agent(reactor, pool=self._pool)  # type: ignore[no-untyped-call]
        return HTTPClient(agent)


class _Reader(Protocol):
    """Reads a body of at most so many bytes. `whole` fires with it, or with its beginning if that will do."""

    def __init__(self, most: int, complete: bool) -> None:
        self._room = most
        self._complete = complete
        self._data = bytearray()
        self.whole: Deferred[bytes] = Deferred(self._leave)

    def dataReceived(self, data: bytes) -> None:
        self._data += data
        self._room -= len(data)
        if self._room < 0 and not self.whole.called:
            if self._complete:
                self.whole.errback(RenderFailure(f"answers with more than {MOST_BYTES} bytes"))
            else:
                self.whole.callback(bytes(self._data))
            self._leave()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        from twisted.web.client import ResponseDone  # noqa: PLC0415 - as above
        from twisted.web.http import PotentialDataLoss  # noqa: PLC0415

        if not self.whole.called:
            # Without a length the end of the connection is that of the body.
            ended = isinstance(reason.value, ResponseDone | PotentialDataLoss) or not self._complete
            self.whole.callback(bytes(self._data)) if ended else self.whole.errback(reason)

    def _leave(self, whole: object = None) -> None:
        transport: Any = self.transport
        transport.loseConnection()


def _encoded(body: dict[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        # A lone surrogate, which JSON can write as an escape.
        return json.dumps(body).encode()


def _decoded(data: bytes) -> Rendered | RenderFailure:
    """What an answer says."""
    if data.count(b",") > MOST_COMMAS:
        return RenderFailure(f"finds more than {MOST_TOKENS} tokens")
    try:
        found = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        return RenderFailure(f"gives an answer that cannot be read: {problem}")
    if isinstance(found, list):
        if not found:
            return RenderFailure("gives an answer without a prompt")
        found = found[0]
    return found


def _too_late(result: object, seconds: float) -> None:
    raise RenderTimeout(f"has not answered within {seconds:g} seconds")


def _explained(failure: Failure) -> RenderFailure:
    """What went wrong, where Twisted wraps it up."""
    from twisted.web.client import ResponseFailed  # noqa: PLC0415 - as above
    from twisted.web.http import _DataLoss  # noqa: PLC0415

    problem: Any = failure.value
    if isinstance(problem, RenderFailure):
        return problem
    reasons = getattr(problem, "reasons", None)
    cause = reasons[0].value if reasons else problem
    if isinstance(cause, ResponseFailed | ConnectionClosed | _DataLoss):
        return RenderFailure("ended the connection before it had answered")
    return RenderFailure(f"cannot be reached: {str(cause) or type(cause).__name__}")
