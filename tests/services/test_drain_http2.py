"""Draining with connections over HTTP/2, and calls: who is told when, and that nobody holds up the end."""

from __future__ import annotations

import json
from typing import Any

import pytest
from h2.errors import ErrorCodes

from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.services.drain import FLUSH, LAST
from llmdsim.wire.grpc import Code
from llmdsim.wire.http2.frames import PREFACE
from tests.rpc.client import Call, RpcClient
from tests.services.drain_rig import DrainRig
from tests.web.clients import CHAT, fields
from tests.wire.channel import get
from tests.wire.http2.client import Answer, H2Client

#: What a first GOAWAY and a last one of a client without any stream, or one, name.
GOING = (2**31 - 1, 0)


def generate(client: RpcClient, max_tokens: int = 3, stream: bool = True) -> Call[pb.GenerateResponse]:
    params = pb.SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    asked = pb.GenerateRequest(text="one two", sampling_params=params, stream=stream)
    return client.call("Generate", asked, pb.GenerateResponse)


def chat(client: H2Client, **more: Any) -> Answer:
    stream = client.post(json.dumps(fields(CHAT, **more)).encode(), CHAT.encode())
    return client.answers[stream]


def http2(rig: DrainRig, **more: Any) -> H2Client:
    return H2Client(rig, rig.connect(), **more)  # type: ignore[arg-type]


def wait(rig: DrainRig, seconds: float, *clients: RpcClient | H2Client) -> None:
    for _ in range(round(seconds * 8)):
        rig.wait(0.125)
        for client in clients:
            (client.h2 if isinstance(client, RpcClient) else client).flush()


def ends(call: Call[pb.GenerateResponse]) -> list[tuple[int, str]]:
    return [
        (message.complete.index, message.complete.finish_reason)
        for message in call.ok()
        if message.HasField("complete")
    ]


def test_idle_connections_are_told_and_closed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DrainRig(monkeypatch)
    fresh, served, caller = http2(rig), http2(rig), RpcClient(rig)
    served.get(b"/version")
    assert generate(caller, 1).stream_id == 1
    wait(rig, 2, caller)
    rig.kill()
    wait(rig, 0.125, fresh, served, caller)
    assert fresh.goaways == [GOING, (0, 0)]
    assert served.goaways == caller.h2.goaways == [GOING, (1, 0)]
    assert [client.client.fate for client in (fresh, served, caller.h2)] == ["half-closed"] * 3
    wait(rig, LAST)
    assert rig.reactor.stops == 1


