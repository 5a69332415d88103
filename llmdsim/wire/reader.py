"""Reads HTTP/1 requests from bytes: complete requests come out, or the refusal of what is none.

httptools parses; what it lets through that a server must not (two Hosts, other versions, endless heads, other
transfer encodings, offers of an upgrade) is guarded here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import httptools

from llmdsim.wire.known_heads import KnownHeads
from llmdsim.wire.limits import MAX_HEADERS, Limits
from llmdsim.wire.request import Channel, Request

#: Bytes around each byte of a chunked body that are taken for granted: the shortest chunk is six bytes long.
CHUNK_OVERHEAD = 16

#: Bytes of a head that are neither target nor header: method, version and line ends.
REQUEST_LINE_OVERHEAD = 64


class Refusal(NamedTuple):
    """An answer the protocol itself gives, after which the connection ends."""

    status: int
    message: str
    uri: bytes = b"-"
    method: bytes = b"-"
    headers: Mapping[bytes, bytes] = MappingProxyType({})


class RequestReader:
    """The reading half of a connection; `found` fills with what was read, in order.

    After a refusal nothing more is read. `in_message` says that a request has begun and is not complete;
    `incoming` is that request once its head is; requests are made of `request_type`. `known` is shared by
    readers of the same limits.
    """

    def __init__(
        self, channel: Channel, limits: Limits, known: KnownHeads, request_type: type[Request] = Request
    ) -> None:
        self.found: deque[Request | Refusal] = deque()
        self.in_message = False
        self.in_head = True
        self.incoming: Request | None = None
        self.refused = False
        self._channel = channel
        self._make = request_type
        self._known = known
        self._limits = limits
        self._most_head = limits.header_size
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._header_count = 0
        self._head_size = 0
        self._two_hosts = False
        #: A bytearray from its second piece on: pieces of a byte would each take fifty, kept apart.
        self._body: bytes | bytearray = b""
        self._body_size = 0
        #: Bytes fed since a packet that completed a message, whose share of the next cannot be told.
        self._raw_size = 0
        self._upgrade_offered = False
        self._replaying_head = False

    def whole(self, data: bytes) -> Request | None:
        """The request that `data` is from its first byte to its last, where that is quickly told.

        Else None, and `data` is still to be fed.
        """
        if self.in_message:
            return None
        head, end, body = data.partition(b"\r\n\r\n")
        known = self._known.get(head)
        if known is None or known.content_length != len(body) or not end:
            return None
        # msgspec's own, which its types do not tell: `copy` takes longer to find it than it takes.
        request: Request = known.__copy__()  # type: ignore[attr-defined]
        request.channel = self._channel
        request.body = body
        self._raw_size = 0
        return request

    def feed(self, data: bytes) -> None:
        """Read on."""
        first = not self.in_message and not self.refused
        before = len(self.found)
        self._parse(data)
        if first and len(self.found) == before + 1 and not self.in_message:
            only = self.found[-1]
            head, end, body = data.partition(b"\r\n\r\n")
            if end and isinstance(only, Request) and len(only.body) == len(body):
                self._known.learn(head, only)

    def _parse(self, data: bytes) -> None:
        while data and not self.refused:
            complete = len(self.found)
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                data = self._without_upgrade(data[offer.args[0] :])
                continue
            except httptools.HttpParserError as error:
                self._refuse_malformed(str(error))
                return
            if len(self.found) > complete:
                self._raw_size = 0
            else:
                self._raw_size += len(data)
                self._check_raw_size()
                if data.endswith(b"\n") and self._url and self._parser.get_http_version() == "0.0":
                    # The parser would wait for headers, of which HTTP/0.9 has none.
                    self._refuse_version()
            return

    def refuse(self, status: int, message: str) -> None:
        """Answer so after all requests found before, and read nothing more."""
        if self.refused:
            return
        self.refused = True
        incoming, self.incoming = self.incoming, None
        if incoming is not None:
            refusal = Refusal(status, message, incoming.uri, incoming.method, incoming.headers)
        elif self.in_message and self._url:
            refusal = Refusal(status, message, self._url, self._parser.get_method(), self._headers)
        else:
            refusal = Refusal(status, message)
        self._body = b""
        self.in_message = False
        self.found.append(refusal)

    def _refuse_malformed(self, reason: str) -> None:
        # HTTP/2's preface makes the parser speak of PRI.
        version = reason.startswith("Invalid") and "version" in reason
        if version or "PRI" in reason:
            self._refuse_version()
        else:
            self.refuse(400, f"Malformed HTTP request: {reason}")

    def _refuse_version(self) -> None:
        self.refuse(505, "This version of HTTP is not supported: use HTTP/1.1")

    def _check_raw_size(self) -> None:
        """Bound what the parser takes in without telling: unfinished lines, chunk extensions, trailers."""
        most = self._limits.header_size + REQUEST_LINE_OVERHEAD
        if self.in_head:
            if self._raw_size > most:
                self._refuse_head()
        elif self._raw_size > most + self._head_size + self._body_size * CHUNK_OVERHEAD:
            self.refuse(431, "The request's chunks carry too much besides its body")

    def _refuse_head(self) -> None:
        limit = self._limits.header_size
        if len(self._url) > limit // 2 and not self._header_count:
            self.refuse(414, f"The request line is longer than {limit} bytes")
        else:
            self.refuse(431, f"The request has more than {limit} bytes or {MAX_HEADERS} lines of headers")

    def _without_upgrade(self, rest: bytes) -> bytes:
        """What to read in order to take a request that offers another protocol as if it had not.

        The parser stops after the head of such a request and takes its body for the other protocol; a new one
        is told only how the body is framed.
        """
        request = self.incoming
        self._upgrade_offered = False
        self._parser = httptools.HttpRequestParser(self)
        if request is None:
            return b""
        head = b"POST / HTTP/1.1\r\n"
        for name in (b"content-length", b"transfer-encoding"):
            if name in request.headers:
                head += b"%b: %b\r\n" % (name, request.headers[name])
        self._replaying_head = True
        return head + b"\r\n" + rest

    # --- what the parser finds

    def on_message_begin(self) -> None:
        if self._replaying_head:
            return
        self.in_message = self.in_head = True
        self._url = b""
        self._headers = {}
        self._header_count = self._head_size = 0
        self._two_hosts = False

    def on_url(self, url: bytes) -> None:
        if self._replaying_head or self.refused:
            return
        self._url += url
        self._head_size += len(url)
        if self._head_size > self._limits.header_size:
            self._refuse_head()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._replaying_head or self.refused:
            return
        self._header_count += 1
        self._head_size = size = self._head_size + len(name) + len(value) + 4
        if size > self._most_head or self._header_count > MAX_HEADERS:
            self._refuse_head()
            return
        if not self.in_head:
            return  # a trailer
        name = name.lower()
        headers = self._headers
        if name in headers:
            if name == b"host":
                self._two_hosts = True
            value = headers[name] + b", " + value
        headers[name] = value

    def on_headers_complete(self) -> None:
        if self._replaying_head:
            self._replaying_head = False
            return
        self.in_head = False
        if self.refused:
            return
        parser = self._parser
        request = self._make(self._channel, parser.get_method(), self._target(), self._headers)
        if not parser.should_keep_alive():
            request.keep_alive = False
        self.incoming = request
        self._body = b""
        self._body_size = 0
        version = parser.get_http_version()
        if version != "1.1":
            request.clientproto = b"HTTP/" + version.encode()
        self._guard(request, version)
        self._upgrade_offered = parser.should_upgrade()

    def _target(self) -> bytes:
        """The path and query of the target, which proxies' clients send as a whole URL."""
        url = self._url
        if url.startswith(b"/") or b"://" not in url:
            return url
        authority_on = url.partition(b"://")[2]
        for place, byte in enumerate(authority_on):
            if byte == 0x2F:
                return authority_on[place:]
            if byte == 0x3F:
                return b"/" + authority_on[place:]
        return b"/"

    def _guard(self, request: Request, version: str) -> None:
        """Refuse what the parser accepts and we must not."""
        headers = request.headers
        if version not in ("1.1", "1.0"):
            self.refuse(505, f"HTTP version {version} is not supported")
        elif self._two_hosts or (version == "1.1" and b"host" not in headers):
            self.refuse(400, "A request needs exactly one Host header")
        elif request.method == b"CONNECT":
            self.refuse(501, "CONNECT is not supported")
        elif b"transfer-encoding" in headers:
            if headers[b"transfer-encoding"].strip().lower() != b"chunked":
                self.refuse(501, "The only transfer encoding supported is chunked")
            elif version == "1.0" or b"content-length" in headers:
                self.refuse(400, "The request's length is ambiguous")
        elif b"content-length" in headers:
            length = headers[b"content-length"].strip()
            if not length.isdigit():
                self.refuse(400, "The Content-Length header is not a number")
            elif int(length) > self._limits.body_size:
                self._refuse_body()
        expectation = headers.get(b"expect")
        if expectation is not None:
            if expectation.lower() != b"100-continue":
                self.refuse(417, "The only expectation supported is 100-continue")
            request.expects_continue = version == "1.1"

    def _refuse_body(self) -> None:
        self.refuse(413, f"The request's body is larger than {self._limits.body_size} bytes")

    def on_body(self, data: bytes) -> None:
        if self.refused:
            return
        if not self._body_size:
            self._body = data
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)
            self._body += data
        self._body_size += len(data)
        if self._body_size > self._limits.body_size:
            self._refuse_body()

    def on_message_complete(self) -> None:
        request = self.incoming
        if request is None or self._upgrade_offered:
            return
        request.body = bytes(self._body)
        if b"content-length" in request.headers:
            request.content_length = len(request.body)
        request.expects_continue = False
        self._body = b""
        self.incoming = None
        self.in_message = False
        self.in_head = True
        self.found.append(request)
