"""What the server's options for requests are to calls, and what metadata are to them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType

import pytest
from h2.errors import ErrorCodes
from h2.settings import SettingCodes

from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.web.admin.aborting import named
from llmdsim.wire.grpc import Code
from tests.logs.rig import LoggedRank
from tests.rpc.client import Call, RpcClient
from tests.web.access.rig import admin_port
from tests.web.rig import RankRig
from tests.wire.http2.client import H2Client

PACED = ("--time-to-first-token", "1s", "--inter-token-latency", "1s", "--max-num-seqs", "1")


NOTHING: Mapping[bytes, bytes] = MappingProxyType({})


def generate(
    client: RpcClient, metadata: Mapping[bytes, bytes] = NOTHING, request_id: str = "", stream: bool = True
) -> Call[pb.GenerateResponse]:
    params = pb.SamplingParams(max_tokens=2, ignore_eos=True)
    asked = pb.GenerateRequest(request_id=request_id, text="hi", sampling_params=params, stream=stream)
    return client.call("Generate", asked, pb.GenerateResponse, metadata=metadata)


def is_well(client: RpcClient) -> bool:
    return client.unary("HealthCheck", pb.HealthCheckRequest(), pb.HealthCheckResponse).healthy


# --- options


@pytest.mark.parametrize(
    "flags",
    [
        ("--api-key", "k"),
        ("--root-path", "/llm"),
        ("--allowed-origins", '["https://a.example"]'),
        ("--mm-encoder-only",),
        ("--grpc",),
        ("--disable-fastapi-docs",),
    ],
)
def test_calls_are_served_whatever_is_asked_of_requests(flags: tuple[str, ...]) -> None:
    """Keys, for one, are not looked at (vLLM)."""
    client = RpcClient(RankRig(*flags))
    assert is_well(client)
    (*chunks, complete) = client.finish(generate(client)).ok()
    assert (len(chunks), complete.complete.finish_reason) == (2, "length")


def test_the_port_for_administration_takes_requests_over_http2_and_no_calls() -> None:
    rig = RankRig("--admin-listen", "tcp:0")
    admin = admin_port(rig)
    client = H2Client(admin, admin.connect())  # type: ignore[arg-type]
    assert json.loads(client.get(b"/admin/config").body)["model"] == "m"
    assert client.get(b"/v1/models").status == 404
    call = client.answers[
        client.post(
            b"\0\0\0\0\0", b"/vllm.grpc.engine.VllmEngine/HealthCheck", {b"content-type": b"application/grpc"}
        )
    ]
    assert (call.status, call.headers[b"content-type"]) == (404, b"application/json")
    public = RpcClient(rig)
    assert is_well(public)
    assert public.h2.get(b"/admin/config").status == 404


def test_a_connection_has_so_many_streams_at_most() -> None:
    rig = RankRig("--http2-max-concurrent-streams", "2", *PACED)
    client = RpcClient(rig)
    assert client.h2.h2.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] == 2
    calls = [generate(client), generate(client)]
    client.h2.h2.remote_settings[SettingCodes.MAX_CONCURRENT_STREAMS] = 100
    client.h2.h2.remote_settings.acknowledge()
    assert generate(client).answer.reset == ErrorCodes.REFUSED_STREAM
    assert is_well(RpcClient(rig)), "others have their own"
    for call in calls:
        client.finish(call).ok()
    assert client.finish(generate(client)).ok()


# --- metadata


def test_a_call_may_be_named_by_its_metadata() -> None:
    with LoggedRank("--access-log", *PACED) as rig:
        client = RpcClient(rig)
        calls = [
            generate(client, {b"x-request-id": b"by-metadata"}),
            generate(client, {b"x-request-id": b"not-this"}, "by-message"),
            generate(client),
        ]
        driver = rig.rank.driver
        driver.cut_short(named(driver.engine.sequences, ["by-metadata", "not-this"]))
        client.wait()
        assert calls[0].ok()[-1].complete.finish_reason == "abort"
        for call in calls[1:]:
            assert client.finish(call).ok()[-1].complete.finish_reason == "length"
        ids = [line.split()[1] for line in rig.access_lines() if "/Generate " in line]
    assert ids[:2] == ["by-metadata", "by-message"]
    assert re.fullmatch("[0-9a-f]{16}", ids[2])


def test_an_id_has_its_longest() -> None:
    client = RpcClient(RankRig())
    for call in (generate(client, {b"x-request-id": b"x" * 1025}), generate(client, {}, "x" * 1025)):
        assert call.code is Code.INVALID_ARGUMENT
        assert "at most 1024 characters" in call.message
    assert generate(client, {b"x-request-id": b"x" * 1024}).ended


@pytest.mark.parametrize("flags", [(), ("--enable-request-id-headers",)])
def test_ids_come_back_where_requests_get_theirs(flags: tuple[str, ...]) -> None:
    client = RpcClient(RankRig(*flags))
    told = client.finish(generate(client, {b"x-request-id": b"mine"})).headers
    made = client.finish(generate(client)).headers
    failed = client.call("Nothing", b"", pb.AbortResponse, metadata={b"x-request-id": b"mine"}).headers
    assert told.get(b"x-request-id") == failed.get(b"x-request-id") == (b"mine" if flags else None)
    assert bool(re.fullmatch(b"[0-9a-f]{32}", made.get(b"x-request-id", b""))) == bool(flags)


@pytest.mark.parametrize("value", [b"a\r\nx-evil: 1", b"a\nx-evil: 1", b"a\0b"])
def test_an_id_puts_nothing_else_into_a_response(value: bytes) -> None:
    client = RpcClient(RankRig("--enable-request-id-headers"))
    client.h2.h2.config.validate_outbound_headers = False
    client.h2.h2.config.normalize_outbound_headers = False
    call = client.call(
        "HealthCheck", pb.HealthCheckRequest(), pb.HealthCheckResponse, metadata={b"x-request-id": value}
    )
    assert b"x-evil" not in call.headers


def test_what_nobody_asks_for_is_let_pass() -> None:
    client = RpcClient(RankRig())
    metadata = {
        b"traceparent": b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        b"x-anything-bin": b"AAEC/w==",
        b"grpc-trace-bin": b"not base64",
        b"authorization": b"Bearer x",
        b"grpc-accept-encoding": b"identity, deflate, gzip",
        b"user-agent": b"grpc-python/1.0",
    }
    assert client.finish(generate(client, metadata)).ok()


def test_priorities_come_by_metadata_as_by_headers() -> None:
    client = RpcClient(RankRig(*PACED, "--scheduling-policy", "priority"))
    first, late, urgent = (
        generate(client, {b"x-vllm-priority": priority} if priority else {})
        for priority in (b"", b"5", b"-5")
    )
    client.finish(urgent)
    assert (first.ended, late.ended) == (True, False)
    client.finish(late)


def test_a_cache_that_has_too_little_is_asked_for_by_metadata_too() -> None:
    client = RpcClient(RankRig("--enable-kvcache"))
    call = client.finish(generate(client, {b"x-cache-threshold-finish-reason": b"true"}, stream=False))
    assert call.ok()[-1].complete.finish_reason == "cache_threshold"


def test_pods_are_told_as_of_requests() -> None:
    client = RpcClient(RankRig("--pod-name", "p-0", "--pod-namespace", "ns", "--port", "8123"))
    headers = client.finish(generate(client)).headers
    assert headers[b"x-inference-pod"] == b"p-0"
    assert headers[b"x-inference-port"] == b"8123"
    assert headers[b"x-inference-namespace"] == b"ns"
