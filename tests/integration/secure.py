"""A client over TLS, for the same requests as over plain sockets."""

from __future__ import annotations

import ssl

from cryptography import x509

from tests.integration.client import Client, Connection


class SecureClient(Client):
    """`context` says whom it trusts, and who it is."""

    def __init__(self, port: int, context: ssl.SSLContext) -> None:
        super().__init__(port)
        self._context = context

    def connect(self, narrow: bool = False) -> Connection:
        connection = super().connect(narrow)
        try:
            connection.socket = self._context.wrap_socket(connection.socket, server_hostname="localhost")
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def serial(self) -> int:
        """That of the certificate the server shows now."""
        with self.connect() as connection:
            return serial_of(connection)


def serial_of(connection: Connection) -> int:
    """That of the server's certificate."""
    assert isinstance(connection.socket, ssl.SSLSocket)
    der = connection.socket.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number
