"""Encrypted connections: by which certificates, for which clients, and that they end as plain ones do."""

from __future__ import annotations

import ssl
import warnings
from pathlib import Path
from random import Random

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.logger import capturedLogs
from twisted.python.failure import Failure

from llmdsim.wire.limits import LINGER_SECONDS, Limits
from llmdsim.wire.request import Request
from llmdsim.wire.tls import Encryption, Material, TLSError, context_of, described
from tests.certificates import CA, key_pem, serial, write_pair
from tests.wire.channel import Server, get, whole
from tests.wire.tls_rig import TLSClient, trusting

ROOT = CA()
PAIR = ROOT.issue()
OTHER = ROOT.issue()
PATIENCE = 8.0


def connect(
    server: Server | None = None, material: Material = PAIR, context: ssl.SSLContext | None = None
) -> TLSClient:
    return TLSClient(server or Server(whole), Encryption(context_of(material)), context)


# --- certificates and keys


@pytest.mark.parametrize(
    "key", [None, rsa.generate_private_key(65537, 2048), ed25519.Ed25519PrivateKey.generate()]
)
def test_a_client_that_trusts_the_ca_is_served(key: object) -> None:
    material = ROOT.issue(key=key)
    client = connect(material=material, context=trusting(ROOT.pem)).shake_hands()
    assert client.send(get(b"/a")).read().endswith(b"GET /a ")
    assert client.serial == serial(material)


def test_certificates_between_the_root_and_the_servers_are_sent() -> None:
    between = CA("between", ROOT)
    leaf = between.issue()
    chained = leaf._replace(certificates=leaf.certificates + between.pem)
    connect(material=chained, context=trusting(ROOT.pem)).shake_hands()
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(material=leaf, context=trusting(ROOT.pem)).shake_hands()


def test_certificate_and_key_may_be_one_file() -> None:
    both = PAIR.certificates + PAIR.key
    connect(material=Material(both, both), context=trusting(ROOT.pem)).shake_hands()


SMALL = ROOT.issue(key=rsa.generate_private_key(65537, 1024))


