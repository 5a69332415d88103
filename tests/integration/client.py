"""A client that hides nothing: HTTP/1.1 over plain sockets, with the time each piece of a stream arrived."""

import json
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

#: Seconds to wait for any bytes; no reply in these tests takes a third of it.
PATIENCE = 15.0

Json = Any


def ordered(text: str | bytes) -> Json:
    """JSON in which an object is a list of its (key, value) pairs in the order they came."""
    return json.loads(text, object_pairs_hook=list)


def keys(text: str | bytes) -> list[str]:
    """The keys of a JSON object, in order."""
    return [key for key, _ in ordered(text)]


class Reply(NamedTuple):
    """A whole response. Header names are lower-case; `raw_head` is as it came."""

    status: int
    headers: dict[str, str]
    body: bytes
    raw_head: bytes = b""

    @property
    def json(self) -> Json:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """The error object, whose shape is the same everywhere."""
        document = self.json
        assert list(document) == ["error"], document
        assert list(document["error"]) == ["message", "type", "param", "code"], document
        assert document["error"]["code"] == self.status
        assert self.headers["content-type"] == "application/json"
        error: dict[str, Any] = document["error"]
        return error

    @property
    def text(self) -> str:
        """What the first choice says."""
        choice = self.json["choices"][0]
        text: str = choice["text"] if "text" in choice else choice["message"]["content"]
        return text


class Event(NamedTuple):
    """One server-sent event: its data, and when its last byte arrived (monotonic seconds)."""

    data: str
    at: float

    @property
    def json(self) -> Json:
        return json.loads(self.data)


class Connection:
    """One connection, over which anything may be sent; a `narrow` one takes little before it is read from."""

    def __init__(self, address: tuple[str, int] | str, narrow: bool = False) -> None:
        if narrow or isinstance(address, str):
            self.socket = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
            if narrow:
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            self.socket.settimeout(PATIENCE)
            self.socket.connect(address)
        else:
            self.socket = socket.create_connection(address, timeout=PATIENCE)
        self._buffer = b""

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave."""
        self.socket.close()

    def reset(self) -> None:
        """Leave with RST in place of FIN."""
        reset(self.socket)

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        version: str = "1.1",
    ) -> None:
        """Send one request; `Host`, and `Content-Length` with a body, are added."""
        self.send(request_bytes(method, path, body, headers, version))

    def post(self, path: str, document: object, **headers: str) -> None:
        """Send a JSON body."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        body = json.dumps(document).encode()
        self.request("POST", path, body, {"Content-Type": "application/json", **named})

    def _more(self) -> bool:
        data = self.socket.recv(65536)
        self._buffer += data
        return bool(data)

    def read_until(self, mark: bytes) -> bytes:
        """Everything up to and with `mark`."""
        while mark not in self._buffer:
            if not self._more():
                raise EOFError(f"closed before {mark!r}: {self._buffer[-500:]!r}")
        found, _, self._buffer = self._buffer.partition(mark)
        return found + mark

    def read_exactly(self, size: int) -> bytes:
        """The next `size` bytes."""
        while len(self._buffer) < size:
            if not self._more():
                raise EOFError(f"closed after {len(self._buffer)} of {size} bytes")
        found, self._buffer = self._buffer[:size], self._buffer[size:]
        return found

    def read_to_end(self) -> bytes:
        """Everything until the other side closes."""
        while self._more():
            pass
        found, self._buffer = self._buffer, b""
        return found

    def closed_by_server(self) -> bool:
        """Whether the server closes, having sent nothing more."""
        return not self._buffer and not self._more()

    def read_head(self) -> tuple[int, dict[str, str], bytes]:
        """Status and headers of the next response."""
        raw = self.read_until(b"\r\n\r\n")
        first, *lines = raw[:-4].decode("latin-1").split("\r\n")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            assert name.lower() not in headers, f"twice: {line}"
            headers[name.lower()] = value.strip()
        return int(first.split(" ", 2)[1]), headers, raw

    def chunks(self) -> Iterator[tuple[bytes, float]]:
        """The chunks of a chunked body, each with the time it was complete."""
        while True:
            size = int(self.read_until(b"\r\n"), 16)
            data = self.read_exactly(size + 2)[:-2]
            if not size:
                return
            yield data, time.monotonic()

    def read_reply(self, head_only: bool = False) -> Reply:
        """The next whole response."""
        status, headers, raw = self.read_head()
        if head_only or status in (204, 304) or status < 200:
            return Reply(status, headers, b"", raw)
        if headers.get("transfer-encoding") == "chunked":
            return Reply(status, headers, b"".join(data for data, _ in self.chunks()), raw)
        if "content-length" in headers:
            return Reply(status, headers, self.read_exactly(int(headers["content-length"])), raw)
        return Reply(status, headers, self.read_to_end(), raw)

    def events(self) -> Iterator[Event]:
        """The events of a chunked stream whose head has been read, `[DONE]` included."""
        rest = ""
        for data, at in self.chunks():
            rest += data.decode()
            *frames, rest = rest.split("\n\n")
            for frame in frames:
                assert frame.startswith("data: "), frame
                assert "\n" not in frame, frame
                yield Event(frame.removeprefix("data: "), at)
        assert rest == ""


