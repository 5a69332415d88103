"""What is the same for all calls: paths, messages, deadlines."""

from __future__ import annotations

import gzip

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.logger import capturedLogs

from llmdsim.rpc.calls import Method
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.web.turns import LONG_BODY
from llmdsim.wire.grpc import Code, frame
from llmdsim.wire.request import Request
from tests.rpc.client import SERVICE, Call, RpcClient
from tests.web.rig import RankRig

PATH = f"/{SERVICE}/HealthCheck".encode()
EMBED = f"/{SERVICE}/Embed".encode()


def called(
    data: bytes, headers: tuple[tuple[bytes, bytes], ...] = (), path: bytes = PATH, *flags: str
) -> Call[pb.HealthCheckResponse]:
    client = RpcClient(RankRig(*flags))
    given = [(b"content-type", b"application/grpc+proto"), (b"te", b"trailers"), *headers]
    stream = client.h2.begin(path, b"POST", given, end=not data)
    if data:
        client.h2.send(stream, data)
    client.read()
    return Call(client, stream, pb.HealthCheckResponse)


def test_a_method_answers() -> None:
    (found,) = called(frame(b"")).ok()
    assert (found.healthy, found.message) == (True, "Health")


@pytest.mark.parametrize(
    ("data", "headers", "path", "code"),
    [
        (frame(b""), (), b"/none.Such/Method", Code.UNIMPLEMENTED),
        (frame(b""), (), b"/v1/models", Code.UNIMPLEMENTED),
        (b"", (), PATH, Code.UNIMPLEMENTED),
        (frame(b"") * 2, (), PATH, Code.UNIMPLEMENTED),
        (frame(b"\x07"), (), PATH, Code.INTERNAL),
        (frame(b"abc")[:-1], (), PATH, Code.INTERNAL),
        (b"\x02" + frame(b"")[1:], (), PATH, Code.INTERNAL),
        (b"\x01" + frame(b"x")[1:], (), PATH, Code.INTERNAL),
        (b"\x01" + frame(b"x")[1:], ((b"grpc-encoding", b"gzip"),), PATH, Code.INTERNAL),
        (frame(b""), ((b"grpc-encoding", b"zstd"),), PATH, Code.UNIMPLEMENTED),
        (frame(b""), ((b"grpc-timeout", b"soon"),), PATH, Code.INTERNAL),
        (b"\0\xff\xff\xff\xff", (), PATH, Code.RESOURCE_EXHAUSTED),
    ],
)
def test_what_is_no_call_has_its_code(
    data: bytes, headers: tuple[tuple[bytes, bytes], ...], path: bytes, code: Code
) -> None:
    call = called(data, headers, path)
    assert call.ended
    assert call.code is code, call.message
    assert call.headers[b"content-type"] == b"application/grpc"


def test_a_status_stays_small_whatever_was_asked_for() -> None:
    """grpcio takes 8 to 16 KiB of trailers, and tells of another failure where there are more."""
    call = called(frame(b""), path=b"/vllm.grpc.engine.VllmEngine/" + b"x" * 20_000)
    assert call.code is Code.UNIMPLEMENTED
    assert len(call.message) < 1_000


def test_messages_may_be_compressed() -> None:
    message = gzip.compress(pb.HealthCheckRequest().SerializeToString())
    called(b"\x01" + frame(message)[1:], ((b"grpc-encoding", b"gzip"),)).ok()


@pytest.mark.parametrize("compressed", [False, True])
def test_messages_are_limited(compressed: bool) -> None:
    """Packed, a megabyte of zeros takes a kilobyte."""
    for size, code in ((1 << 20, Code.INVALID_ARGUMENT), ((1 << 20) + 1, Code.RESOURCE_EXHAUSTED)):
        # A field that the message does not know, which is passed over.
        field = b"\xfa\x01" + b"\xfb\xff\x3f"
        message = field + bytes(size - len(field))
        headers: tuple[tuple[bytes, bytes], ...] = ()
        data = frame(message)
        if compressed:
            headers = ((b"grpc-encoding", b"gzip"),)
            data = b"\x01" + frame(gzip.compress(message))[1:]
        call = called(data, headers, EMBED, "--max-request-body-size-mb", "1")
        assert call.code is code, call.message


