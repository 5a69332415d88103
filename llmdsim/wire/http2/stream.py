"""One HTTP/2 stream: the channel of its request, within its window and the connection's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from h2.errors import ErrorCodes

from llmdsim.wire.http2 import frames
from llmdsim.wire.http2.heads import block_of
from llmdsim.wire.http2.state import STREAM_WINDOW
from llmdsim.wire.limits import LINGER_SECONDS
from llmdsim.wire.request import Request

if TYPE_CHECKING:
    from llmdsim.wire.http2.connection import HTTP2
    from llmdsim.wire.site import Answerer


class Stream:
    """It is given the head as HTTP/1 has it and then the body, unframed.

    What a window does not take yet is kept, and counted in `connection.kept`; meanwhile nothing more should
    be written. `transport` is the stream itself, as far as ending it at once goes.
    """

    __slots__ = (
        "_connection",
        "_data_head",
        "_h2",
        "_head_sent",
        "_kept",
        "_linger_call",
        "_open",
        "_over",
        "answerer",
        "body",
        "complete",
        "dealt_with",
        "heard",
        "id",
        "request",
        "room",
        "unacknowledged",
        "window",
        "write_paused",
    )

    def __init__(self, connection: HTTP2, stream_id: int) -> None:
        self.id = stream_id
        self._connection = connection
        self._h2 = connection.h2
        #: Bytes that the client would take, and those that it may send.
        self.window = connection.window
        self.room = STREAM_WINDOW
        self._data_head = frames.data_head(stream_id)
        self._head_sent = False
        #: The head is sent, and data follows as far as windows go.
        self._open = False
        #: Nothing should be sent for now: something is kept, or the connection is not read.
        self.write_paused = connection.write_paused
        #: The response is written, and is to end when what is kept has been sent.
        self._over = False
        self._kept = bytearray()
        #: The response has been sent before all of the request came: the rest is read for a while yet.
        self._linger_call: Any = None
        self.request: Request
        #: What answers it: the site, or where it is a call of gRPC the site's `calls`.
        self.answerer: Answerer = connection.site
        #: What has come of the request's body, all of it when `complete`, and when something last came.
        self.body = bytearray()
        self.complete = False
        self.heard = 0.0
        #: Bytes of the body that wait to be dealt with, and those dealt with and not told of.
        self.unacknowledged = self.dealt_with = 0

    # --- as a channel

    @property
    def transport(self) -> Stream:
        """What ends it at once."""
        return self

    @property
    def peer(self) -> str:
        """The client's address and port, or `unix`."""
        return self._connection.peer

    def refuse(self, request: Request, status: int, message: str) -> None:
        """Answer `request` with an error."""
        self.answerer.refuse(request, status, message)

    @property
    def is_call(self) -> bool:
        """Whether it is one of gRPC."""
        return self.answerer is not self._connection.site

    def write(self, data: bytes) -> None:
        """Send `data` in this turn, as far as windows allow."""
        if self._open:
            size = len(data)
            h2 = self._h2
            if size <= self.window and size <= h2.outbound_flow_control_window and size <= frames.LARGEST:
                self.window -= size
                h2.outbound_flow_control_window -= size
                self._connection.put(size.to_bytes(3, "big") + self._data_head + data)
                return
        elif self._over:
            return
        connection = self._connection
        if not self._head_sent:
            self._head_sent = True
            head, _, data = data.partition(b"\r\n\r\n")
            connection.put_headers(self.id, block_of(head), False)
            self._open = True
            if data:
                self.write(data)
            return
        self._open = False
        self._kept += data
        self.write_paused = True
        connection.kept += len(data)
        connection.wait_for_window(self)

    write_soon = write

    def request_done(self, request: Request) -> None:
        """The response is written."""
        connection = self._connection
        connection.request_over(request)
        if connection.streams.get(self.id) is not self:
            return
        self._over = True
        self._open = False
        self.acknowledge()
        if request.lost:
            # Cut off; where the protocol cannot tell, this looks like an end. Other streams go on.
            self.reset(ErrorCodes.INTERNAL_ERROR)
            return
        if not self._kept:
            self._end()
        if not request.keep_alive:
            connection.close_soon(at_once=self.is_call)

    def abortConnection(self) -> None:
        """End the stream, and nothing but the stream, at once."""
        request = self.request
        self.reset(ErrorCodes.INTERNAL_ERROR)
        # As the end of a connection is told: never to whoever brings it about.
        self._connection.site.clock.callLater(0, self._connection.lose, request)

    # --- for the connection

    def push(self) -> bool:
        """Send a frame of what is kept, if windows allow; returns whether another could follow."""
        h2 = self._h2
        size = min(
            len(self._kept),
            self.window,
            h2.outbound_flow_control_window,
            h2.max_outbound_frame_size,
        )
        if size <= 0:
            return False
        self.window -= size
        h2.outbound_flow_control_window -= size
        connection = self._connection
        connection.kept -= size
        connection.put(size.to_bytes(3, "big") + self._data_head + self._kept[:size])
        del self._kept[:size]
        if self._kept:
            return True
        self.write_paused = connection.write_paused
        if self._over:
            self._end()
            return False
        self._open = True
        if not connection.write_paused:
            self.drained()
        return False

    def connection_paused(self, paused: bool) -> None:
        """The connection is not read from any more, or is again."""
        self.write_paused = paused or bool(self._kept)

    def drained(self) -> None:
        """The client reads again."""
        self.request.drained()
        if not self.write_paused:
            self.acknowledge()

    def acknowledge(self) -> None:
        """Have the client send on: what it does not read must not be answered to without end."""
        if self.unacknowledged:
            taken, self.unacknowledged = self.unacknowledged, 0
            self._connection.arrivals.acknowledge(taken, self)

    def reset(self, code: ErrorCodes) -> None:
        """End it at once, as far as the client goes."""
        connection = self._connection
        if not connection.closing:
            connection.put(frames.rst_stream(self.id, code))
        connection.forget(self, by_reset=True)

    def break_off(self, code: ErrorCodes) -> None:
        """End it at once, for a fault of the client's, who has nothing more of it."""
        request = self.request
        self.reset(code)
        self._connection.lose(request)

    def drop(self) -> None:
        """It is over: nothing of what is kept will be sent."""
        self._over = True
        self._open = False
        connection = self._connection
        if self.unacknowledged:
            connection.arrivals.acknowledge(self.unacknowledged)
            self.unacknowledged = 0
        connection.kept -= len(self._kept)
        self._kept.clear()
        if self._linger_call is not None:
            self._linger_call.cancel()
            self._linger_call = None

    def request_ended(self) -> None:
        """The last of a request has come that was answered before."""
        if self._linger_call is not None:
            self._connection.forget(self, by_reset=False)

    def _end_lingering(self) -> None:
        # The rest of the request is not wanted (RFC 9113 8.1).
        self._linger_call = None
        self.reset(ErrorCodes.NO_ERROR)

    def _end(self) -> None:
        trailers = self.request.trailers
        connection = self._connection
        if trailers:
            connection.put_headers(self.id, block_of(trailers), True)
        else:
            connection.put(frames.end_stream(self.id))
        if self.complete:
            connection.forget(self, by_reset=False)
        else:
            # Some clients, curl 7.88 for one, lose an answer that a RST_STREAM comes right behind.
            self._linger_call = connection.site.clock.callLater(LINGER_SECONDS, self._end_lingering)
