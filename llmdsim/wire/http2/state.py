"""The state of one HTTP/2 connection: h2's, without what takes long where there are many streams."""

from __future__ import annotations

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, Event
from h2.settings import ChangedSetting, SettingCodes, Settings
from h2.stream import H2Stream
from hyperframe.frame import Frame, GoAwayFrame

from llmdsim.wire.limits import Limits

#: What a client may send before we take note: to each stream, and to the connection.
STREAM_WINDOW, CONNECTION_WINDOW = 1 << 20, 16 << 20

#: How many times too large the headers of a request may be to be told so; beyond that the connection ends.
HEADERS_TOLD = 4

_CONFIGURATION = H2Configuration(
    client_side=False,
    header_encoding=None,
    # What we send is ours.
    validate_outbound_headers=False,
    normalize_outbound_headers=False,
)


class ServerConnection(H2Connection):
    """h2's connection for a server.

    h2 looks through all streams whenever one begins, and ends everything at a client's GOAWAY, which only
    says that no more requests come. How many streams are open is for the protocol to watch, which refuses one
    without ending the others; it calls `forget` with each that is over.
    """

    def __init__(self, limits: Limits) -> None:
        super().__init__(_CONFIGURATION)
        self.local_settings = Settings(
            client=False,
            initial_values={
                SettingCodes.MAX_CONCURRENT_STREAMS: limits.streams,
                SettingCodes.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
                SettingCodes.MAX_HEADER_LIST_SIZE: limits.header_size,
            },
        )
        self._most_headers = limits.header_size * HEADERS_TOLD
        self.decoder.max_header_list_size = self._most_headers
        self._frame_dispatch_table[GoAwayFrame] = self._told_goaway
        self.initiate_connection()
        self.increment_flow_control_window(CONNECTION_WINDOW - self.inbound_flow_control_window)

    @property
    def open_inbound_streams(self) -> int:
        """None, so that h2 neither counts nor refuses."""
        return 0

    def forget(self, stream_id: int) -> None:
        """The stream is closed on both sides."""
        stream = self.streams.pop(stream_id, None)
        if stream is not None:
            self._closed_streams[stream_id] = stream.closed_by

    def state_of(self, stream_id: int) -> H2Stream:
        """h2's account of an open stream."""
        return self.streams[stream_id]

    def goaway(self, last_stream_id: int, error_code: int = 0, data: bytes = b"") -> bytes:
        """The frame; unlike h2's own way, the connection goes on."""
        frame = GoAwayFrame(0, last_stream_id=last_stream_id, error_code=error_code, additional_data=data)
        return bytes(frame.serialize())

    def _local_settings_acked(self) -> dict[SettingCodes | int, ChangedSetting]:
        changed = super()._local_settings_acked()
        # h2 would hold the client to what it was told.
        self.decoder.max_header_list_size = self._most_headers
        return changed

    def _told_goaway(self, frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
        event = ConnectionTerminated()
        event.last_stream_id = frame.last_stream_id
        return [], [event]