def test_messages_that_say_little_are_short() -> None:
    paths = RankRig().rank.calls.methods
    assert len(paths) > 10
    for path in paths.keys() - {EMBED, f"/{SERVICE}/Generate".encode()}:
        for size, code in ((LONG_BODY, Code.INTERNAL), (LONG_BODY + 1, Code.RESOURCE_EXHAUSTED)):
            call = called(frame(b"\x07" * size), (), path)
            assert call.code is code, path


@pytest.mark.parametrize("compressed", [False, True])
def test_none_is_read_of_many_where_there_should_be_one(
    compressed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmdsim.wire.grpc.inflated", None)
    monkeypatch.setattr("llmdsim.rpc.calls._parsed", None)
    message = pb.HealthCheckRequest().SerializeToString()
    data = b"\x01" + frame(gzip.compress(message))[1:] if compressed else frame(message)
    call = called(data * 1000, ((b"grpc-encoding", b"gzip"),))
    assert call.code is Code.UNIMPLEMENTED
    assert call.message == "the method takes one message, and more came"


def test_other_requests_on_the_connection_are_none() -> None:
    client = RpcClient(RankRig())
    assert client.h2.get(b"/version").status == 200


@pytest.mark.parametrize(
    ("content_type", "is_call"),
    [
        (b"application/grpc", True),
        (b"application/grpc+json", True),
        (b"application/grpc;charset=utf-8", True),
        (b"application/grpc-web", False),
        (b"application/grpc-web+proto", False),
        (b"application/grpcx", False),
        (b"application/grp", False),
    ],
)
def test_other_protocols_than_grpc_are_http(content_type: bytes, is_call: bool) -> None:
    client = RpcClient(RankRig())
    answer = client.h2.answers[client.h2.post(frame(b""), PATH, {b"content-type": content_type})]
    assert (b"grpc-status" in answer.trailers, answer.status) == (is_call, 200 if is_call else 404)


def hold(client: RpcClient) -> list[str]:
    """Have HealthCheck never answer; what ends it is noted."""
    ends: list[str] = []

    def answer(request: Request, asked: Message) -> None:
        request.on_lost = lambda: ends.append("lost")

    client.rig.rank.calls.methods[PATH] = Method(pb.HealthCheckRequest, answer)
    return ends


def test_a_deadline_ends_a_call_and_what_it_led_to() -> None:
    client = RpcClient(RankRig())
    ends = hold(client)
    call = client.call("HealthCheck", pb.HealthCheckRequest(), pb.HealthCheckResponse, timeout="1500m")
    client.wait(1.4)
    assert not call.ended
    client.wait(0.2)
    assert (call.code, ends) == (Code.DEADLINE_EXCEEDED, ["lost"])


def test_no_deadline_is_left_behind() -> None:
    client = RpcClient(RankRig())
    ends = hold(client)
    before = len(client.rig.clock.getDelayedCalls())
    call = client.call("HealthCheck", pb.HealthCheckRequest(), pb.HealthCheckResponse, timeout="1H")
    call.cancel()
    assert ends == ["lost"]
    assert len(client.rig.clock.getDelayedCalls()) == before
    client.h2.client.rst()


def test_a_crash_is_internal_and_tells_nothing() -> None:
    client = RpcClient(RankRig())

    def answer(request: Request, asked: Message) -> None:
        raise ZeroDivisionError("a secret")

    client.rig.rank.calls.methods[PATH] = Method(pb.HealthCheckRequest, answer)
    with capturedLogs() as logs:
        call = client.call("HealthCheck", pb.HealthCheckRequest(), pb.HealthCheckResponse)
    assert (call.code, call.message) == (Code.INTERNAL, "Internal server error")
    assert any("log_failure" in event for event in logs)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60), st.sampled_from([(), ((b"grpc-encoding", b"gzip"),)]))
def test_no_bytes_do_harm(data: bytes, headers: tuple[tuple[bytes, bytes], ...]) -> None:
    with capturedLogs() as logs:
        call = called(data, headers)
    assert call.ended
    assert call.code in (Code.OK, Code.INTERNAL, Code.UNIMPLEMENTED, Code.RESOURCE_EXHAUSTED)
    assert not [event for event in logs if "log_failure" in event]
