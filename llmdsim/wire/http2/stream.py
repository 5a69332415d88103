"""One HTTP/2 stream: the channel of its request, within its window and the connection's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from h2.errors import ErrorCodes
from h2.stream import H2Stream

from llmdsim.wire.http2.frames import data_head
from llmdsim.wire.http2.heads import listed, response_headers
from llmdsim.wire.limits import LINGER_SECONDS
from llmdsim.wire.request import Request

if TYPE_CHECKING:
    from llmdsim.wire.http2.connection import HTTP2


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
        "_over",
        "_state",
        "body",
        "complete",
        "heard",
        "id",
        "is_call",
        "request",
        "unacknowledged",
    )

    def __init__(self, connection: HTTP2, stream_id: int, state: H2Stream) -> None:
        self.id = stream_id
        self._connection = connection
        self._h2 = connection.h2
        self._state = state
        self._data_head = data_head(stream_id)
        self._head_sent = False
        #: The response is written, and is to end when what is kept has been sent.
        self._over = False
        self._kept = bytearray()
        #: The response has been sent before all of the request came: the rest is read for a while yet.
        self._linger_call: Any = None
        self.request: Request
        #: Whether it is the site's `calls` that answer the request.
        self.is_call = False
        #: What has come of the request's body, all of it when `complete`, and when something last came.
        self.body = bytearray()
        self.complete = False
        self.heard = 0.0
        #: Bytes of a body taken in pieces whose window has not been given back.
        self.unacknowledged = 0

    # --- as a channel

    @property
    def transport(self) -> Stream:
        """What ends it at once."""
        return self

    @property
    def write_paused(self) -> bool:
        """Nothing should be sent for now."""
        return bool(self._kept) or self._connection.write_paused

    @property
    def peer(self) -> str:
        """The client's address and port, or `unix`."""
        return self._connection.peer

    def refuse(self, request: Request, status: int, message: str) -> None:
        """Answer `request` with an error."""
        site = self._connection.site
        if self.is_call:
            assert site.calls is not None
            site.calls.refuse(request, status, message)
        else:
            request.respond(status, site.error_body(status, request.path, message))

    def write(self, data: bytes) -> None:
        """Send `data` in this turn, as far as windows allow."""
        if self._over:
            return
        connection = self._connection
        if not self._head_sent:
            self._head_sent = True
            head, _, data = data.partition(b"\r\n\r\n")
            connection.send_headers(self.id, response_headers(head))
            if not data:
                return
        size = len(data)
        state, h2 = self._state, self._h2
        if (
            self._kept
            or size > state.outbound_flow_control_window
            or size > h2.outbound_flow_control_window
            or size > h2.max_outbound_frame_size
        ):
            self._kept += data
            connection.kept += size
            connection.wait_for_window(self)
            return
        # h2 keeps these by itself only for data it frames itself, which takes several times as long.
        state.outbound_flow_control_window -= size
        h2.outbound_flow_control_window -= size
        connection.put(size.to_bytes(3, "big") + self._data_head + data)

    write_soon = write

    def request_done(self, request: Request) -> None:
        """The response is written."""
        connection = self._connection
        connection.request_over(request)
        if connection.streams.get(self.id) is not self:
            return
        self._over = True
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
        state, h2 = self._state, self._h2
        size = min(
            len(self._kept),
            state.outbound_flow_control_window,
            h2.outbound_flow_control_window,
            h2.max_outbound_frame_size,
        )
        if size <= 0:
            return False
        state.outbound_flow_control_window -= size
        h2.outbound_flow_control_window -= size
        connection = self._connection
        connection.kept -= size
        connection.put(size.to_bytes(3, "big") + self._data_head + self._kept[:size])
        del self._kept[:size]
        if self._kept:
            return True
        if self._over:
            self._end()
        elif not connection.write_paused:
            self.request.drained()
        return False

    def reset(self, code: ErrorCodes) -> None:
        """End it at once."""
        self.drop()
        self._connection.send_reset(self.id, code)

    def drop(self) -> None:
        """It is over: nothing of what is kept will be sent."""
        self._over = True
        self._connection.kept -= len(self._kept)
        self._kept.clear()
        if self._linger_call is not None:
            self._linger_call.cancel()
            self._linger_call = None

    def request_ended(self) -> None:
        """The last of a request has come that was answered before."""
        if self._linger_call is not None:
            self._connection.stream_over(self)

    def _end_lingering(self) -> None:
        # The rest of the request is not wanted (RFC 9113 8.1).
        self._linger_call = None
        self._connection.send_reset(self.id, ErrorCodes.NO_ERROR)
        self._connection.stream_over(self)

    def _end(self) -> None:
        trailers = self.request.trailers
        connection = self._connection
        if trailers:
            connection.send_headers(self.id, listed(trailers), end=True)
        else:
            connection.send_end(self.id)
        if self.complete:
            connection.stream_over(self)
        else:
            # Some clients, curl 7.88 for one, lose an answer that a RST_STREAM comes right behind.
            self._linger_call = connection.site.clock.callLater(LINGER_SECONDS, self._end_lingering)
