"""An `ssl:` endpoint: nothing leaves in the clear, whichever way a response is written."""

import datetime
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.integration.daemon import Daemon, free_port

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("tls")
    write_certificate(folder)
    number = free_port()
    where = f"ssl:{number}:privateKey={folder}/key.pem:certKey={folder}/cert.pem:interface=127.0.0.1"
    with Daemon("--listen", where, "--time-to-first-token", "20ms", port=number) as daemon:
        daemon.wait_until_ready()
        yield number


def write_certificate(folder: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def exchange(port: int, request: bytes, end: bytes) -> tuple[bytes, bytes]:
    """What came over the wire, and what it says decrypted, until that ends with `end`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    arrived, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(arrived, leaving)
    wire = plain = b""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:

        def pump() -> None:
            nonlocal wire
            if leaving.pending:
                connection.sendall(leaving.read())
            data = connection.recv(65536)
            assert data, "closed"
            wire += data
            arrived.write(data)

        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                pump()
        tls.write(request)
        while not plain.endswith(end):
            try:
                plain += tls.read(65536)
            except ssl.SSLWantReadError:
                pump()
    return wire, plain


def post(body: dict[str, object]) -> bytes:
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: sim\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


CHAT: dict[str, object] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3}


@pytest.mark.parametrize(
    ("request_", "end"),
    [
        (b"GET /version HTTP/1.1\r\nHost: sim\r\n\r\n", b'"}'),
        (b"GET /health HTTP/1.1\r\nHost: sim\r\n\r\n" * 3, b"content-length: 0\r\n\r\n"),
        (b"GARBAGE\r\n\r\n", b"}}"),
        (post(CHAT), b'"metrics":null}'),
        (post({**CHAT, "stream": True}), b"0\r\n\r\n"),
    ],
    ids=["whole", "pipelined", "refusal", "chat", "stream"],
)
def test_nothing_is_in_the_clear(port: int, request_: bytes, end: bytes) -> None:
    wire, plain = exchange(port, request_, end)
    assert plain.startswith(b"HTTP/1.1 ")
    assert b"HTTP/1.1" not in wire
    assert b"llmdsim" not in wire
