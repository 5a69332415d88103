"""The events of a streamed response, as SSE frames."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from llmdsim.engine.sequence import Sequence as EngineSequence
from llmdsim.reply.reply import Delta, Reply
from llmdsim.web.deltas import pieces, spans
from llmdsim.web.errors import ApiError
from llmdsim.web.frames import Frames
from llmdsim.web.responses.logprobs import without_bytes
from llmdsim.web.responses.output_items import NULL, Event, Item
from llmdsim.web.responses.response import Response

json = msgspec.json.encode


class ResponseFrames(Frames):
    """One stream of a response; `keep` is given the finished object."""

    def __init__(self, response: Response, keep: Callable[[bytes], None] | None = None) -> None:
        self.wants = response.wants
        self._response = response
        self._keep = keep
        self._begun = False
        #: The number of the next event.
        self._number = 0
        self._part = -1
        self._item: Item | None = None
        self._delta = (b"", b"", b"")
        self._items: list[bytes] = []
        #: Of the present text: its tokens' log probabilities, and how many tokens they are of.
        self._listed: list[bytes] = []
        self._listed_to = 0
        #: What is added to the present item, and the step after it.
        self._added = ""
        self._added_to = 0

    def early(self) -> bytes:
        if self._begun:
            return b""
        self._begun = True
        shown = b'"response":%b' % self._response.object.render(b"in_progress")
        return self._events([Event(b"response.created", shown), Event(b"response.in_progress", shown)])

    def render(self, index: int, sequence: EngineSequence, start: int, stop: int, ends: bool) -> bytes:
        reply = sequence.reply
        assert reply is not None
        out = []
        if start < 0:
            start = 0
            out.append(self.early())
        if self._response.parted or self._response.shape is not None:
            for first, end in spans(start, stop, self.wants.interval):
                for step, deltas in enumerate(reply.deltas(first, end), first):
                    self._render_step(reply, step, deltas, out)
                self._flush(reply, out)
            return b"".join(out)
        number = self._number
        before, between, after = self._delta
        for piece in pieces(reply, start, stop, self.wants.interval):
            if piece:
                if self._item is None:
                    out.append(self._open(reply, 0))
                    number = self._number
                    before, between, after = self._delta
                out.append(b'%b"%b"%b%d%b' % (before, piece, between, number, after))
                number += 1
        self._number = number
        return b"".join(out)

    def _render_step(self, reply: Reply, step: int, deltas: list[Delta], out: list[bytes]) -> None:
        response = self._response
        for part, text in deltas:
            if self._item is None or part != self._part:
                self._flush(reply, out)
                out.append(self._close(reply, b"completed"))
                out.append(self._open(reply, part))
                if response.parted:
                    self._listed_to = step
            self._added += text
            self._added_to = step + 1

    def _flush(self, reply: Reply, out: list[bytes]) -> None:
        """Tell what has been added."""
        if not self._added:
            return
        item = self._item
        assert item is not None
        added, self._added = item.added(self._added), ""
        if not added:
            return
        response = self._response
        before, between, after = self._delta
        if response.shape is not None and response.part(reply, self._part).kind == "text":
            _, between, _ = item.delta(self._list(reply, self._added_to))
        out.append(b"%b%b%b%d%b" % (before, json(added), between, self._number, after))
        self._number += 1

    def _list(self, reply: Reply, stop: int) -> bytes:
        """The log probabilities up to the token before `stop`, as its event tells them."""
        shape = self._response.shape
        assert shape is not None
        start, self._listed_to = self._listed_to, stop
        entries = shape.entries(reply.ids(start, stop), reply.token_texts(start, stop), start)
        if entries:
            self._listed.append(json(entries)[1:-1])
        return without_bytes(entries)

    def end(self, sequence: EngineSequence, completion_tokens: int, cached_tokens: int) -> bytes:
        reply = sequence.reply
        assert reply is not None
        response = self._response
        status = response.status(sequence)
        closing = self._close(reply, status)
        finished = response.finished(sequence, self._items)
        if self._keep is not None:
            self._keep(finished)
        return closing + self._events([Event(b"response.%b" % status, b'"response":%b' % finished)])

    def error(self, error: ApiError) -> bytes:
        shown = b'"response":%b' % self._response.object.broken(error)
        return self.early() + self._events([Event(b"response.failed", shown)])

    def _open(self, reply: Reply, part: int) -> bytes:
        self._part = part
        self._item = self._response.item(reply, part)
        self._delta = self._item.delta()
        return self._events(self._item.opening())

    def _close(self, reply: Reply, status: bytes) -> bytes:
        item, self._item = self._item, None
        if item is None:
            return b""
        logprobs = NULL
        if self._response.parted:
            text = json(item.full(reply.part_texts()[self._part]))
        else:
            text = b'"%b"' % reply.json_text()
            if self._response.shape is not None:
                self._list(reply, reply.total)
        if self._listed:
            logprobs, self._listed = b"[%b]" % b",".join(self._listed), []
        whole = item.whole(text, b'"%b"' % status, logprobs)
        self._items.append(whole)
        return self._events([*item.closing(text, logprobs), item.done(whole)])

    def _events(self, events: list[Event]) -> bytes:
        first = self._number
        self._number += len(events)
        return b"".join([event.render(number) for number, event in enumerate(events, first)])
