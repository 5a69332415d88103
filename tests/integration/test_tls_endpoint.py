"""An `ssl:` endpoint: nothing leaves in the clear, whichever way a response is written."""

import datetime
import json
import os
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from llmdsim.wire.site import PROTOCOLS
from tests.integration.client import eventually
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


def connected(port: int) -> ssl.SSLSocket:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=10))


@pytest.mark.parametrize("offered", [["h2", "http/1.1"], ["http/1.1"]])
def test_a_client_that_offers_protocols_is_served(port: int, offered: list[str]) -> None:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(offered)
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port), timeout=10)) as client:
        ours = [protocol.decode() for protocol in PROTOCOLS]
        assert client.selected_alpn_protocol() == next(each for each in ours if each in offered)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GARBAGE\r\n\r\n", b"400"),
        (b"GET /version HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" * 1000, b"200"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n" + b"x" * 3_000_000, b"413"),
    ],
    ids=["refused", "sends on", "too large"],
)
@pytest.mark.parametrize("closes", [True, False])
def test_a_client_that_sends_on_is_answered_and_let_go(
    port: int, sent: bytes, status: bytes, closes: bool
) -> None:
    """Whether it closes in TLS's terms or not; `Daemon` looks for complaints in the log."""
    with connected(port) as client:
        client.sendall(sent)
        reply = b""
        while data := client.recv(65536):
            reply += data
        assert reply.startswith(b"HTTP/1.1 " + status)
        assert reply.count(b"HTTP/1.1") == 1
        if closes:
            client.unwrap()


def test_idle_clients_that_do_not_close_hold_nothing_up(tmp_path: Path) -> None:
    write_certificate(tmp_path)
    number = free_port()
    where = f"ssl:{number}:privateKey={tmp_path}/key.pem:certKey={tmp_path}/cert.pem:interface=127.0.0.1"
    flags = ("--listen", where, "--keep-alive-timeout", "300ms")
    with Daemon(*flags, port=number) as daemon, connected(number) as idle:
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n")
        assert idle.recv(65536).startswith(b"HTTP/1.1 200")
        # One of them is timed out and shown out, the other there when the end comes.
        descriptors = f"/proc/{daemon.process.pid}/fd"
        if os.path.isdir(descriptors):
            open_now = len(os.listdir(descriptors))
            eventually(lambda: len(os.listdir(descriptors)) < open_now)
        with connected(number):
            began = time.monotonic()
            daemon.signal(signal.SIGTERM)
            assert daemon.wait() == 0
            assert time.monotonic() - began < 2


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