@pytest.mark.parametrize("stream", [True, False])
def test_calls_that_run_or_wait_finish_and_new_ones_are_unavailable(
    monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    rig = DrainRig(monkeypatch)
    caller, newcomer = RpcClient(rig), RpcClient(rig)
    running, waiting = generate(caller, stream=stream), generate(caller, stream=stream)
    assert (rig.rank.stats.running, rig.rank.stats.waiting) == (1, 1)
    rig.kill()
    asked = pb.EmbedRequest(tokenized=pb.TokenizedInput(input_ids=[1]))
    for refused in (generate(newcomer), RpcClient(rig).call("Embed", asked, pb.EmbedResponse)):
        assert (refused.code, refused.message) == (Code.UNAVAILABLE, "The server is shutting down.")
    wait(rig, 1, caller, newcomer)
    assert newcomer.h2.goaways == [GOING, (1, 0)], "it had better go elsewhere"
    assert newcomer.h2.client.fate != "open"
    assert caller.h2.goaways == [GOING, (3, 0)]
    wait(rig, 4.5, caller)
    assert caller.h2.client.fate == "open", "what it has under way goes on"
    assert rig.reactor.stops == 0
    wait(rig, 0.75, caller)
    assert ends(running) == ends(waiting) == [(0, "length")]
    assert caller.h2.client.fate != "open"
    wait(rig, LAST)
    assert rig.reactor.stops == 1
    assert rig.rank.stats.finished["abort"] == 0


def test_a_call_refused_on_a_connection_ends_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DrainRig(monkeypatch)
    caller = RpcClient(rig)
    running = generate(caller)
    rig.kill()
    assert generate(caller).code is Code.UNAVAILABLE
    wait(rig, 0.5, caller)
    assert caller.h2.goaways == [GOING, (3, 0)]
    # Whoever does not heed it may try again elsewhere.
    assert generate(caller).answer.reset == ErrorCodes.REFUSED_STREAM
    wait(rig, 3, caller)
    assert ends(running) == [(0, "length")]
    assert rig.reactor.stops == 1


def test_a_503_over_http2_leaves_other_streams_their_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """For many clients GOAWAY ends everything."""
    rig = DrainRig(monkeypatch)
    client = http2(rig)
    running = chat(client, stream=True, max_tokens=3)
    rig.kill()
    assert chat(client).status == 503
    wait(rig, 2.5, client)
    assert (client.goaways, client.get(b"/ready").status) == ([], 503)
    wait(rig, 0.75, client)
    assert running.ended
    assert running.body.endswith(b"data: [DONE]\n\n")
    assert client.goaways == [GOING, (5, 0)]
    assert rig.reactor.stops == 1


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("timeout", [0.0, 2.5])
def test_when_the_time_is_over_calls_are_told(
    monkeypatch: pytest.MonkeyPatch, stream: bool, timeout: float
) -> None:
    rig = DrainRig(monkeypatch, timeout=timeout)
    caller = RpcClient(rig)
    calls = [generate(caller, 50, stream) for _ in range(2)]
    rig.kill()
    wait(rig, timeout + 0.25, caller)
    assert rig.rank.engine.idle
    assert rig.rank.stats.finished["abort"] == 2
    for call in calls:
        assert (call.code, call.message) == (Code.UNAVAILABLE, "The server is shutting down.")
    wait(rig, LAST)
    assert rig.reactor.stops == 1


@pytest.mark.parametrize(
    "sent", [PREFACE[:5], PREFACE, b"head", b"part of a body"], ids=["some", "preface", "head", "body"]
)
def test_a_half_open_client_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> None:
    rig = DrainRig(monkeypatch)
    if sent in (b"head", b"part of a body"):
        client = RpcClient(rig)
        call = client.call("Generate", None, pb.GenerateResponse, end=False)
        if sent != b"head":
            client.h2.send(call.stream_id, b"\0\0\0\1", end=False)
            client.read()
    else:
        rig.connect().send(sent)
    rig.kill()
    wait(rig, 0.25)
    assert rig.reactor.stops == 1


@pytest.mark.parametrize("calls", [True, False])
@pytest.mark.parametrize(("timeout", "until"), [(20.0, 20.0), (3.0, 3.0 + FLUSH)])
def test_a_client_whose_window_stays_shut_has_the_rest_of_the_time(
    monkeypatch: pytest.MonkeyPatch, calls: bool, timeout: float, until: float
) -> None:
    rig = DrainRig(monkeypatch, timeout=timeout)
    client: RpcClient | H2Client
    if calls:
        client = RpcClient(rig, acknowledges=False, window=10)
        generate(client, 5)
    else:
        client = http2(rig, acknowledges=False, window=10)
        chat(client, stream=True, max_tokens=5)
    rig.kill()
    wait(rig, until - 0.25, client)
    assert (rig.rank.engine.idle, rig.reactor.stops) == (True, 0)
    wait(rig, 0.5, client)
    assert rig.reactor.stops == 1


@pytest.mark.parametrize("calls", [True, False])
def test_a_client_that_reads_late_has_it_all(monkeypatch: pytest.MonkeyPatch, calls: bool) -> None:
    rig = DrainRig(monkeypatch)
    if calls:
        caller = RpcClient(rig, acknowledges=False, window=10)
        call, client = generate(caller, 2), caller.h2
    else:
        client = http2(rig, acknowledges=False, window=10)
        answer = chat(client, stream=True, max_tokens=2)
    rig.kill()
    wait(rig, 4, client)
    assert rig.reactor.stops == 0
    assert bool(client.goaways) is calls
    client.open_window(100_000, 1)
    wait(rig, 0.25, client)
    if calls:
        assert ends(call) == [(0, "length")]
    else:
        assert answer.ended
        assert answer.body.endswith(b"data: [DONE]\n\n")
    assert client.goaways == [GOING, (1, 0)]
    assert rig.reactor.stops == 1


def test_who_comes_in_at_the_very_end_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DrainRig(monkeypatch)
    running = RpcClient(rig)
    generate(running, 1)
    rig.kill()
    rig.clock.advance(1)
    rig.clock.advance(0.02)
    late, caller = http2(rig), RpcClient(rig)
    assert late.get(b"/health").status == 200
    assert caller.unary("HealthCheck", pb.HealthCheckRequest(), pb.HealthCheckResponse).healthy
    wait(rig, 0.25, late, caller)
    assert [client.client.fate != "open" for client in (late, caller.h2)] == [True, True]
    assert rig.reactor.stops == 1


def test_probes_go_on_over_their_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DrainRig(monkeypatch)
    caller, prober, scraper = RpcClient(rig), RpcClient(rig), http2(rig)
    generate(caller, 3)
    rig.kill()
    for _ in range(5):
        assert prober.unary("HealthCheck", pb.HealthCheckRequest(), pb.HealthCheckResponse).healthy
        assert scraper.get(b"/metrics").status == 200
        assert rig.connect().send(get(b"/ready")).received.startswith(b"HTTP/1.1 503 ")
        wait(rig, 0.5, caller)
    assert prober.h2.goaways == scraper.goaways == []
    wait(rig, 1, caller, prober, scraper)
    assert rig.reactor.stops == 1
    assert prober.h2.goaways[0] == scraper.goaways[0] == GOING


def test_callers_are_told_as_a_drain_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = DrainRig(monkeypatch, "--inter-token-latency", "1s")
    caller, reader, mixed = RpcClient(rig), http2(rig), RpcClient(rig)
    call = generate(caller, 4)
    stream = chat(reader, stream=True, max_tokens=4)
    other = generate(mixed, 4)
    of_http = chat(mixed.h2, stream=True, max_tokens=4)
    rig.kill()
    wait(rig, 0.25, caller, reader, mixed)
    assert caller.h2.goaways[0] == GOING
    # Their clients may take it for the end of all streams.
    assert (reader.goaways, mixed.h2.goaways) == ([], [])
    wait(rig, 5, caller, reader, mixed)
    assert ends(call) == ends(other) == [(0, "length")]
    assert stream.ended
    assert of_http.ended
