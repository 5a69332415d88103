"""Responses that are made whether anybody waits for them or not, and the streams that follow them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from twisted.internet.threads import deferToThread
from twisted.logger import Logger
from twisted.python.failure import Failure

from llmdsim.engine.sequence import Sequence as EngineSequence
from llmdsim.web.driver import Driver
from llmdsim.web.errors import ApiError, gave_up
from llmdsim.web.frames import Frames
from llmdsim.web.responses.frames import ResponseFrames
from llmdsim.web.responses.response import Response
from llmdsim.web.stream import ReplyStream, StreamedChoice
from llmdsim.web.turns import Turns
from llmdsim.web.whole import MANY_LISTED
from llmdsim.wire import sse
from llmdsim.wire.request import Request

log = Logger()

#: Bytes a token of a reply takes, about.
_TOKEN = 16


class Background:
    """The answer to a request for a response in the background, and the sink of its sequence.

    The request is answered at once: with the queued object, or with `stream` by a stream, whose client may
    leave without ending anything. `keep` is given the object that the response ends as.
    """

    streamed = False

    def __init__(
        self,
        request: Request,
        driver: Driver,
        turns: Turns,
        response: Response,
        stream: bool,
        keep: Callable[[bytes], None],
    ) -> None:
        self.request = request
        self.wants = response.wants
        self.sequences: Sequence[EngineSequence] = ()
        self._driver = driver
        self._turns = turns
        self._response = response
        self._stream = stream
        #: None once it has been called.
        self._keep: Callable[[bytes], None] | None = keep
        #: Why it was not completed.
        self._error: ApiError | None = None
        self._followers: list[tuple[Request, StreamedChoice]] = []

    # --- the answer to the request

    def sinks(self) -> list[Background]:
        """The sink of its one choice: this one."""
        return [self]

    def open(self) -> None:
        """Answer the request."""
        if self._stream:
            self.follow(self.request, -1)
        else:
            self.request.respond(200, self._response.object.render(b"queued"))
        # This may be kept long after the connection is gone.
        del self.request

    # --- the sink

    def reveal(self, sequence: EngineSequence) -> None:
        for _, choice in self._followers:
            choice.reveal(sequence)
        reason = sequence.finish_reason
        if reason is None:
            return
        self._followers = []
        if reason == "error":
            self._break(gave_up(sequence))
        else:
            self._complete(sequence)

    def fail(self, sequence: EngineSequence) -> None:
        followers, self._followers = self._followers, []
        for _, choice in followers:
            choice.fail(sequence)
        self._break(gave_up(sequence))

    def _complete(self, sequence: EngineSequence) -> None:
        counts = sequence.revealed, sequence.cached_tokens
        shape = self._response.shape
        if shape is not None and shape.listed * sequence.revealed > MANY_LISTED:
            made = deferToThread(self._response.body, [sequence], *counts)
            made.addCallbacks(self._end, self._failed)
        else:
            self._end(self._response.body([sequence], *counts))

    def _failed(self, failure: Failure) -> None:
        log.failure("a response in the background failed", failure)
        self._break(ApiError(500, "Internal server error"))

    def _break(self, error: ApiError) -> None:
        self._error = error
        self._end(self._response.object.broken(error))

    def _end(self, body: bytes) -> None:
        keep, self._keep = self._keep, None
        if keep is not None:
            keep(body)

    # --- what clients ask of it

    @property
    def size(self) -> int:
        """Bytes, about, of what is kept for streams that follow later."""
        (sequence,) = self.sequences
        tokens = sequence.prompt_tokens + (0 if sequence.reply is None else sequence.reply.total)
        return self._response.object.size + _TOKEN * tokens + 2 * len(sequence.ask.prompt.text or "")

    @property
    def ended(self) -> bool:
        """Whether `keep` has been called."""
        return self._keep is None

    def now(self) -> bytes:
        """The object as it is before the end."""
        (sequence,) = self.sequences
        waits = sequence.reply is None and sequence.finish_reason is None
        return self._response.object.render(b"queued" if waits else b"in_progress")

    def cancel(self) -> None:
        """End it before its time, and the streams that follow it."""
        (sequence,) = self.sequences
        self._response.object.cancelled = True
        self._driver.abort(sequence)
        self.fail(sequence)

    def follow(self, request: Request, after: int) -> None:
        """Answer with the stream of its events from that numbered `after` + 1, past and future ones."""
        (sequence,) = self.sequences
        frames: Frames = ResponseFrames(self._response)
        if after >= 0:
            frames = _Later(frames, after + 1)
        if self._error is not None:
            data = frames.early()
            if sequence.revealed:
                data += frames.render(0, sequence, 0, sequence.revealed, False)
            data += frames.error(self._error)
            request.start(200, sse.CONTENT_TYPE, first=data, end=True)
            return
        stream = ReplyStream(request, self._driver, frames, self._turns)
        (choice,) = stream.sinks()
        ended = sequence.finish_reason is not None
        if not ended:
            self._followers = [(other, its) for other, its in self._followers if not other.finished]
            self._followers.append((request, choice))
        stream.open()
        if sequence.revealed or ended:
            choice.reveal(sequence)


class _Later(Frames):
    """The frames of another, without the first `skip` events."""

    def __init__(self, frames: Frames, skip: int) -> None:
        self.wants = frames.wants
        self._frames = frames
        self._skip = skip

    def early(self) -> bytes:
        return self._cut(self._frames.early())

    def render(self, index: int, sequence: EngineSequence, start: int, stop: int, ends: bool) -> bytes:
        return self._cut(self._frames.render(index, sequence, start, stop, ends))

    def end(self, sequence: EngineSequence, completion_tokens: int, cached_tokens: int) -> bytes:
        return self._cut(self._frames.end(sequence, completion_tokens, cached_tokens))

    def error(self, error: ApiError) -> bytes:
        return self._cut(self._frames.error(error))

    def _cut(self, data: bytes) -> bytes:
        if not self._skip:
            return data
        events = data.split(b"\n\n")[:-1]
        kept = events[self._skip :]
        self._skip -= len(events) - len(kept)
        return b"".join([event + b"\n\n" for event in kept])
