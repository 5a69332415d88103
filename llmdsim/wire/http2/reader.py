"""Reads the frames of a connection: those of open streams, and heads met before, itself; all others by h2."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any

from h2.errors import ErrorCodes
from h2.events import RequestReceived

from llmdsim.wire.http2.allowance import RESET
from llmdsim.wire.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADER,
    HEADERS,
    LARGEST,
    LARGEST_WINDOW,
    PADDED,
    PING,
    PREFACE,
    RST_STREAM,
    WINDOW_UPDATE,
    WITH_PRIORITY,
)
from llmdsim.wire.http2.heads import RequestHead
from llmdsim.wire.http2.stream import Stream

if TYPE_CHECKING:
    from llmdsim.wire.http2.connection import HTTP2

#: Heads that are known at most, and bytes of one.
_MOST_KNOWN, _LONGEST_KNOWN = 64, 2048

#: Length, in two pieces, kind, flags and stream.
_head = Struct(">HBBBI").unpack_from


class Fault(Exception):
    """What ends the connection: an error code, and why."""

    def __init__(self, code: ErrorCodes, why: str) -> None:
        super().__init__(why)
        self.code = code


class FrameReader:
    """The reading half of a connection. What it reads does something to a stream, or to `connection`."""

    def __init__(self, connection: HTTP2) -> None:
        self._connection = connection
        self._arrivals = connection.arrivals
        self._h2 = connection.h2
        self._streams = connection.streams
        self._data = bytearray()
        #: Bytes of the client's preface that have still to come.
        self._preface_left = len(PREFACE)
        #: A header block is not complete, and nothing else may come before it is.
        self._in_block = False
        #: Heads by their blocks, as long as the table they refer to stays as it is.
        self._known: dict[bytes, RequestHead] = {}
        self._table = self._h2.table

    def feed(self, data: bytes) -> None:
        """Keep what has come, to be read."""
        self._data += data

    def clear(self) -> None:
        """Nothing more is to be read."""
        self._data.clear()

    def read(self, most: int) -> bool:
        """Read up to so many frames; returns whether there are more. Raises Fault, or h2's ProtocolError."""
        data = self._data
        at = 0
        if self._preface_left:
            at = min(self._preface_left, len(data))
            self._preface_left -= at
            self._leave_to_h2(bytes(data[:at]))
        size = len(data)
        streams = self._streams
        idle = 0
        more = False
        try:
            for _ in range(most):
                start = at + HEADER
                if start > size:
                    break
                high, low, kind, flags, stream_id = _head(data, at)
                length = high << 8 | low
                end = start + length
                if length > LARGEST:
                    end = size  # h2 refuses it by its head
                elif end > size:
                    break
                stream_id &= LARGEST_WINDOW
                begin, at = at, end
                taken = False
                if length > LARGEST or self._in_block:
                    idle += kind != HEADERS
                elif kind == DATA:
                    stream = streams.get(stream_id)
                    if stream is not None:
                        taken = True
                        self._take_data(stream, flags, bytes(data[start:end]))
                    if not taken or (not length and not flags & END_STREAM):
                        idle += 1
                elif kind == HEADERS:
                    taken = self._take_head(flags, stream_id, bytes(data[start:end]))
                else:
                    idle += RESET if kind == RST_STREAM else 1
                    taken = self._take(kind, flags, stream_id, bytes(data[start:end]))
                if not taken:
                    self._leave_frame_to_h2(kind, flags, stream_id, bytes(data[begin:end]))
                if self._connection.closing:
                    return False
            else:
                more = True
        finally:
            del data[:at]
            if idle:
                self._connection.spend(idle)
        return more

    # --- by h2

    def _leave_frame_to_h2(self, kind: int, flags: int, stream_id: int, frame: bytes) -> None:
        h2 = self._h2
        if kind == HEADERS:
            self._in_block = True
            stream = self._streams.get(stream_id)
            if stream is not None:
                h2.lend(stream_id, stream.complete)
        if kind in (HEADERS, CONTINUATION) and flags & END_HEADERS:
            self._in_block = False
        found = self._leave_to_h2(frame)
        if self._in_block:
            return
        h2.take_back()
        table = h2.table
        if not table.means_the_same_as(self._table):
            self._known.clear()
        for event in found:
            if isinstance(event, RequestReceived):
                head = RequestHead(event.headers)
                if kind == HEADERS and table.means_the_same_as(self._table):
                    self._learn(flags, frame, head)
                self._arrivals.begin(event.stream_id, head, event.stream_ended is not None)
            else:
                self._connection.told(event)
        self._table = table

    def _leave_to_h2(self, data: bytes) -> list[Any]:
        try:
            return self._h2.receive_data(data)
        finally:
            self._connection.put_answers()

    def _learn(self, flags: int, frame: bytes, head: RequestHead) -> None:
        """Know a head again, which changed nothing of what the next ones mean."""
        if not flags & (PADDED | WITH_PRIORITY) and len(frame) <= _LONGEST_KNOWN:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[frame[HEADER:]] = head

    # --- without it

    def _take_head(self, flags: int, stream_id: int, block: bytes) -> bool:
        """Begin the request of a head that is known; returns whether it is one."""
        head = self._known.get(block)
        h2 = self._h2
        if (
            head is None
            or flags & ~END_STREAM != END_HEADERS
            or stream_id <= h2.highest_inbound_stream_id
            or not stream_id & 1
        ):
            return False
        h2.highest_inbound_stream_id = stream_id
        self._arrivals.begin(stream_id, head, bool(flags & END_STREAM))
        return True

    def _take(self, kind: int, flags: int, stream_id: int, payload: bytes) -> bool:
        """Do what an everyday frame without anything of a request says; returns whether it is one."""
        if kind == WINDOW_UPDATE:
            return len(payload) == 4 and self._open_window(
                stream_id, int.from_bytes(payload, "big") & LARGEST_WINDOW
            )
        if kind == RST_STREAM:
            stream = self._streams.get(stream_id)
            if stream is None:
                self._refuse_idle(stream_id)
            if stream is None or len(payload) != 4:
                return False
            self._connection.stream_reset(stream)
        elif kind == PING and not flags & ACK:
            if stream_id or len(payload) != 8:
                return False
            self._connection.pong(payload)
        else:
            return False
        return True

    def _refuse_idle(self, stream_id: int) -> None:
        """Of all frames that a stream must have begun for, h2 lets this one pass (RFC 9113 5.1)."""
        if stream_id > self._h2.highest_inbound_stream_id or not stream_id & 1:
            raise Fault(ErrorCodes.PROTOCOL_ERROR, "a stream is reset that has not begun")

    def _take_data(self, stream: Stream, flags: int, payload: bytes) -> None:
        taken = len(payload)
        if flags & PADDED:
            padding = payload[0] if payload else 0
            if padding >= taken:
                raise Fault(ErrorCodes.PROTOCOL_ERROR, "more padding than there is")
            payload = payload[1 : taken - padding]
        if not self._h2.took(taken):
            raise Fault(ErrorCodes.FLOW_CONTROL_ERROR, "more data than the connection's window takes")
        self._arrivals.take(stream, payload, taken, bool(flags & END_STREAM))

    def _open_window(self, stream_id: int, size: int) -> bool:
        connection = self._connection
        if not stream_id:
            window = self._h2.outbound_flow_control_window + size
            if not size or window > LARGEST_WINDOW:
                return False
            self._h2.outbound_flow_control_window = window
            connection.window_opened()
            return True
        stream = self._streams.get(stream_id)
        if stream is None:
            return False
        if not size:
            stream.break_off(ErrorCodes.PROTOCOL_ERROR)
        elif stream.window + size > LARGEST_WINDOW:
            stream.break_off(ErrorCodes.FLOW_CONTROL_ERROR)
        else:
            stream.window += size
            if stream.write_paused:
                connection.wait_for_window(stream)
        return True