def reset(connected: socket.socket) -> None:
    """Close with RST in place of FIN."""
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connected.close()


def request_bytes(
    method: str,
    path: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    version: str = "1.1",
) -> bytes:
    """One request as it goes over the wire."""
    lines = [f"{method} {path} HTTP/{version}", "Host: test"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


class Client:
    """Requests to one server, each over a connection of its own."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.host = host
        self.port = port

    def connect(self, narrow: bool = False) -> Connection:
        """A new connection."""
        return Connection((self.host, self.port), narrow)

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """One request and its whole response."""
        with self.connect() as connection:
            connection.request(method, path, body, headers)
            return connection.read_reply(head_only=method == "HEAD")

    def get(self, path: str, **headers: str) -> Reply:
        """GET."""
        return self.ask("GET", path, None, {name.replace("_", "-"): value for name, value in headers.items()})

    def post(self, path: str, document: object, **headers: str) -> Reply:
        """POST a JSON document."""
        with self.connect() as connection:
            connection.post(path, document, **headers)
            return connection.read_reply()

    def chat(self, content: object = "Hello there, how are you?", **fields: Any) -> Reply:
        """A chat of one user message."""
        return self.post("/v1/chat/completions", chat_of(content, **fields))

    def text(self, prompt: object = "Hello there, how are you?", **fields: Any) -> Reply:
        """A text completion."""
        return self.post("/v1/completions", {"model": "m", "prompt": prompt, **fields})

    def stream(self, path: str, document: Mapping[str, object]) -> list[Event]:
        """All events of a streamed reply, which must be a good one."""
        with self.connect() as connection:
            connection.post(path, {**document, "stream": True})
            status, headers, raw = connection.read_head()
            assert status == 200, (raw, connection.read_exactly(int(headers.get("content-length", 0))))
            assert headers["content-type"] == "text/event-stream; charset=utf-8"
            return list(connection.events())

    def chat_stream(self, content: object = "Hello there, how are you?", **fields: Any) -> list[Event]:
        """A streamed chat of one user message."""
        return self.stream("/v1/chat/completions", chat_of(content, **fields))

    def text_stream(self, prompt: object = "Hello there, how are you?", **fields: Any) -> list[Event]:
        """A streamed text completion."""
        return self.stream("/v1/completions", {"model": "m", "prompt": prompt, **fields})

    def metrics(self) -> "Metrics":
        """What `/metrics` says now."""
        reply = self.get("/metrics")
        assert reply.status == 200
        return Metrics(reply.body.decode())


def chat_of(content: object, **fields: Any) -> dict[str, Any]:
    """The body of a chat of one user message."""
    return {"model": "m", "messages": [{"role": "user", "content": content}], **fields}


class Metrics:
    """An exposition, read by prometheus_client's own parser."""

    def __init__(self, text: str) -> None:
        from prometheus_client.parser import text_string_to_metric_families

        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self.samples = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in self.families.values()
            for sample in family.samples
        }

    def value(self, name: str, **labels: str) -> float:
        """The one sample of that name whose labels include these."""
        wanted = set(labels.items())
        (value,) = [v for (n, have), v in self.samples.items() if n == name and wanted <= have]
        return value

    def finished(self) -> dict[str, float]:
        """Ended requests by reason, zeros left out."""
        family = self.families["vllm:request_success"]
        return {
            sample.labels["finished_reason"]: sample.value
            for sample in family.samples
            if sample.name == "vllm:request_success_total" and sample.value
        }


def eventually(condition: Any, patience: float = 5.0) -> None:
    """Wait for `condition()`, asked again and again, to hold."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {patience} s"
        time.sleep(0.01)
