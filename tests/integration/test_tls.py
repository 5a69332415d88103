"""TLS of the real daemon: real clients, certificates that change under streams, and what is no TLS."""

from __future__ import annotations

import shutil
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import openai
import pytest
from cryptography import x509

from llmdsim.rpc.pb.vllm_engine_pb2 import HealthCheckRequest, HealthCheckResponse
from tests.certificates import CA, serial, write_pair
from tests.integration.client import PATIENCE, Connection, eventually
from tests.integration.daemon import Daemon, run
from tests.integration.secure import SecureClient, serial_of
from tests.integration.test_connections import rss

pytestmark = pytest.mark.integration

TEXT = "/v1/completions"
RUNNING = "vllm:num_requests_running"
GAP = 0.05


class Server(Daemon):
    """Two ranks, each in its own process, that ask for certificates of clients but need none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ca = CA()
        self.certificate, self.key = write_pair(folder, self.ca.issue())
        (folder / "ca.crt").write_bytes(self.ca.pem)
        super().__init__(
            *("--ssl-certfile", self.certificate, "--ssl-keyfile", self.key),
            *("--ssl-ca-certs", str(folder / "ca.crt"), "--ssl-cert-reqs", "1"),
            *("--listen", f"unix:{folder}/0.sock", "--listen", f"unix:{folder}/1.sock"),
            *("--inter-token-latency", f"{GAP}s", "--data-parallel-mode", "process"),
            ranks=2,
        )
        self.secure = [SecureClient(self.port + rank, self.trusting()) for rank in range(2)]

    def trusting(self) -> ssl.SSLContext:
        return ssl.create_default_context(cadata=self.ca.pem.decode())

    def curl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        if shutil.which("curl") is None:
            pytest.skip("no curl here")
        return subprocess.run(
            ["curl", "-sS", "--noproxy", "*", "--cacert", f"{self.folder}/ca.crt", *arguments],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def has_new_certificates(self, number: int) -> None:
        """Wait until both ranks show the certificate of that serial."""
        eventually(lambda: [client.serial for client in self.secure] == [number] * 2)

    def complaints(self) -> int:
        return self.stderr.count("TLS goes on with what it has")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("tls")) as server:
        yield server


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A server with a certificate of its own that takes only clients which its CA knows; `.known` is one."""
    folder = tmp_path_factory.mktemp("strict")
    ca = CA()
    (folder / "ca.crt").write_bytes(ca.pem)
    with Daemon(
        *("--self-signed-certs", "--ssl-ca-certs", str(folder / "ca.crt"), "--ssl-cert-reqs", "2"),
        *("--mode", "echo", "--max-model-len", "2000k", "--data-parallel-mode", "process"),
        environ={"POD_IP": "10.1.2.3"},
        ranks=2,
    ) as daemon:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(*write_pair(folder, ca.issue("client"), "client"))
        daemon.known = [SecureClient(daemon.port + rank, context) for rank in range(2)]  # type: ignore[attr-defined]
        yield daemon


# --- clients


@pytest.mark.parametrize(
    ("version", "spoken"), [("--http2", "2"), ("--http1.1", "1.1"), ("--no-alpn", "1.1")]
)
def test_curl(server: Server, version: str, spoken: str) -> None:
    for port in (server.port, server.port + 1):
        done = server.curl(version, "-w", " over %{http_version}", f"https://localhost:{port}/version")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f'{{"version":"0.33.0"}} over {spoken}'


def test_curl_with_tls_1_1_is_refused(server: Server) -> None:
    done = server.curl("--tls-max", "1.1", f"https://localhost:{server.port}/version")
    assert (done.returncode, done.stdout) == (35, "")


@pytest.mark.parametrize("http2", [False, True])
def test_openais_client(server: Server, http2: bool) -> None:
    with (
        openai.DefaultHttpxClient(verify=server.trusting(), trust_env=False, http2=http2) as http,
        openai.OpenAI(
            base_url=f"https://localhost:{server.port}/v1", api_key="none", http_client=http, max_retries=0
        ) as client,
    ):
        chat = client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "a"}], max_tokens=3
        )
        assert chat.choices[0].message.content
        stream = client.completions.create(
            model="m", prompt="a", max_tokens=3, stream=True, extra_body={"ignore_eos": True}
        )
        assert len(list(stream)) == 3


def test_grpc(server: Server) -> None:
    for port in (server.port, server.port + 1):
        trusting = grpc.ssl_channel_credentials(server.ca.pem)
        with grpc.secure_channel(f"localhost:{port}", trusting) as channel:
            check: Any = channel.unary_unary(
                "/vllm.grpc.engine.VllmEngine/HealthCheck",
                HealthCheckRequest.SerializeToString,
                HealthCheckResponse.FromString,
            )
            assert check(HealthCheckRequest(), timeout=PATIENCE).healthy


def test_the_start_tells_the_scheme(server: Server) -> None:
    lines = [line for line in server.stderr.splitlines() if line.startswith("llmdsim serves")]
    assert [" at https://localhost:" in line for line in lines] == [False, True, False, True]
    assert f"curl --insecure https://localhost:{server.port}/" in lines[1]


def test_unix_sockets_stay_plain(server: Server) -> None:
    with Connection(f"{server.folder}/1.sock") as connection:
        connection.request("GET", "/health")
        assert connection.read_reply().status == 200


def test_clients_may_show_a_certificate_but_a_good_one(server: Server, tmp_path: Path) -> None:
    for ca, served in ((server.ca, True), (CA("stranger"), False)):
        context = server.trusting()
        context.load_cert_chain(*write_pair(tmp_path, ca.issue("client")))
        client = SecureClient(server.port, context)
        if served:
            assert client.get("/health").status == 200
        else:
            with pytest.raises(ssl.SSLError):
                client.get("/health")


