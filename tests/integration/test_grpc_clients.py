"""Every call, status and cancellation as grpcio's clients meet them: sync and aio, in clear and over TLS."""

import asyncio
import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc import StatusCode

from llmdsim.rpc.pb import common_pb2 as common
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from tests.integration.client import eventually
from tests.integration.daemon import Pool
from tests.tokenization.trained import byte_level, write

pytestmark = pytest.mark.integration

SERVICE = pb.DESCRIPTOR.services_by_name["VllmEngine"]
SECONDS = 20.0

IDS = pb.TokenizedInput(input_ids=[5, 6, 7])
PARAMS = pb.SamplingParams(max_tokens=3, ignore_eos=True)
ENDLESS = pb.SamplingParams(max_tokens=4000, ignore_eos=True)

#: Each call with what asks it something that has an answer.
CALLS: dict[str, Message] = {
    "Generate": pb.GenerateRequest(tokenized=IDS, sampling_params=PARAMS, stream=True),
    "Embed": pb.EmbedRequest(tokenized=IDS),
    "HealthCheck": pb.HealthCheckRequest(),
    "FlushCache": common.FlushCacheRequest(),
    "StartProfile": common.StartProfileRequest(),
    "StopProfile": common.StopProfileRequest(),
    "Abort": pb.AbortRequest(request_ids=["nobody"]),
    "GetModelInfo": pb.GetModelInfoRequest(),
    "GetServerInfo": pb.GetServerInfoRequest(),
    "GetLoads": pb.GetLoadsRequest(),
    "GetTokenizer": common.GetTokenizerRequest(),
    "SubscribeKvEvents": common.SubscribeKvEventsRequest(load_records_before_first_batch=True),
}

#: What statuses of HTTP are to gRPC.
STATUSES = {
    400: StatusCode.INVALID_ARGUMENT,
    401: StatusCode.UNAUTHENTICATED,
    403: StatusCode.PERMISSION_DENIED,
    404: StatusCode.NOT_FOUND,
    409: StatusCode.ABORTED,
    429: StatusCode.RESOURCE_EXHAUSTED,
    500: StatusCode.INTERNAL,
    501: StatusCode.UNIMPLEMENTED,
    503: StatusCode.UNAVAILABLE,
    504: StatusCode.DEADLINE_EXCEEDED,
    418: StatusCode.UNKNOWN,
}


@dataclass
class Outcome:
    """How a call went."""

    messages: list[Any]
    code: StatusCode
    details: str


def method(channel: Any, name: str) -> Any:
    described = SERVICE.methods_by_name[name]
    kind = channel.unary_stream if described.server_streaming else channel.unary_unary
    return kind(
        f"/{SERVICE.full_name}/{name}",
        request_serializer=GetMessageClass(described.input_type).SerializeToString,
        response_deserializer=GetMessageClass(described.output_type).FromString,
    )


def streams(name: str) -> bool:
    return bool(SERVICE.methods_by_name[name].server_streaming)


class Caller(ABC):
    """A client at `target`, over TLS if it has `credentials`."""

    def __init__(self, target: str, credentials: grpc.ChannelCredentials | None) -> None:
        self.target = target
        self.credentials = credentials

    def opened(self, module: Any) -> Any:
        if self.credentials is None:
            return module.insecure_channel(self.target)
        return module.secure_channel(self.target, self.credentials)

    @abstractmethod
    def take(self, name: str, asked: Message, most: int = 0, **more: Any) -> Outcome:
        """Make a call; one that streams is cancelled once `most` messages have come."""

    @abstractmethod
    def close(self) -> None: ...


class Sync(Caller):
    def __init__(self, target: str, credentials: grpc.ChannelCredentials | None) -> None:
        super().__init__(target, credentials)
        self._channel = self.opened(grpc)

    def take(self, name: str, asked: Message, most: int = 0, **more: Any) -> Outcome:
        multi = method(self._channel, name)
        call = (multi if streams(name) else multi.future)(asked, **{"timeout": SECONDS, **more})
        messages = []
        try:
            for message in call if streams(name) else [call.result()]:
                messages.append(message)
                if len(messages) == most:
                    call.cancel()
        except grpc.RpcError:
            pass
        return Outcome(messages, call.code(), call.details())

    def close(self) -> None:
        self._channel.close()


