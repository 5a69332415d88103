"""What h2 keeps of a connection: settings, tables of headers, and the rules for all that is not everyday."""

from __future__ import annotations

from typing import NamedTuple

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, Event
from h2.settings import ChangedSetting, SettingCodes, Settings
from h2.stream import H2Stream, StreamClosedBy, StreamInputs
from hyperframe.frame import Frame, GoAwayFrame

from llmdsim.wire.limits import Limits

#: What a client may send before we take note: to each stream, and to the connection.
STREAM_WINDOW, CONNECTION_WINDOW = 1 << 20, 16 << 20

#: How many times too large the headers of a request may be to be told so; beyond that the connection ends.
HEADERS_TOLD = 4

_CONFIGURATION = H2Configuration(client_side=False, header_encoding=None)


class Table(NamedTuple):
    """What changes when something is put into a table of headers, or taken out."""

    size: int
    entries: int
    latest: object

    def means_the_same_as(self, other: Table) -> bool:
        """Whether the same block means the same by both, which are of the same connection."""
        # Entries may be equal, and yet be two.
        return self.latest is other.latest and self[:2] == other[:2]


class ServerConnection(H2Connection):
    """h2's connection for a server, which has requests begin and then knows nothing of their streams.

    What h2 does for every frame of a stream takes several times as long as the rest of a request, so open
    streams are the protocol's own affair (`reader`, `stream`). It tells which have ended, for h2 to judge
    what comes on them later, and lends those whose trailers come. How many are open is for the protocol to
    watch as well: h2 looks through all of them whenever one begins, and ends the connection where one is too
    many. A client's GOAWAY, for h2 the end of everything, only says that no more requests come.
    """

    #: Streams whose ends are remembered. What was on its way to one when it ended has come long before so
    #: many others end, and h2's own number takes megabytes of every connection.
    MAX_CLOSED_STREAMS = 4096

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

    # --- streams

    def ended(self, stream_id: int, by_reset: bool) -> None:
        """A stream is over."""
        self._closed_streams[stream_id] = (
            StreamClosedBy.SEND_RST_STREAM if by_reset else StreamClosedBy.SEND_END_STREAM
        )

    def lend(self, stream_id: int, complete: bool) -> None:
        """Have h2 judge, and read, further headers on an open stream; until `take_back`."""
        stream = H2Stream(stream_id, self.config, 0, 0)
        stream.state_machine.process_input(StreamInputs.RECV_HEADERS)
        if complete:
            stream.state_machine.process_input(StreamInputs.RECV_END_STREAM)
        self.streams[stream_id] = stream

    def take_back(self) -> None:
        """No stream is h2's any more."""
        self.streams.clear()

    # --- windows

    def took(self, size: int) -> bool:
        """So many bytes of data have come; returns whether the client's window had room for them."""
        manager = self._inbound_flow_control_window_manager
        left: int = manager.current_window_size - size
        if left < 0:
            return False
        manager.current_window_size = left
        return True

    def give_back(self, size: int) -> int:
        """So many bytes have been dealt with; returns by how much the client's window is to be opened now."""
        manager = self._inbound_flow_control_window_manager
        manager._bytes_processed += size
        # As h2 looks at it: more is told of when half of the window is used up, or all.
        if manager._bytes_processed * 2 < manager.max_window_size and manager.current_window_size:
            return 0
        return manager.process_bytes(0) or 0

    # --- tables

    @property
    def table(self) -> Table:
        """The one that header blocks of the client's refer to, as it is now."""
        table = self.decoder.header_table
        entries = table.dynamic_entries
        return Table(table.maxsize, len(entries), entries[0] if entries else None)

    def _local_settings_acked(self) -> dict[SettingCodes | int, ChangedSetting]:
        changed = super()._local_settings_acked()
        # h2 would hold the client to what it was told.
        self.decoder.max_header_list_size = self._most_headers
        return changed

    def _told_goaway(self, frame: GoAwayFrame) -> tuple[list[Frame], list[Event]]:
        event = ConnectionTerminated()
        event.last_stream_id = frame.last_stream_id
        return [], [event]
