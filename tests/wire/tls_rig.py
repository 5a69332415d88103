"""TLS in memory: a client of Python's `ssl`, which has no code in common with the server."""

from __future__ import annotations

import ssl
from typing import Any

from cryptography import x509

from llmdsim.wire.tls import Encryption
from tests.wire.channel import Server, TCPTransport


def trusting(pem: bytes | None = None) -> ssl.SSLContext:
    """A client that trusts this, or anybody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if pem is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_verify_locations(cadata=pem.decode())
    return context


class TLSClient:
    """One client of `server` by way of `encryption`."""

    def __init__(
        self,
        server: Server,
        encryption: Encryption,
        context: ssl.SSLContext | None = None,
        name: str = "localhost",
        session: ssl.SSLSession | None = None,
    ) -> None:
        self.server = server
        self.protocol: Any = encryption.of(server.site).buildProtocol(None)
        self.transport = TCPTransport(server.clock, self.protocol)
        self.protocol.makeConnection(self.transport)
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = (context or trusting()).wrap_bio(
            self._arrived, self._leaving, server_hostname=name, session=session
        )

    def exchange(self) -> None:
        """Everything that either has written reaches the other, without a turn of the server."""
        if self._leaving.pending:
            self.transport.arrive(self._leaving.read())
        self._arrived.write(self.transport.value())
        self.transport.clear()

    def shake_hands(self) -> TLSClient:
        """Raises `ssl.SSLError` where one of the two refuses."""
        for _ in range(10):
            try:
                self.tls.do_handshake()
            except ssl.SSLWantReadError:
                self.exchange()
            else:
                self.exchange()
                return self
        raise AssertionError(f"no handshake; the connection is {self.fate}")

    def send(self, data: bytes) -> TLSClient:
        self.tls.write(data)
        self.exchange()
        return self

    def read(self) -> bytes:
        """What there is; raises `ssl.SSLError` for an alert. What ends in TLS's terms is marked."""
        self.exchange()
        data = b""
        while True:
            try:
                part = self.tls.read(1 << 16)
            except ssl.SSLWantReadError:
                return data
            except ssl.SSLZeroReturnError:
                part = b""
            if not part:
                return data + b"<closed>"
            data += part

    @property
    def fate(self) -> str:
        return self.transport.end or "open"

    @property
    def serial(self) -> int:
        """That of the server's certificate."""
        der = self.tls.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der).serial_number
