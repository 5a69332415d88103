"""Streamed replies: engine sinks that write frames, of SSE or of gRPC, as tokens fall due."""

from __future__ import annotations

from collections.abc import Sequence

from twisted.logger import Logger
from twisted.python.failure import Failure

from llmdsim.engine.pacing import BURST
from llmdsim.engine.sequence import Sequence as EngineSequence
from llmdsim.web.deltas import last_end
from llmdsim.web.driver import Driver
from llmdsim.web.errors import ApiError, gave_up
from llmdsim.web.frames import Frames
from llmdsim.web.turns import Steps, Turns
from llmdsim.web.wants import ChoiceWants
from llmdsim.wire.request import Request

log = Logger()


class ReplyStream:
    """One streamed reply of one or more choices."""

    streamed = True

    def __init__(self, request: Request, driver: Driver, frames: Frames, turns: Turns) -> None:
        self.request = request
        self.frames = frames
        self.wants = frames.wants
        self.sequences: Sequence[EngineSequence] = ()
        self._driver = driver
        self._left = len(self.wants.choices)
        self._completion_tokens = 0
        self._cached_tokens = 0
        self._turns = turns
        self._behind: list[tuple[StreamedChoice, EngineSequence]] = []
        self._catching_up = False
        request.on_lost = self._client_left
        request.on_drain = self._catch_up
        request.on_failure = self._give_up

    def sinks(self) -> list[StreamedChoice]:
        """A sink for each choice, for its sequence to keep."""
        return [StreamedChoice(self, index, choice) for index, choice in enumerate(self.wants.choices)]

    def open(self) -> None:
        """Send the response's head, if the first tokens have not taken it along."""
        if not self.request.started:
            self.request.start(200, self.frames.content_type, first=self.frames.early())

    def put(self, data: bytes) -> None:
        """Send frames."""
        if self.request.started:
            self.request.send(data)
        else:
            self.request.start(200, self.frames.content_type, first=data)

    def put_last(self, data: bytes, sequence: EngineSequence) -> None:
        """Send the last frames of a choice, and after those of the last choice the stream's end."""
        self._completion_tokens += sequence.revealed
        if sequence.is_first:
            self._cached_tokens += sequence.cached_tokens
        self._left -= 1
        if self._left:
            self.put(data)
            return
        self._end(data + self.frames.end(sequence, self._completion_tokens, self._cached_tokens))

    def fail(self, sequence: EngineSequence) -> None:
        """Send an error frame and end: what the engine gave up cannot be completed."""
        self._give_up(gave_up(sequence))

    def wait_for_reader(self, choice: StreamedChoice, sequence: EngineSequence) -> None:
        """Keep what is due until the client reads on; its bytes are made only then."""
        if all(waiting is not choice for waiting, _ in self._behind):
            self._behind.append((choice, sequence))

    def wait_for_turn(self, choice: StreamedChoice, sequence: EngineSequence) -> None:
        """Keep what is due beyond one portion until others have had their turn."""
        self.wait_for_reader(choice, sequence)
        self._catch_up()

    def _end(self, data: bytes) -> None:
        self.sequences = ()
        if self.request.started:
            self.request.finish(data)
        else:
            self.request.start(200, self.frames.content_type, first=data, end=True)

    def _catch_up(self) -> None:
        if self._behind and not self._catching_up:
            done = self._turns.take(self._portions())
            if done is not None:
                done.addErrback(self._turn_given_up)

    def _portions(self) -> Steps:
        """Write what is due, a portion in each step, as far as the client reads."""
        self._catching_up = True
        room = 1.0
        try:
            while self._behind and not self.request.channel.write_paused:
                choice, sequence = self._behind.pop(0)
                room += choice.written / choice.portion
                try:
                    choice.reveal(sequence)
                except Exception:
                    # No pass of the engine is there to note it.
                    log.failure("a stream failed as its client read on")
                    self.fail(sequence)
                room -= choice.written / choice.portion
                if room <= 0.0 and self._behind:
                    yield
                    room = 1.0
        finally:
            self._catching_up = False

    def _turn_given_up(self, failure: Failure) -> None:
        assert isinstance(failure.value, ApiError)
        self._give_up(failure.value)

    def _give_up(self, error: ApiError) -> None:
        self._abort_all()
        if not self.request.finished:
            self._end(self.frames.error(error))

    def _client_left(self) -> None:
        self._abort_all()

    def _abort_all(self) -> None:
        # Emptied first: the sequences hold our choices, and a cycle would wait for the collector.
        sequences, self.sequences = self.sequences, ()
        for sequence in sequences:
            self._driver.abort(sequence)


class StreamedChoice:
    """The sink of one choice. Where deltas end depends on nothing but how many tokens they take."""

    __slots__ = ("_index", "_interval", "_plain", "_stream", "portion", "written")

    def __init__(self, stream: ReplyStream, index: int, choice: ChoiceWants) -> None:
        self._stream = stream
        self._index = index
        self._interval = interval = stream.wants.interval
        self._plain = stream.frames.plain_frames(index) if interval == 1 else None
        # Tokens written at a time, a delta at least: an alternative costs about as much as a token.
        listed = 0 if choice.logprobs is None else choice.logprobs.listed
        self.portion = max(interval, BURST // (1 + listed))
        self.written = -1  # tokens written; -1 until the first frame

    def reveal(self, sequence: EngineSequence) -> None:
        stream = self._stream
        request = stream.request
        finish_reason = sequence.finish_reason
        start, plain = self.written, self._plain
        if start > 0 and plain is not None and finish_reason is None:
            # Nearly every token.
            stop = sequence.revealed
            channel = request.channel
            if 0 < stop - start <= self.portion and not request.finished and not channel.write_paused:
                self.written = stop
                if request.unframed:
                    channel.write(plain(sequence.reply, start, stop))  # type: ignore[arg-type]
                else:
                    request.send(plain(sequence.reply, start, stop))  # type: ignore[arg-type]
                return
        if finish_reason == "error":
            stream.fail(sequence)
            return
        if request.finished:
            return
        due = sequence.revealed
        if self._interval > 1 and finish_reason is None:
            due = last_end(due, self._interval)
            if due <= start:
                return
        if request.channel.write_paused:
            stream.wait_for_reader(self, sequence)
            return
        stop = due
        if stop - start > self.portion:
            stop = min(stop, last_end(max(start, 0) + self.portion, self._interval))
        self.written = stop
        if finish_reason is not None and stop == due:
            stream.put_last(stream.frames.render(self._index, sequence, start, stop, True), sequence)
        else:
            stream.put(stream.frames.render(self._index, sequence, start, stop, False))
        if stop != due:
            stream.wait_for_turn(self, sequence)

    def fail(self, sequence: EngineSequence) -> None:
        self._stream.fail(sequence)