def test_clients_that_must_show_a_certificate(strict: Any) -> None:
    assert [client.get("/health").status for client in strict.known] == [200, 200]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for client in (SecureClient(strict.port + rank, context) for rank in range(2)):
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            client.get("/health")


def test_all_ranks_show_the_same_certificate_of_their_own(strict: Any) -> None:
    first, second = (client.serial for client in strict.known)
    assert first == second
    with strict.known[1].connect() as connection:
        certificate = x509.load_der_x509_certificate(connection.socket.getpeercert(binary_form=True))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "10.1.2.3" in map(str, names.get_values_for_type(x509.IPAddress))
    assert "localhost" in names.get_values_for_type(x509.DNSName)


# --- streams


def test_tokens_arrive_one_by_one(server: Server) -> None:
    events = server.secure[1].text_stream("a", max_tokens=10, ignore_eos=True)
    arrived = {event.at for event in events[:10]}
    assert len(arrived) > 5
    assert max(arrived) - min(arrived) > 7 * GAP


@pytest.mark.parametrize("how", ["FIN", "RST", "close_notify"])
def test_leaving_frees_the_slot(server: Server, how: str) -> None:
    client = server.secure[0]
    connection = client.connect()
    connection.post(TEXT, {"prompt": "a", "max_tokens": 900, "ignore_eos": True, "stream": True})
    connection.read_head()
    assert client.metrics().value(RUNNING) == 1
    if how == "close_notify":
        # It may find tokens where it waits for the server's.
        with suppress(ssl.SSLError):
            connection.socket.unwrap()  # type: ignore[attr-defined]
    elif how == "RST":
        connection.reset()
    else:
        connection.close()
    eventually(lambda: client.metrics().value(RUNNING) == 0, 1.0)
    connection.close()


def test_streams_that_nobody_reads_take_no_memory(strict: Any) -> None:
    """Each would be some thirty megabytes of events."""
    client = strict.known[0]
    body = {"prompt": "word " * 100_000, "stream": True}
    client.text("word " * 100_000)
    with client.connect(narrow=True) as first:
        first.post(TEXT, body)
        first.read_head()
        before = rss(strict)
        others = [client.connect(narrow=True) for _ in range(3)]
        for other in others:
            other.post(TEXT, body)
            other.read_head()
        time.sleep(1.0)
        assert rss(strict) - before < 40
        assert client.get("/health").status == 200
        for other in others:
            other.close()


# --- what is no TLS


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00garbage",
        b"\x00" * 10_000,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
    ids=["http", "hello", "zeros", "h2"],
)
def test_who_speaks_no_tls_is_let_go_and_not_told_of(server: Server, sent: bytes) -> None:
    said = len(server.stderr)
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as client:
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        reply = b""
        try:
            while data := client.recv(65536):
                reply += data
        except ConnectionResetError:
            pass
    assert b"HTTP" not in reply
    assert len(reply) < 100, "an alert is all there is to say"
    assert server.secure[0].get("/health").status == 200
    assert server.stderr[said:] == ""


# --- certificates that change


def test_a_new_certificate_is_shown_while_streams_go_on(server: Server) -> None:
    client = server.secure[1]
    old = client.serial
    with client.connect() as streaming:
        streaming.post(TEXT, {"prompt": "a", "max_tokens": 60, "ignore_eos": True, "stream": True})
        streaming.read_head()
        pair = server.ca.issue()
        write_pair(server.folder, pair)
        server.has_new_certificates(serial(pair))
        events = list(streaming.events())
        assert len(events) == 61
        assert events[-1].at > time.monotonic() - 2
        # It goes on with what it began with, for the next request too.
        assert serial_of(streaming) == old
        streaming.request("GET", "/health")
        assert streaming.read_reply().status == 200
    assert f"serial {serial(pair):X}" in server.stderr


def test_a_bad_pair_is_told_once_by_each_rank_and_the_old_one_kept(server: Server) -> None:
    (first, second) = [client.serial for client in server.secure]
    assert first == second
    complaints = server.complaints()
    good = server.ca.issue()
    Path(server.key).write_bytes(good.key)
    eventually(lambda: server.complaints() == complaints + 2)
    assert "do not belong together" in server.stderr
    time.sleep(1.5)
    assert server.complaints() == complaints + 2
    assert [client.serial for client in server.secure] == [first] * 2
    # No look would tell of it again.
    server.signal(signal.SIGHUP)
    eventually(lambda: server.complaints() == complaints + 4)
    Path(server.certificate).write_bytes(good.certificates)
    server.has_new_certificates(serial(good))


# --- what cannot be


def test_a_start_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    ca = CA()
    certificate, _ = write_pair(tmp_path, ca.issue())
    _, key = write_pair(tmp_path, ca.issue(), "other")
    for flags, told in (
        (("--ssl-certfile", certificate), "one is given without the other"),
        (("--ssl-certfile", certificate, "--ssl-keyfile", f"{tmp_path}/none"), "--ssl-keyfile: cannot read"),
        (("--ssl-certfile", certificate, "--ssl-keyfile", key), "do not belong together"),
        (("--self-signed-certs", "--ssl-ciphers", "NONE"), "no cipher for TLS 1.2 in 'NONE'"),
    ):
        done = run(*flags, "--model", "m")
        assert done.returncode == 1
        assert done.stdout == ""
        lines = [line for line in done.stderr.splitlines() if "tokenizer" not in line]
        assert len(lines) == 1
        assert lines[0].startswith("llmdsim: ")
        assert told in lines[0]
