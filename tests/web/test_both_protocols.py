"""The same requests over HTTP/1.1 and HTTP/2 have the same answers, byte for byte but for ids and times."""

from __future__ import annotations

import re
from random import Random
from typing import NamedTuple

import pytest
from twisted.internet.defer import maybeDeferred

from tests.web.clients import CHAT, TEXT
from tests.web.fuzz import METHODS, NAMES, QUERIES, ROUTES, TYPES, body_of
from tests.web.rig import RankRig
from tests.wire.channel import get, read_replies
from tests.wire.http2.client import H2Client

FLAGS = ("--max-model-len", "600", "--max-num-seqs", "3", "--seed", "1", "--max-request-body-size-mb", "1")
MODES = (
    (*FLAGS, "--mode", "echo", "--enable-request-id-headers"),
    (*FLAGS, "--time-to-first-token", "20ms", "--inter-token-latency", "1ms", "--api-key", "k"),
    (*FLAGS, "--failure-injection-rate", "60", "--enable-force-include-usage", "--pod-name", "p"),
)
FEW = 150

#: What is drawn anew for each answer, and what tells of time.
_OWN = re.compile(
    rb'(?<="created":)\d+|(?<="created_at":)[\d.]+|(?<="remote_blocks_expiration_time":)[\d.]+'
    rb'|"(call_id|id|remote_engine_id|remote_request_id)":"[^"]*"'
)
#: Headers of one protocol alone, or drawn anew, or that tell of time.
_FRAMING = {b"connection", b"transfer-encoding", b":status", b"x-request-id", b"date"}


class Asked(NamedTuple):
    method: bytes
    path: bytes
    headers: dict[bytes, bytes]
    body: bytes


class Got(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    body: bytes


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no reactor to wait for a thread."""
    for module in ("whole", "access.documentation", "stored"):
        monkeypatch.setattr(f"llmdsim.web.{module}.deferToThread", maybeDeferred)


def asked(seed: str) -> Asked:
    random = Random(seed)
    headers = {}
    if random.random() < 0.8:
        kind = random.choice(TYPES) if random.random() < 0.2 else "application/json"
        headers["content-type"] = kind
    if random.random() < 0.9:
        headers["authorization"] = "Bearer k"
    if random.random() < 0.2:
        headers[random.choice(NAMES).lower()] = random.choice(("*", "gzip", "application/openmetrics-text"))
    if random.random() < 0.7:
        path = random.choice((CHAT, TEXT))
        method, body = "POST", body_of(path, random)
    else:
        path = random.choice([route for route in ROUTES if route not in ("*", "/metrics")])
        method = random.choice([name for name in METHODS if name != "get"])
        body = body_of(CHAT, random) if random.random() < 0.3 else b""
    target = (path + random.choice([query for query in QUERIES if query.isascii()])).encode()
    return Asked(method.encode(), target, {a.encode(): b.encode() for a, b in headers.items()}, body)


def masked(status: int, headers: dict[bytes, bytes], body: bytes) -> Got:
    kept = {name: value for name, value in headers.items() if name not in _FRAMING}
    return Got(status, kept, _OWN.sub(b"", body))


def settle(rig: RankRig) -> None:
    for _ in range(4000):
        if rig.rank.engine.idle and not rig.rank.context.turns.busy:
            break
        rig.clock.advance(0.001)
    rig.settle()


def over_http1(rig: RankRig, wanted: Asked) -> Got:
    lines = [name + b": " + value for name, value in wanted.headers.items()]
    if wanted.body:
        lines.append(b"content-length: %d" % len(wanted.body))
    client = rig.connect()
    client.send(get(wanted.path, *lines, method=wanted.method) + wanted.body)
    settle(rig)
    ended = client.fate != "open"
    if not ended:
        client.fin()
    (reply,) = read_replies(client.received, [wanted.method], ended)
    return masked(reply.status, reply.headers, reply.body)


def connected(rig: RankRig) -> H2Client:
    """A client whose windows have room for any of the answers: what waits for one is sent in other pieces."""
    client = H2Client(rig, rig.connect(), window=1 << 24)
    client.open_window(1 << 30)
    return client


def over_http2(rig: RankRig, client: H2Client, wanted: Asked) -> Got:
    stream = client.begin(wanted.path, wanted.method, wanted.headers, end=not wanted.body)
    if wanted.body:
        client.send(stream, wanted.body)
    client.flush()
    settle(rig)
    client.flush()
    answer = client.answers[stream]
    assert answer.ended or answer.reset is not None
    return masked(answer.status, answer.headers, answer.body)


@pytest.mark.parametrize("flags", MODES)
def test_both_protocols_have_the_same_answers(flags: tuple[str, ...]) -> None:
    one, two = RankRig(*flags), RankRig(*flags)
    client = connected(two)
    statuses = set()
    for number in range(FEW):
        wanted = asked(f"both {number}")
        found = over_http1(one, wanted)
        statuses.add(found.status)
        assert over_http2(two, client, wanted) == found, wanted
        if client.goaways:
            client = connected(two)
        assert two.clock.seconds() == one.clock.seconds()
    assert {200, 400, 405} <= statuses


@pytest.mark.parametrize(
    ("target", "status"),
    [
        *(
            (b"/v1/models", 200),
            (b"/v1/models?\x7e", 200),
            (b"/v1/%6dodels", 200),
            (b"*", 404),
            (b"/<>", 404),
        ),
        *((b"v1/models", 400), (b"/v1/mod els", 400), (b"/v1/models?\x01", 400)),
        *((b"/v1/models\x7f", 400), (b"/v1/models?\xff", 400), (b"/\xc3\xa9", 400)),
    ],
)
def test_what_is_no_path_is_refused_by_both(target: bytes, status: int) -> None:
    wanted = Asked(b"GET", target, {}, b"")
    assert over_http1(RankRig(), wanted).status == status
    rig = RankRig()
    assert over_http2(rig, connected(rig), wanted).status == status


def test_a_whole_url_is_a_target_over_http1_alone() -> None:
    wanted = Asked(b"GET", b"http://sim/v1/models", {}, b"")
    assert over_http1(RankRig(), wanted).status == 200
    rig = RankRig()
    assert over_http2(rig, connected(rig), wanted).status == 400
