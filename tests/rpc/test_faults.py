"""What faults make of calls: messages, trailers and the stream they come on."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.message import DecodeError
from h2.errors import ErrorCodes

from llmdsim.rpc.message_form import MessageForm
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.web.failures import failed
from llmdsim.wire.grpc import PREFIX, Code, frame
from llmdsim.wire.request import Request
from tests.logs.rig import LoggedRank
from tests.rpc.client import Call, RpcClient
from tests.web.rig import RankRig

PACED = ("--time-to-first-token", "1s", "--inter-token-latency", "1s", "--seed", "1")
PACES = pytest.mark.parametrize("flags", [PACED, ("--seed", "1")], ids=["paced", "at once"])
KINDS = pytest.mark.parametrize("stream", [True, False])

Answer = Call[pb.GenerateResponse]


def generate(client: RpcClient, metadata: dict[bytes, bytes], stream: bool = True, **more: Any) -> Answer:
    timeout = more.pop("timeout", None)
    params = pb.SamplingParams(max_tokens=5, ignore_eos=True, seed=3, **more)
    asked = pb.GenerateRequest(text="one two", sampling_params=params, stream=stream)
    return client.call("Generate", asked, pb.GenerateResponse, metadata=metadata, timeout=timeout)


class FaultyCall:
    """A connection with a Generate that asks for `fault`."""

    def __init__(self, fault: str, stream: bool = True, flags: tuple[str, ...] = PACED, **more: Any) -> None:
        self.flags = flags
        self.rig = RankRig(*flags)
        self.ended: list[Request] = []
        self.rig.site.on_ended.append(self.ended.append)
        self.client = RpcClient(self.rig)
        self.stream = stream
        self.call = generate(self.client, {b"x-fault": fault.encode()}, stream, **more)

    def wait(self, seconds: float) -> Answer:
        for _ in range(round(seconds * 4)):
            self.client.wait(0.25)
        return self.call

    @property
    def right(self) -> bytes:
        """What the same call is answered with when nothing goes wrong."""
        client = RpcClient(RankRig(*self.flags))
        return client.finish(generate(client, {}, self.stream)).answer.body

    @property
    def body(self) -> bytes:
        return self.call.answer.body

    @property
    def shown(self) -> dict[str, int]:
        return {kind: number for kind, number in self.rig.rank.stats.faults.items() if number}

    def serves_on(self) -> bool:
        """Whether the connection does, and all is free."""
        assert self.rig.rank.engine.idle
        assert self.rig.rank.stats.running == self.rig.rank.stats.waiting == 0
        assert self.client.h2.goaways == []
        assert not self.client.h2.client.protocol.streams
        return self.client.unary("HealthCheck", pb.HealthCheckRequest(), pb.HealthCheckResponse).healthy


def kinds(call: Answer) -> list[str | None]:
    return [message.WhichOneof("response") for message in call.messages]


CHUNKS: list[str | None] = ["chunk"] * 5


# --- ends of the stream


@KINDS
def test_a_reset_at_once(stream: bool) -> None:
    faulty = FaultyCall("reset", stream)
    call = faulty.wait(0.25)
    assert (call.headers, call.answer.reset, call.code) == ({}, ErrorCodes.INTERNAL_ERROR, Code.INTERNAL)
    assert [(ended.status, ended.lost) for ended in faulty.ended] == [(0, True)]
    assert faulty.shown == {"reset": 1}
    assert faulty.serves_on()


@PACES
@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_reset_after_some_tokens(flags: tuple[str, ...], after: int) -> None:
    faulty = FaultyCall(f"reset; after={after}", flags=flags)
    call = faulty.wait(after + 1)
    assert (call.answer.ended, call.answer.reset) == (False, ErrorCodes.INTERNAL_ERROR)
    assert kinds(call) == ["chunk"] * after
    assert faulty.right.startswith(faulty.body)
    assert faulty.rig.rank.stats.finished["abort"] == (flags is PACED)
    assert faulty.serves_on()


def test_the_tokens_of_all_choices_count() -> None:
    faulty = FaultyCall("reset; after=4", n=3)
    assert kinds(faulty.wait(4)) == ["chunk"] * 4
    assert faulty.rig.rank.stats.finished["abort"] == 3
    assert faulty.serves_on()


@PACES
def test_a_message_that_is_cut_in_the_middle(flags: tuple[str, ...]) -> None:
    faulty = FaultyCall("truncate; after=2", flags=flags)
    call = faulty.wait(3)
    assert (call.answer.ended, call.answer.reset) == (False, ErrorCodes.INTERNAL_ERROR)
    assert kinds(call) == ["chunk"] * 2
    whole = sum(len(frame(message.SerializeToString())) for message in call.messages)
    assert len(faulty.body) > whole
    assert faulty.right.startswith(faulty.body)
    assert [(ended.status, ended.lost) for ended in faulty.ended] == [(200, True)]
    assert faulty.serves_on()


@pytest.mark.parametrize("fault", ["truncate", "reset; after=0"])
def test_a_whole_reply_that_is_cut_in_the_middle(fault: str) -> None:
    faulty = FaultyCall(fault, stream=False)
    call = faulty.wait(5)
    assert call.answer.reset == ErrorCodes.INTERNAL_ERROR
    assert faulty.body == faulty.right[: len(faulty.right) // 2]
    assert faulty.serves_on()


# --- messages


@PACES
def test_a_message_that_nobody_can_read(flags: tuple[str, ...]) -> None:
    faulty = FaultyCall("garble; after=2", flags=flags)
    call = faulty.wait(5)
    assert call.code is Code.OK
    assert len(faulty.body) == len(faulty.right)
    right = [message.SerializeToString() for message in generated(faulty.right)]
    (place,) = [place for place, data in enumerate(call.data) if data != right[place]]
    assert place == 2
    with pytest.raises(DecodeError):
        pb.GenerateResponse.FromString(call.data[place])
    assert faulty.serves_on()


def test_a_whole_reply_that_nobody_can_read() -> None:
    faulty = FaultyCall("garble", stream=False)
    (data,) = faulty.wait(5).data
    assert len(data) == len(faulty.right) - PREFIX
    with pytest.raises(DecodeError):
        pb.GenerateResponse.FromString(data)
    assert faulty.call.code is Code.OK
    assert faulty.serves_on()


@PACES
@pytest.mark.parametrize("n", [1, 3])
def test_a_stream_that_ends_well_without_being_complete(flags: tuple[str, ...], n: int) -> None:
    faulty = FaultyCall("no-done", flags=(*flags, "--max-num-seqs", "3"), n=n)
    call = faulty.wait(6)
    assert call.code is Code.OK
    assert kinds(call) == CHUNKS * n
    assert faulty.shown == {"no-done": 1}
    assert faulty.serves_on()


def test_a_whole_reply_is_complete_all_the_same() -> None:
    faulty = FaultyCall("no-done", stream=False)
    faulty.wait(5)
    assert faulty.body == faulty.right
    assert faulty.shown == {}


# --- errors


@PACES
@pytest.mark.parametrize("after", [0, 2, 4])
def test_an_error_in_the_middle_of_a_stream(flags: tuple[str, ...], after: int) -> None:
    faulty = FaultyCall(f"error; after={after}; code=429", flags=flags)
    call = faulty.wait(after + 1.25)
    assert (call.code, call.message) == (Code.RESOURCE_EXHAUSTED, "This error was injected on purpose.")
    assert call.trailers[b"retry-after"] == b"1"
    assert kinds(call) == ["chunk"] * after
    assert faulty.rig.rank.stats.finished["abort"] == (flags is PACED and after < 4)
    assert faulty.shown == {"error": 1}
    assert faulty.serves_on()


def test_an_error_in_place_of_a_whole_reply() -> None:
    faulty = FaultyCall("error; after=0; code=429; retry-after=9", stream=False)
    assert not faulty.call.ended
    call = faulty.wait(5.25)
    assert (call.code, call.trailers[b"retry-after"], call.data) == (Code.RESOURCE_EXHAUSTED, b"9", [])
    assert faulty.rig.rank.stats.finished["length"] == 1
    assert faulty.serves_on()


@KINDS
@pytest.mark.parametrize(
    ("fault", "code", "message"),
    [
        ("error", Code.INTERNAL, "This error was injected on purpose."),
        ("error; code=404", Code.NOT_FOUND, "This error was injected on purpose."),
        ("error; code=418", Code.UNKNOWN, "This error was injected on purpose."),
        ("status; code=504", Code.DEADLINE_EXCEEDED, ""),
        ("status; code=429; retry-after=7", Code.RESOURCE_EXHAUSTED, ""),
    ],
)
def test_errors_at_once(fault: str, code: Code, message: str, stream: bool) -> None:
    faulty = FaultyCall(fault, stream)
    call = faulty.call
    assert (call.ended, call.code, call.message, call.data) == (True, code, message, [])
    assert call.trailers.get(b"retry-after") == (b"7" if "retry-after" in fault else None)
    assert faulty.serves_on()


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (b"400", Code.INVALID_ARGUMENT),
        (b"429", Code.RESOURCE_EXHAUSTED),
        (b"500", Code.INTERNAL),
        (b"599", Code.UNKNOWN),
        (b"200", Code.INVALID_ARGUMENT),
    ],
)
@KINDS
def test_a_status_that_metadata_ask_for(status: bytes, code: Code, stream: bool) -> None:
    rig = RankRig()
    call = generate(RpcClient(rig), {b"x-return-error": status}, stream)
    assert (call.ended, call.code) == (True, code)
    assert call.trailers.get(b"retry-after") == (b"1" if status == b"429" else None)
    assert rig.rank.stats.faults.get("return_error", 0) == (status != b"200")


def test_metadata_that_make_no_sense() -> None:
    call = generate(RpcClient(RankRig()), {b"x-fault": b"explode"})
    assert call.code is Code.INVALID_ARGUMENT
    assert "'explode' is not a kind of fault" in call.message


def test_metadata_may_be_ignored() -> None:
    client = RpcClient(RankRig("--no-fault-headers"))
    metadata = {b"x-fault": b"status", b"x-return-error": b"500"}
    assert kinds(client.finish(generate(client, metadata))) == [*CHUNKS, "complete"]


def test_a_503_has_callers_connect_anew_while_their_other_calls_go_on() -> None:
    client = RpcClient(RankRig(*PACED))
    other = generate(client, {})
    refused = generate(client, {b"x-fault": b"error; code=503"})
    assert refused.code is Code.UNAVAILABLE
    client.read()
    assert [code for _, code in client.h2.goaways] == [0, 0]
    assert not other.ended
    assert kinds(client.finish(other)) == [*CHUNKS, "complete"]
    assert client.h2.client.fate != "open"


# --- chance


@pytest.mark.parametrize("kind", ["rate_limit", "server_error", "model_not_found", "invalid_api_key"])
def test_failures_by_chance(kind: Any) -> None:
    rig = RankRig("--failure-injection-rate", "100", "--failure-types", kind)
    call = generate(RpcClient(rig), {})
    assert call.message == failed(kind, "m").message
    assert rig.rank.stats.faults[kind] == 1


def test_faults_by_chance() -> None:
    rig = RankRig("--faults", "truncate; after=1", "--fault-rate", "100")
    client = RpcClient(rig)
    calls = [generate(client, {}) for _ in range(3)]
    assert [call.answer.reset for call in calls] == [ErrorCodes.INTERNAL_ERROR] * 3
    assert rig.rank.stats.faults["truncate"] == 3


def test_a_fault_that_only_so_many_meet() -> None:
    client = RpcClient(RankRig())
    codes = [generate(client, {b"x-fault": b"error; code=429; times=2; key=k"}).code for _ in range(3)]
    assert codes == [Code.RESOURCE_EXHAUSTED, Code.RESOURCE_EXHAUSTED, Code.OK]


# --- waits


@PACES
@KINDS
@pytest.mark.parametrize("fault", ["stall; after=1", "stall", "slow-headers", "slow-body; after=1"])
def test_a_wait_that_outlasts_the_reply(fault: str, flags: tuple[str, ...], stream: bool) -> None:
    faulty = FaultyCall(f"{fault}; for=20s", stream, flags)
    faulty.wait(15)
    assert not faulty.ended
    assert faulty.rig.rank.engine.idle
    assert faulty.wait(11).code is Code.OK
    assert faulty.body == faulty.right
    assert [ended.lost for ended in faulty.ended] == [False]
    assert faulty.serves_on()


def test_a_message_that_comes_piece_by_piece() -> None:
    faulty = FaultyCall("slow-body; after=1; for=4s")
    assert kinds(faulty.wait(5.5)) == ["chunk"]
    assert len(faulty.body) > len(frame(faulty.call.data[0]))
    assert faulty.wait(2).ended
    assert faulty.body == faulty.right


@KINDS
def test_no_answer_until_the_time_is_up(stream: bool) -> None:
    faulty = FaultyCall("hang; for=30s", stream)
    assert not faulty.wait(29.75).answer.headers
    assert faulty.wait(0.5).answer.reset == ErrorCodes.INTERNAL_ERROR
    assert faulty.serves_on()


WAITS = ["hang", "stall", "stall; after=1", "slow-headers", "slow-body; after=1"]


@KINDS
@pytest.mark.parametrize("fault", WAITS)
@pytest.mark.parametrize("moment", [0.5, 2.5, 9.0])
def test_a_call_that_is_cancelled_during_a_wait(fault: str, moment: float, stream: bool) -> None:
    faulty = FaultyCall(f"{fault}; for=1h", stream)
    faulty.wait(moment)
    faulty.call.cancel()
    assert [ended.lost for ended in faulty.ended] == [True]
    assert faulty.serves_on()
    faulty.rig.site.stop()
    faulty.wait(3)
    assert faulty.rig.clock.getDelayedCalls() == [], "nothing is left that would go on"


@pytest.mark.parametrize("fault", WAITS)
@pytest.mark.parametrize(("seconds", "stream"), [(1, True), (3, True), (8, True), (8, False)])
def test_a_deadline_that_passes_during_a_wait(fault: str, seconds: int, stream: bool) -> None:
    faulty = FaultyCall(f"{fault}; for=1h", stream, timeout=f"{seconds}S")
    faulty.wait(seconds - 0.25)
    assert not faulty.call.ended
    assert faulty.wait(0.25).code is Code.DEADLINE_EXCEEDED
    assert faulty.call.answer.headers[b":status"] == b"200"
    assert [ended.lost for ended in faulty.ended] == [False]
    assert faulty.serves_on()


# --- what is no reply


def test_a_fault_beyond_the_end_does_not_show() -> None:
    for fault in ("reset", "stall", "truncate", "garble", "error", "slow-body"):
        faulty = FaultyCall(f"{fault}; after=5")
        faulty.wait(5)
        assert faulty.body == faulty.right
        assert faulty.shown == {}
        assert faulty.serves_on()


@KINDS
def test_an_error_of_the_method_is_not_taken_for_a_reply(stream: bool) -> None:
    for fault in ("error; after=0; code=404", "no-done", "garble"):
        faulty = FaultyCall(fault, stream, top_p=7)
        assert faulty.call.code is Code.INVALID_ARGUMENT
        assert "top_p" in faulty.call.message
    faulty = FaultyCall("truncate", stream, top_p=7)
    assert (faulty.call.headers[b":status"], faulty.call.answer.reset) == (b"200", ErrorCodes.INTERNAL_ERROR)


@pytest.mark.parametrize(
    "fault", [b"garble", b"truncate", b"error; code=429", b"status; code=404", b"stall; for=5s"]
)
def test_embeddings_fail_as_whole_replies_do(fault: bytes) -> None:
    client = RpcClient(RankRig("--max-model-len", "10"))
    asked = pb.EmbedRequest(tokenized=pb.TokenizedInput(input_ids=[1, 2]))
    right = client.call("Embed", asked, pb.EmbedResponse).answer.body
    call = client.call("Embed", asked, pb.EmbedResponse, metadata={b"x-fault": fault})
    match fault.partition(b";")[0]:
        case b"garble":
            assert (call.code, len(call.answer.body)) == (Code.OK, len(right))
            with pytest.raises(DecodeError):
                assert call.messages
        case b"truncate":
            assert (call.code, call.answer.body) == (Code.INTERNAL, right[: len(right) // 2])
        case b"error":
            assert call.code is Code.RESOURCE_EXHAUSTED
        case b"status":
            assert (call.code, call.message) == (Code.NOT_FOUND, "")
        case b"stall":
            assert not call.answer.headers
            client.wait(5)
            assert call.answer.body == right
    refused = client.call("Embed", asked, pb.EmbedResponse, metadata={b"x-return-error": b"503"})
    assert refused.code is Code.UNAVAILABLE


def test_the_log_tells_what_was_sent() -> None:
    with LoggedRank("--access-log", *PACED) as rig:
        client = RpcClient(rig)
        calls = [
            generate(client, {b"x-fault": fault, b"x-request-id": b"mine"})
            for fault in (b"reset", b"truncate", b"error; after=1", b"status; code=429")
        ]
        for _ in range(20):
            client.wait(0.5)
        assert all(call.ended for call in calls)
        told = sorted(line.partition('HTTP/2" ')[2].partition(" duration")[0] for line in rig.access_lines())
    assert [line.split()[0] for line in told] == ["200", "200", "200", "499"]
    assert [line.split()[1] for line in told[:2]] == ["grpc_status=13", "grpc_status=8"]


def generated(data: bytes) -> list[pb.GenerateResponse]:
    return [pb.GenerateResponse.FromString(event[PREFIX:]) for event in MessageForm(True).events(data)]