class Aio(Caller):
    def __init__(self, target: str, credentials: grpc.ChannelCredentials | None) -> None:
        super().__init__(target, credentials)
        self._runner = asyncio.Runner()
        self._channel = self._runner.run(self._open())

    async def _open(self) -> Any:
        return self.opened(grpc.aio)

    def take(self, name: str, asked: Message, most: int = 0, **more: Any) -> Outcome:
        return self._runner.run(self._take(name, asked, most, {"timeout": SECONDS, **more}))

    async def _take(self, name: str, asked: Message, most: int, more: dict[str, Any]) -> Outcome:
        call = method(self._channel, name)(asked, **more)
        messages = []
        try:
            if not streams(name):
                messages.append(await call)
            else:
                async for message in call:
                    messages.append(message)
                    if len(messages) == most:
                        call.cancel()
        except (grpc.aio.AioRpcError, asyncio.CancelledError):
            pass
        return Outcome(messages, await call.code(), await call.details())

    def close(self) -> None:
        self._runner.run(self._channel.close())
        self._runner.close()


@pytest.fixture(scope="module", params=["clear", "tls"])
def served(
    request: pytest.FixtureRequest, daemon_with: Pool, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, grpc.ChannelCredentials | None]:
    """Where a daemon is, and whom to trust there."""
    secure = request.param == "tls"
    daemon = daemon_with(
        *("--tokenizer", str(write(tmp_path_factory.mktemp("models") / "small", byte_level()))),
        *("--enable-kvcache", "--zmq-endpoint=", "--inter-token-latency", "20ms", "--max-model-len", "8192"),
        *(["--self-signed-certs"] if secure else []),
    )
    if not secure:
        return f"localhost:{daemon.port}", None
    pem = ssl.get_server_certificate(("127.0.0.1", daemon.port))
    return f"localhost:{daemon.port}", grpc.ssl_channel_credentials(pem.encode())


@pytest.fixture(params=[Sync, Aio])
def caller(
    request: pytest.FixtureRequest, served: tuple[str, grpc.ChannelCredentials | None]
) -> Iterator[Caller]:
    caller: Caller = request.param(*served)
    yield caller
    caller.close()


def test_every_call_is_answered(caller: Caller) -> None:
    assert set(CALLS) == set(SERVICE.methods_by_name)
    for name, asked in CALLS.items():
        # Of events there is no end.
        most = 1 if name == "SubscribeKvEvents" else 0
        outcome = caller.take(name, asked, most)
        assert outcome.code is (StatusCode.CANCELLED if most else StatusCode.OK), (name, outcome)
        assert outcome.messages, name
        if name == "Generate":
            assert [message.WhichOneof("response") for message in outcome.messages] == [
                *(["chunk"] * 3),
                "complete",
            ]


@pytest.mark.parametrize("stream", [True, False])
def test_every_status_is_told_with_a_clean_message(caller: Caller, stream: bool) -> None:
    for status, code in STATUSES.items():
        asked = pb.GenerateRequest(text="100% %s", stream=stream, sampling_params=PARAMS)
        outcome = caller.take("Generate", asked, metadata=[("x-return-error", str(status))])
        assert outcome == Outcome([], code, f"Status {status} was asked for with the header X-Return-Error.")
    refused = caller.take("Generate", pb.GenerateRequest(tokenized=pb.TokenizedInput(), stream=stream))
    assert refused == Outcome([], StatusCode.INVALID_ARGUMENT, "The prompt cannot be empty.")


@pytest.mark.parametrize("by", ["cancel", "deadline"])
def test_who_cancels_and_whose_time_is_over_frees_the_slot(caller: Caller, by: str) -> None:
    def running() -> int:
        loads: pb.GetLoadsResponse = caller.take("GetLoads", pb.GetLoadsRequest()).messages[0]
        return loads.loads[0].num_running_reqs

    asked = pb.GenerateRequest(text="one", stream=True, sampling_params=ENDLESS)
    if by == "cancel":
        outcome = caller.take("Generate", asked, most=2)
        assert outcome.code is StatusCode.CANCELLED
    else:
        outcome = caller.take("Generate", asked, timeout=0.5)
        assert outcome.code is StatusCode.DEADLINE_EXCEEDED
    assert outcome.messages
    eventually(lambda: running() == 0, patience=2)
