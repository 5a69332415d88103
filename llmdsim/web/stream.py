"""Streamed replies: engine sinks that write SSE frames as tokens fall due."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from twisted.logger import Logger
from twisted.python.failure import Failure

from llmdsim.engine.engine import COMPLETE
from llmdsim.engine.pacing import BURST
from llmdsim.engine.sequence import Sequence as EngineSequence
from llmdsim.web.context import Driver
from llmdsim.web.errors import ApiError, gave_up
from llmdsim.web.frames import NULL, Frames, finish_members
from llmdsim.web.turns import Steps, Turns
from llmdsim.web.usage import usage
from llmdsim.web.wants import ChoiceWants, ReplyWants
from llmdsim.wire import sse
from llmdsim.wire.request import Request

log = Logger()

json = msgspec.json.encode


class ReplyStream:
    """One streamed reply of one or more choices."""

    streamed = True

    def __init__(
        self, request: Request, driver: Driver, frames: Frames, wants: ReplyWants, turns: Turns
    ) -> None:
        self.request = request
        self.frames = frames
        self.wants = wants
        self.sequences: Sequence[EngineSequence] = ()
        self._driver = driver
        self._left = len(wants.choices)
        self._completion_tokens = 0
        self._cached_tokens = 0
        self._heads_sent = False
        self._turns = turns
        self._behind: list[tuple[StreamedChoice, EngineSequence]] = []
        self._catching_up = False
        request.on_lost = self._client_left
        request.on_drain = self._catch_up

    def sinks(self) -> list[StreamedChoice]:
        """A sink for each choice, for its sequence to keep."""
        plain = not self.wants.token_ids and not self.wants.continuous_usage
        return [
            StreamedChoice(self, index, choice, plain and choice.logprobs is None and not choice.prompt_only)
            for index, choice in enumerate(self.wants.choices)
        ]

    def open(self) -> None:
        """Send the response's head, if the first tokens have not taken it along."""
        self.request.start(200, sse.CONTENT_TYPE)

    def heads(self) -> bytes:
        """The frames before the first token of any choice, once."""
        if self._heads_sent:
            return b""
        self._heads_sent = True
        choices = self.wants.choices
        return self.frames.heads(choices, [self.usage_member(choice, 0) for choice in choices])

    def usage_member(self, choice: ChoiceWants, completion_tokens: int) -> bytes:
        """The usage so far of a choice, as a member with its leading comma, where every frame has it."""
        if not self.wants.continuous_usage:
            return b""
        return b',"usage":%b' % usage(len(choice.prompt), completion_tokens, self.frames.usage_details)

    def put(self, data: bytes) -> None:
        """Send frames."""
        if self.request.started:
            self.request.send(data)
        else:
            self.request.start(200, sse.CONTENT_TYPE, first=data)

    def put_last(self, data: bytes, sequence: EngineSequence) -> None:
        """Send the last frames of a choice, and after those of the last choice the stream's end."""
        self._completion_tokens += sequence.revealed
        self._cached_tokens += sequence.cached_tokens
        self._left -= 1
        if self._left:
            self.put(data)
            return
        wants = self.wants
        if wants.usage:
            cached = self._cached_tokens if wants.cached else None
            data += self.frames.last(wants.prompt_tokens, self._completion_tokens, cached)
        self._end(data + sse.DONE)

    def fail(self, sequence: EngineSequence) -> None:
        """Send an error frame and end: what the engine gave up cannot be completed."""
        self._give_up(gave_up(sequence.finish_reason))

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
            self.request.start(200, sse.CONTENT_TYPE, first=data, end=True)

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
            self._end(sse.event(error.body) + sse.DONE)

    def _client_left(self) -> None:
        self._abort_all()

    def _abort_all(self) -> None:
        # Emptied first: the sequences hold our choices, and a cycle would wait for the collector.
        sequences, self.sequences = self.sequences, ()
        for sequence in sequences:
            self._driver.abort(sequence)


class StreamedChoice:
    """The sink of one choice."""

    __slots__ = ("_before", "_choice", "_plain_after", "_stream", "portion", "written")

    def __init__(self, stream: ReplyStream, index: int, choice: ChoiceWants, plain: bool) -> None:
        self._stream = stream
        self._choice = choice
        self._before = stream.frames.before(index)
        self._plain_after = stream.frames.plain() if plain else None
        # Tokens written at a time: an alternative costs about as much as a token.
        self.portion = BURST if choice.logprobs is None else max(1, BURST // (1 + choice.logprobs.listed))
        self.written = -1  # tokens written; -1 until the first frame

    def reveal(self, sequence: EngineSequence) -> None:
        stream = self._stream
        request = stream.request
        finish_reason = sequence.finish_reason
        if finish_reason is not None and finish_reason not in COMPLETE:
            stream.fail(sequence)
            return
        if request.finished:
            return
        if request.channel.write_paused:
            stream.wait_for_reader(self, sequence)
            return
        start = self.written
        stop = revealed = sequence.revealed
        if stop - start > self.portion:
            stop = min(stop, max(start, 0) + self.portion)
        self.written = stop
        if finish_reason is not None and stop == revealed:
            stream.put_last(self._render(sequence, start, stop, True), sequence)
        elif start > 0 and self._plain_after is not None:
            request.send(self._plain_frames(sequence, start, stop))
        else:
            stream.put(self._render(sequence, start, stop, False))
        if stop != revealed:
            stream.wait_for_turn(self, sequence)

    def _plain_frames(self, sequence: EngineSequence, start: int, stop: int) -> bytes:
        reply, before, after = sequence.reply, self._before, self._plain_after
        assert reply is not None
        assert after is not None
        pieces = reply.pieces(start, stop)
        if len(pieces) == 1:
            return before + pieces[0] + after
        return b"".join([before + piece + after for piece in pieces])

    def fail(self, sequence: EngineSequence) -> None:
        self._stream.fail(sequence)

    def _render(self, sequence: EngineSequence, start: int, stop: int, ends: bool) -> bytes:
        reply = sequence.reply
        assert reply is not None
        stream, choice, frames = self._stream, self._choice, self._stream.frames
        out = []
        lead = b""
        prompt_ids = NULL
        if start < 0:
            start = 0
            out.append(stream.heads())
            if not frames.heads_apart:
                lead = choice.lead
                prompt_ids = choice.prompt_ids
        pieces = reply.pieces(start, stop)
        if choice.prompt_only:
            pieces = [b""] * len(pieces)
        finish = None
        if ends:
            finish = finish_members(reply.finish_reason, reply.stop_reason)
            if not pieces:
                pieces = [b""]  # nothing was generated, yet a frame must carry the reason
        for offset, piece in enumerate(pieces):
            token = start + offset
            last = finish if offset == len(pieces) - 1 else None
            ids = logprobs = NULL
            if stream.wants.token_ids:
                ids = json(reply.ids(token, min(token + 1, stop)))
            if choice.logprobs is not None:
                end = min(token + 1, stop)
                texts = reply.token_texts(token, end)
                if choice.prompt_only:
                    end, texts = token, []
                logprobs = choice.logprobs.render(reply.ids(token, end), texts, token)
            usage_member = stream.usage_member(choice, min(token + 1, stop))
            out += [self._before, lead, piece, frames.after(last, logprobs, ids, prompt_ids, usage_member)]
            prompt_ids, lead = NULL, b""
        return b"".join(out)
