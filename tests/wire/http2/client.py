"""An HTTP/2 client in memory: h2's own, over the connections of tests.wire.channel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from h2 import events
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes, Settings
from hyperframe.frame import Frame, GoAwayFrame

from tests.wire.channel import Client, Server, TCPTransport


@dataclass
class Answer:
    """What came on one stream."""

    headers: dict[bytes, bytes] = field(default_factory=dict)
    informed: list[bytes] = field(default_factory=list)
    body: bytes = b""
    trailers: dict[bytes, bytes] = field(default_factory=dict)
    ended: bool = False
    #: The code of a RST_STREAM.
    reset: int | None = None

    @property
    def status(self) -> int:
        return int(self.headers.get(b":status", b"0"))


class H2Client:
    """A client that has its windows opened as it reads, unless `acknowledges` is False."""

    def __init__(
        self,
        server: Server,
        client: Client | None = None,
        acknowledges: bool = True,
        window: int = 65535,
    ) -> None:
        self.client = client or server.connect(TCPTransport)
        self.transport = self.client.transport
        self.acknowledges = acknowledges
        self.h2 = H2Connection(H2Configuration(client_side=True, header_encoding=None))
        initial = {SettingCodes.INITIAL_WINDOW_SIZE: window}
        self.h2.local_settings = Settings(client=True, initial_values=initial)
        # h2 takes a GOAWAY for the end of everything.
        self.h2._frame_dispatch_table[GoAwayFrame] = self._told_goaway
        self.answers: dict[int, Answer] = {}
        self.goaways: list[tuple[int, int]] = []
        self.pongs = 0
        self._read = 0
        self.h2.initiate_connection()
        self.flush()

    def _told_goaway(self, frame: GoAwayFrame) -> tuple[list[Frame], list[events.Event]]:
        self.goaways.append((frame.last_stream_id, frame.error_code))
        return [], []

    def flush(self) -> H2Client:
        """Send what there is, and read what comes."""
        for _ in range(1000):
            data = self.h2.data_to_send()
            if data:
                self.client.send(data)
            self._receive()
            if not self.h2._data_to_send:
                return self
        raise AssertionError("never quiet")

    def _receive(self) -> None:
        data = self.client.received[self._read :]
        self._read += len(data)
        for event in self.h2.receive_data(data):
            self._meet(event)

    def _meet(self, event: events.Event) -> None:
        match event:
            case events.ResponseReceived():
                self.answers[event.stream_id].headers = dict(event.headers)
            case events.InformationalResponseReceived():
                self.answers[event.stream_id].informed.append(dict(event.headers)[b":status"])
            case events.DataReceived():
                self.answers[event.stream_id].body += event.data
                if self.acknowledges and event.flow_controlled_length:
                    self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            case events.TrailersReceived():
                self.answers[event.stream_id].trailers = dict(event.headers)
            case events.StreamEnded():
                self.answers[event.stream_id].ended = True
            case events.StreamReset():
                self.answers[event.stream_id].reset = event.error_code
            case events.PingAckReceived():
                self.pongs += 1

    def begin(
        self,
        path: bytes = b"/",
        method: bytes = b"GET",
        headers: Mapping[bytes, bytes] | Iterable[tuple[bytes, bytes]] = (),
        end: bool = True,
    ) -> int:
        """Send a request's head; returns its stream."""
        stream_id = self.h2.get_next_available_stream_id()
        extra = list(headers.items() if isinstance(headers, Mapping) else headers)
        pseudo = [(b":method", method), (b":scheme", b"http"), (b":authority", b"sim"), (b":path", path)]
        self.answers[stream_id] = Answer()
        self.h2.send_headers(stream_id, [*pseudo, *extra], end_stream=end)
        return stream_id

    def post(self, body: bytes, path: bytes = b"/", headers: Mapping[bytes, bytes] = {}) -> int:
        stream_id = self.begin(path, b"POST", headers, end=not body)
        if body:
            self.send(stream_id, body)
        self.flush()
        return stream_id

    def get(self, path: bytes = b"/") -> Answer:
        return self.answers[self.flush_begin(path)]

    def flush_begin(self, path: bytes = b"/") -> int:
        stream_id = self.begin(path)
        self.flush()
        return stream_id

    def send(self, stream_id: int, body: bytes, end: bool = True) -> None:
        """Send a body as far as windows go, waiting for them to open."""
        while body:
            room = min(self.h2.local_flow_control_window(stream_id), self.h2.max_outbound_frame_size)
            if not room:
                before = self._read
                self.flush()
                if self.answers[stream_id].ended or self.answers[stream_id].reset is not None:
                    return
                assert self._read > before, "no window"
                continue
            piece, body = body[:room], body[room:]
            self.h2.send_data(stream_id, piece, end_stream=end and not body)

    def raw(self, *frames: Frame) -> H2Client:
        """Send frames behind h2's back, in one packet."""
        self.client.send(b"".join(frame.serialize() for frame in frames))
        self._receive()
        return self

    def open_window(self, size: int, stream_id: int | None = None) -> None:
        self.h2.increment_flow_control_window(size, stream_id)
        self.flush()

    def set_window(self, size: int) -> None:
        self.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: size})
        self.flush()