@pytest.mark.parametrize(
    ("material", "told"),
    [
        (PAIR._replace(key=OTHER.key), "the certificate and the key do not belong together"),
        (
            PAIR._replace(key=key_pem(load_pem_private_key(PAIR.key, None), b"secret")),
            "the key is encrypted, and there is no way to give a password",
        ),
        (PAIR._replace(key=b""), "the key is no PEM that can be read"),
        (PAIR._replace(key=PAIR.key[:-40]), "the key is no PEM that can be read"),
        (PAIR._replace(key=PAIR.certificates), "the key is no PEM that can be read"),
        (PAIR._replace(certificates=b""), "the certificate is no PEM that can be read"),
        (PAIR._replace(certificates=PAIR.certificates[:-40]), "the certificate is no PEM that can be read"),
        (PAIR._replace(certificates=PAIR.key), "the certificate is no PEM that can be read"),
        (SMALL, "cannot be used: ee key too small"),
        (
            PAIR._replace(key=key_pem(ec.generate_private_key(ec.SECP384R1()))),
            "the certificate and the key do not belong together",
        ),
        (PAIR._replace(key=key_pem(ed25519.Ed25519PrivateKey.generate())), "do not belong together"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(material: Material, told: str) -> None:
    with pytest.raises(TLSError) as problem:
        context_of(material)
    assert told in str(problem.value)
    assert "\n" not in str(problem.value)


def test_damaged_files_are_nothing_worse_than_that() -> None:
    """Whatever byte is wrong: it may not matter, or is told."""
    for name in ("certificates", "key"):
        pem = getattr(PAIR, name)
        for at in range(0, len(pem), 7):
            for byte in (b"A", b"/", b"-", b"\n", b"\xff"):
                damaged = pem[:at] + byte + pem[at + 1 :]
                try:
                    context_of(PAIR._replace(**{name: damaged}), 2 if at % 2 else 0)
                except TLSError:
                    pass


def test_certificates_are_told_apart_by_what_the_log_says() -> None:
    assert f"serial {serial(PAIR):X}, valid until 20" in described(PAIR)


# --- versions, ciphers, protocols


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_tls_before_1_2_is_refused(version: ssl.TLSVersion) -> None:
    context = trusting()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = context.maximum_version = version
    # Even where its ciphers would be good enough for us.
    for ciphers in ("", "ALL:@SECLEVEL=0"):
        client = TLSClient(Server(whole), Encryption(context_of(PAIR, ciphers=ciphers)), context)
        with pytest.raises(ssl.SSLError, match="PROTOCOL_VERSION"):
            client.shake_hands()


@pytest.mark.parametrize(
    ("version", "told"), [(ssl.TLSVersion.TLSv1_2, "TLSv1.2"), (ssl.TLSVersion.TLSv1_3, "TLSv1.3")]
)
def test_newer_tls_is_spoken_with_ciphers_that_http2_allows(version: ssl.TLSVersion, told: str) -> None:
    context = trusting()
    context.minimum_version = context.maximum_version = version
    client = connect(context=context).shake_hands()
    assert client.tls.version() == told
    cipher = client.tls.cipher()
    assert cipher is not None
    assert cipher[0].startswith("TLS_" if told == "TLSv1.3" else "ECDHE-")
    assert "GCM" in cipher[0] or "CHACHA20" in cipher[0]


def test_ciphers_that_http2_forbids_are_not_had_unless_asked_for() -> None:
    context = trusting()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("ECDHE-ECDSA-AES128-SHA256")
    with pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"):
        connect(context=context).shake_hands()
    TLSClient(Server(whole), Encryption(context_of(PAIR, ciphers="ALL")), context).shake_hands()


def test_ciphers_may_be_chosen() -> None:
    context = trusting()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    encryption = Encryption(context_of(PAIR, ciphers="ECDHE-ECDSA-CHACHA20-POLY1305"))
    client = TLSClient(Server(whole), encryption, context).shake_hands()
    assert (client.tls.cipher() or [""])[0] == "ECDHE-ECDSA-CHACHA20-POLY1305"
    context.set_ciphers("ECDHE-ECDSA-AES128-GCM-SHA256")
    with pytest.raises(ssl.SSLError, match="HANDSHAKE_FAILURE"):
        TLSClient(Server(whole), encryption, context).shake_hands()


@pytest.mark.parametrize("ciphers", ["NONSENSE", ":", "TLS_AES_128_GCM_SHA256", "é"])
def test_ciphers_that_there_are_not_are_told(ciphers: str) -> None:
    with pytest.raises(TLSError, match=r"no cipher for TLS 1\.2 in "):
        context_of(PAIR, ciphers=ciphers)


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (["h2", "http/1.1"], "h2"),
        (["http/1.1", "h2"], "h2"),
        (["http/1.1"], "http/1.1"),
        (["spdy/3", "h2"], "h2"),
        (["spdy/3"], None),
        ([], None),
    ],
)
def test_the_server_chooses_the_protocol(offered: list[str], chosen: str | None) -> None:
    context = trusting()
    if offered:
        context.set_alpn_protocols(offered)
    encryption = Encryption(context_of(PAIR))
    client = TLSClient(Server(whole), encryption, context).shake_hands()
    assert client.tls.selected_alpn_protocol() == chosen
    assert client.protocol.negotiatedProtocol == (chosen.encode() if chosen else None)


# --- certificates of clients


@pytest.fixture
def client_context(tmp_path: Path) -> ssl.SSLContext:
    context = trusting(ROOT.pem)
    context.load_cert_chain(*write_pair(tmp_path, ROOT.issue("client")))
    return context


def served(context: ssl.SSLContext, cert_reqs: int, cas: bytes = ROOT.pem) -> bool:
    """Whether a request is answered. In TLS 1.3 a client learns later that it is refused."""
    encryption = Encryption(context_of(PAIR._replace(client_cas=cas), cert_reqs))
    client = TLSClient(Server(whole), encryption, context)
    try:
        return client.shake_hands().send(get()).read().startswith(b"HTTP/1.1 200")
    except ssl.SSLError:
        return False


@pytest.mark.parametrize("cert_reqs", [0, 1, 2])
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_who_is_served(
    client_context: ssl.SSLContext, tmp_path: Path, version: ssl.TLSVersion, cert_reqs: int
) -> None:
    without, stranger = trusting(ROOT.pem), trusting(ROOT.pem)
    stranger.load_cert_chain(*write_pair(tmp_path, CA("stranger").issue("client"), "stranger"))
    for context in (client_context, without, stranger):
        context.maximum_version = version
    assert served(client_context, cert_reqs)
    assert served(without, cert_reqs) is (cert_reqs < 2)
    assert served(stranger, cert_reqs) is (cert_reqs < 1)


def test_several_cas_may_be_trusted(client_context: ssl.SSLContext) -> None:
    assert served(client_context, 2, CA("one").pem + ROOT.pem)
    assert not served(client_context, 2, CA("one").pem)


def test_cas_that_are_none_are_told() -> None:
    with pytest.raises(TLSError, match="the CA of clients is no PEM that can be read"):
        context_of(PAIR._replace(client_cas=b"nothing"), 1)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_with_a_certificate_resumes_its_session(
    client_context: ssl.SSLContext, version: ssl.TLSVersion
) -> None:
    client_context.maximum_version = version
    server, encryption = Server(whole), Encryption(context_of(PAIR._replace(client_cas=ROOT.pem), 2))
    first = TLSClient(server, encryption, client_context).shake_hands().send(get())
    first.read()
    again = TLSClient(server, encryption, client_context, session=first.tls.session).shake_hands()
    assert again.tls.session_reused
    assert again.send(get()).read().startswith(b"HTTP/1.1 200")
    # Another context is another authority: it may not trust that client any more.
    encryption.context = context_of(PAIR._replace(client_cas=CA().pem), 2)
    with pytest.raises(ssl.SSLError):
        TLSClient(server, encryption, client_context, session=first.tls.session).shake_hands().send(
            get()
        ).read()


# --- another certificate


def test_new_connections_have_the_new_certificate_and_old_ones_go_on() -> None:
    server, encryption = Server(whole), Encryption(context_of(PAIR))
    old = TLSClient(server, encryption).shake_hands()
    half_way = TLSClient(server, encryption)
    encryption.context = context_of(OTHER)
    new = TLSClient(server, encryption).shake_hands()
    assert [client.serial for client in (old, half_way.shake_hands(), new)] == [
        serial(PAIR),
        serial(PAIR),
        serial(OTHER),
    ]
    for client in (old, half_way, new):
        assert client.send(get()).read().startswith(b"HTTP/1.1 200")


# --- what is sent


def test_each_piece_leaves_at_once() -> None:
    """No turn of a reactor is needed: a token is not to wait for the next."""
    server = Server()
    client = connect(server).shake_hands().send(get())
    (request,) = server.requests
    request.start(200, b"text/event-stream", first=b"data: 1\n\n")
    assert client.read().endswith(b"\r\n\r\n9\r\ndata: 1\n\n\r\n")
    for number in (b"2", b"3"):
        request.send(b"data: %b\n\n" % number)
        assert client.read() == b"9\r\ndata: %b\n\n\r\n" % number
    request.finish()
    assert client.read() == b"0\r\n\r\n"
    assert client.fate == "open"


def test_pipelined_requests_and_large_bodies() -> None:
    server = Server(lambda request: request.respond(200, request.body[::-1]))
    client = connect(server).shake_hands()
    body = bytes(range(256)) * 300
    head = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    replies = client.send((head + body) * 2 + get()).read()
    assert replies.count(b"HTTP/1.1 200") == 3
    assert replies.count(body[::-1]) == 2


def test_a_client_that_does_not_read_is_waited_for() -> None:
    server = Server()
    client = connect(server).shake_hands().send(get())
    (request,) = server.requests
    request.start(200, b"text/plain")
    client.read()
    client.transport.client_reads = False
    while not client.transport._producer_paused:
        request.send(b"x" * 4096)
    (channel,) = server.site.connections
    assert channel.write_paused
    assert len(client.transport.unsent) < 1 << 17
    assert server.drained == []
    client.transport.client_reads = True
    client.transport.drain()
    assert server.drained == [request]
    assert not channel.write_paused
    assert client.read().count(b"x" * 4096) > 10


# --- ends


@pytest.mark.parametrize("answers", [False, True])
def test_an_idle_connection_is_ended_whether_its_client_agrees_or_not(answers: bool) -> None:
    """TLS would wait for an answer to its own end, and who gives none would hold a connection for ever."""
    server = Server(whole, Limits(idle_time=PATIENCE))
    silent, served = connect(server).shake_hands(), connect(server).shake_hands().send(get())
    served.read()
    server.wait(PATIENCE + 1.25)
    for client in (silent, served):
        assert client.read() == b"<closed>"
        if answers:
            client.tls.unwrap()
            client.exchange()
    server.wait(0 if answers else LINGER_SECONDS)
    server.settle()
    assert [silent.fate, served.fate] == ["closed"] * 2
    assert server.site.connections == set()


def test_closing_is_told_in_tlss_terms() -> None:
    client = connect().shake_hands().send(get(b"/", b"Connection: close"))
    assert client.read().endswith(b"<closed>")
    client.server.wait(LINGER_SECONDS)
    assert client.fate == "closed"


def test_what_is_cut_does_not_look_complete() -> None:
    """A truncated answer whose end is told as TLS does it would pass for all there is."""
    server = Server()
    client = connect(server).shake_hands().send(get())
    server.requests[0].start(200, b"text/plain", first=b"half")
    assert b"half" in client.read()
    next(iter(server.site.connections)).transport.abortConnection()
    server.settle()
    assert client.read() == b""
    assert client.fate == "reset"


@pytest.mark.parametrize("how", ["close", "FIN", "RST"])
def test_a_client_that_leaves_is_noticed(how: str) -> None:
    server = Server()
    client = connect(server).shake_hands().send(get())
    assert server.lost == []
    if how == "close":
        with pytest.raises(ssl.SSLWantReadError):
            client.tls.unwrap()
        client.exchange()
    else:
        reason = ConnectionDone() if how == "FIN" else ConnectionLost()
        client.transport.lost("lost", Failure(reason))
    server.settle()
    assert server.lost == server.requests
    assert server.site.connections == set()


# --- what is no TLS, or never becomes it


GARBAGE = [
    get(),
    b"\x00" * 100,
    b"\x16\x03\x01\x00\x05hello",
    b"\x16\x03\x01\xff\xff" + b"a" * 70_000,
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
]


@pytest.mark.parametrize("sent", GARBAGE, ids=["http", "zeros", "hello", "huge", "h2"])
def test_who_speaks_something_else_is_let_go_without_a_word(sent: bytes) -> None:
    server = Server(whole)
    client = connect(server)
    with capturedLogs() as logged:
        client.transport.arrive(sent)
        server.settle()
    assert (client.fate, server.requests, server.site.connections) == ("closed", [], set())
    assert b"HTTP" not in client.transport.value()
    assert logged == []


def test_handshakes_that_are_damaged_on_the_way_do_no_harm() -> None:
    random = Random(7)
    server, encryption = Server(whole), Encryption(context_of(PAIR._replace(client_cas=ROOT.pem), 1))
    with capturedLogs() as logged:
        for _ in range(300):
            client = TLSClient(server, encryption)
            damaged = random.randrange(3)
            for flight in range(3):
                try:
                    client.tls.do_handshake()
                except ssl.SSLError:
                    pass
                data = bytearray(client._leaving.read())
                if flight == damaged and data:
                    for _ in range(random.randint(1, 5)):
                        data[random.randrange(len(data))] = random.randrange(256)
                if data:
                    client.transport.arrive(bytes(data))
                client._arrived.write(client.transport.value())
                client.transport.clear()
            server.settle()
    assert logged == []
    server.site.stop()
    server.wait(LINGER_SECONDS)
    server.settle()
    assert server.site.connections == set()


def test_garbage_after_the_handshake_ends_the_connection() -> None:
    server = Server()
    client = connect(server).shake_hands().send(get())
    with capturedLogs() as logged:
        client.transport.arrive(b"\x17\x03\x03\x00\x20" + b"a" * 32)
        server.settle()
    assert client.fate == "closed"
    assert server.lost == server.requests
    assert logged == []


@pytest.mark.parametrize("sent", [0, 1, 50, -1])
def test_a_handshake_has_the_time_of_an_idle_connection(sent: int) -> None:
    server = Server(whole, Limits(idle_time=PATIENCE))
    client = connect(server)
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.do_handshake()
    hello = client._leaving.read()
    assert len(server.site.connections) == 1
    server.wait(PATIENCE - 1.25)
    if sent:
        client.transport.arrive(hello[:sent] if sent > 0 else hello)
    assert client.fate == "open"
    server.wait(2.5)
    assert (client.fate, server.site.connections) == ("reset", set())


def test_a_hello_that_drips_in_wins_no_time() -> None:
    server = Server(whole, Limits(idle_time=PATIENCE))
    client = connect(server)
    with pytest.raises(ssl.SSLWantReadError):
        client.tls.do_handshake()
    for byte in client._leaving.read()[:40]:
        if client.fate != "open":
            break
        client.transport.arrive(bytes([byte]))
        server.wait(0.5)
    assert client.fate == "reset"


def test_the_end_of_the_server_waits_for_no_handshake() -> None:
    server = Server(whole)
    client, idle = connect(server), connect(server).shake_hands()
    server.site.stop()
    server.settle()
    assert client.fate == "reset"
    assert idle.read() == b"<closed>"


def test_an_error_in_the_answer_is_a_500_here_too() -> None:
    def fail(request: Request) -> None:
        raise RuntimeError("ours")

    client = connect(Server(fail)).shake_hands()
    assert client.send(get()).read().startswith(b"HTTP/1.1 500")
