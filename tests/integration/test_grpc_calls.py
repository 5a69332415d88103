"""The calls of the engine service that do not generate, by grpcio's clients, sync and aio."""

import asyncio
import json
import threading
import time
from array import array
from collections.abc import Iterator
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import grpc
import grpc.aio
import pytest
from google.protobuf.message import Message

from llmdsim.rpc.pb import common_pb2 as common
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from tests.integration.daemon import Daemon, Pool
from tests.tokenization.trained import byte_level, write

pytestmark = pytest.mark.integration

SERVICE = "/vllm.grpc.engine.VllmEngine/"
SECONDS = 20.0
#: Of each unary call, what asks and what answers.
UNARY: dict[str, tuple[Any, Any]] = {
    "Embed": (pb.EmbedRequest, pb.EmbedResponse),
    "HealthCheck": (pb.HealthCheckRequest, pb.HealthCheckResponse),
    "Abort": (pb.AbortRequest, pb.AbortResponse),
    "GetModelInfo": (pb.GetModelInfoRequest, pb.GetModelInfoResponse),
    "GetServerInfo": (pb.GetServerInfoRequest, pb.GetServerInfoResponse),
    "GetLoads": (pb.GetLoadsRequest, pb.GetLoadsResponse),
    "FlushCache": (common.FlushCacheRequest, common.FlushCacheResponse),
    "StartProfile": (common.StartProfileRequest, common.ProfileResponse),
    "StopProfile": (common.StopProfileRequest, common.ProfileResponse),
}
EMBED = pb.EmbedRequest(tokenized=pb.TokenizedInput(input_ids=[5, 6, 7]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write(tmp_path_factory.mktemp("models") / "small", byte_level())
    (folder / "config.json").write_text('{"model_type": "llama", "eos_token_id": 1}')
    # So that there is more than one chunk.
    (folder / "vocab.json").write_bytes(sha256(b"").digest() * 5000 + bytes(range(256)) * 1000)
    (folder / "extra.model").write_bytes(b"".join(sha256(b"%d" % i).digest() for i in range(8000)))
    return folder


@pytest.fixture
def daemon(daemon_with: Pool, folder: Path) -> Daemon:
    return daemon_with(
        *("--tokenizer", str(folder), "--enable-kvcache", "--inter-token-latency", "50ms"),
        *("--max-model-len", "4096", "--max-num-seqs", "4"),
    )


@pytest.fixture
def channel(daemon: Daemon) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{daemon.port}") as channel:
        yield channel


def call(channel: grpc.Channel, name: str, message: Message | None = None, **more: Any) -> Any:
    asks, answers = UNARY[name]
    method = channel.unary_unary(
        SERVICE + name, request_serializer=asks.SerializeToString, response_deserializer=answers.FromString
    )
    return method(asks() if message is None else message, timeout=SECONDS, **more)


def refused(channel: grpc.Channel, name: str, message: Message) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as failure:
        call(channel, name, message)
    error: Any = failure.value
    return error.code(), error.details()


def tokenizer(channel: grpc.Channel) -> list[common.GetTokenizerChunk]:
    method = channel.unary_stream(
        SERVICE + "GetTokenizer",
        request_serializer=common.GetTokenizerRequest.SerializeToString,
        response_deserializer=common.GetTokenizerChunk.FromString,
    )
    return list(method(common.GetTokenizerRequest(), timeout=SECONDS))


class Completion(threading.Thread):
    """A long completion over HTTP, by the id that it is given."""

    def __init__(self, daemon: Daemon, name: str) -> None:
        super().__init__()
        self._daemon = daemon
        self._body = {
            **{"model": "m", "prompt": "The ferry", "max_tokens": 2000, "ignore_eos": True},
            "request_id": name,
        }
        self.reply: Any = None
        self.start()

    def run(self) -> None:
        self.reply = self._daemon.client.post("/v1/completions", self._body)


def until_running(channel: grpc.Channel, number: int) -> pb.SchedulerLoad:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        (load,) = call(channel, "GetLoads").loads
        if load.num_running_reqs == number:
            found: pb.SchedulerLoad = load
            return found
        time.sleep(0.02)
    raise AssertionError(f"never {number} at a time")


def test_every_unary_call_answers(channel: grpc.Channel) -> None:
    for name in UNARY:
        call(channel, name, EMBED if name == "Embed" else None)


def test_embeddings_are_those_of_http(daemon: Daemon, channel: grpc.Channel) -> None:
    answer = call(channel, "Embed", EMBED)
    reply = daemon.client.post("/v1/embeddings", {"model": "m", "input": [5, 6, 7]})
    embedding = json.loads(reply.body)["data"][0]["embedding"]
    assert list(answer.embedding) == array("f", embedding).tolist()
    assert (answer.prompt_tokens, answer.embedding_dim) == (3, 384)


def test_what_is_refused_says_why(channel: grpc.Channel) -> None:
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    code, details = refused(channel, "Embed", pb.EmbedRequest())
    assert (code, "tokenized is missing" in details) == (invalid, True)
    too_long = pb.EmbedRequest(tokenized=pb.TokenizedInput(input_ids=[1] * 4097))
    code, details = refused(channel, "Embed", too_long)
    assert (code, "4097" in details) == (invalid, True)
    assert refused(channel, "FlushCache", common.FlushCacheRequest(timeout_s=-1))[0] is invalid
    assert refused(channel, "StartProfile", common.StartProfileRequest(num_steps=1))[0] is invalid


def test_what_is_told_of_model_and_server(channel: grpc.Channel, folder: Path) -> None:
    model = call(channel, "GetModelInfo")
    assert (model.model_path, model.tokenizer_path) == ("m", str(folder))
    assert (model.model_type, list(model.eos_token_ids)) == ("llama", [1])
    assert (model.max_context_length, model.is_generation) == (4096, True)
    server = call(channel, "GetServerInfo")
    assert (server.server_type, server.max_num_seqs, server.block_size) == ("vllm-grpc", 4, 16)
    assert 0 < server.uptime_seconds < 3600
    again = call(channel, "GetServerInfo")
    assert again.uptime_seconds > server.uptime_seconds


def test_an_abort_ends_what_runs_over_http(daemon: Daemon, channel: grpc.Channel) -> None:
    threads = [Completion(daemon, name) for name in ("grpc-a", "grpc-b")]
    until_running(channel, 2)
    before = time.time()
    call(channel, "Abort", pb.AbortRequest(request_ids=["cmpl-grpc-a", "cmpl-grpc-b", "cmpl-none"]))
    for thread in threads:
        thread.join(SECONDS)
        (choice,) = json.loads(thread.reply.body)["choices"]
        assert choice["finish_reason"] == "abort"
    until_running(channel, 0)
    assert before - SECONDS < call(channel, "GetServerInfo").last_receive_timestamp < before


def test_loads_follow_what_runs_and_the_cache_is_busy_meanwhile(
    daemon: Daemon, channel: grpc.Channel
) -> None:
    thread = Completion(daemon, "grpc-c")
    until_running(channel, 1)
    time.sleep(2.5)
    (load,) = call(channel, "GetLoads").loads
    # A token every 50 ms; a busy machine may be late.
    assert 5 < load.gen_throughput < 25
    assert load.num_used_tokens >= 16
    assert load.max_total_num_tokens == 1024 * 16
    assert not call(channel, "FlushCache").success
    code, _ = refused(channel, "FlushCache", common.FlushCacheRequest(timeout_s=0.3))
    assert code is grpc.StatusCode.DEADLINE_EXCEEDED
    call(channel, "Abort", pb.AbortRequest(request_ids=["cmpl-grpc-c"]))
    thread.join(SECONDS)
    assert call(channel, "FlushCache", common.FlushCacheRequest(timeout_s=5)).success


def test_one_session_of_the_profiler(channel: grpc.Channel) -> None:
    assert call(channel, "StopProfile").success
    assert call(channel, "StartProfile").success
    code, details = refused(channel, "StartProfile", common.StartProfileRequest())
    assert (code, "runs already" in details) == (grpc.StatusCode.INTERNAL, True)
    assert call(channel, "StopProfile").success


def test_the_tokenizer_is_given_whole(channel: grpc.Channel, folder: Path) -> None:
    chunks = tokenizer(channel)
    data = b"".join(chunk.data for chunk in chunks)
    assert len(chunks) > 2
    assert [chunk.sha256 for chunk in chunks] == [""] * (len(chunks) - 1) + [sha256(data).hexdigest()]
    with ZipFile(BytesIO(data)) as files:
        assert files.testzip() is None
        assert files.read("tokenizer.json") == (folder / "tokenizer.json").read_bytes()


def test_many_at_a_time_by_aio(daemon: Daemon, channel: grpc.Channel) -> None:
    expected = b"".join(chunk.data for chunk in tokenizer(channel))

    async def archive(channel: grpc.aio.Channel) -> bytes:
        method = channel.unary_stream(
            SERVICE + "GetTokenizer",
            request_serializer=common.GetTokenizerRequest.SerializeToString,
            response_deserializer=common.GetTokenizerChunk.FromString,
        )
        data = b""
        async for chunk in method(common.GetTokenizerRequest(), timeout=SECONDS):
            data += chunk.data
        return data

    async def unary(channel: grpc.aio.Channel, name: str) -> Any:
        asks, answers = UNARY[name]
        method = channel.unary_unary(
            SERVICE + name,
            request_serializer=asks.SerializeToString,
            response_deserializer=answers.FromString,
        )
        return await method(EMBED if name == "Embed" else asks(), timeout=SECONDS)

    async def all_of_them() -> tuple[list[Any], list[bytes]]:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{daemon.port}") as shared:
            names = [name for name in UNARY if name != "StartProfile"] * 10
            answers = asyncio.gather(*(unary(shared, name) for name in names))
            archives = asyncio.gather(*(archive(shared) for _ in range(8)))
            return await answers, await archives

    answers, archives = asyncio.run(all_of_them())
    assert len(answers) == 80
    assert archives == [expected] * 8


def test_a_client_that_leaves_the_tokenizer_half_read(daemon: Daemon, channel: grpc.Channel) -> None:
    async def leave() -> None:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{daemon.port}") as leaving:
            method = leaving.unary_stream(
                SERVICE + "GetTokenizer",
                request_serializer=common.GetTokenizerRequest.SerializeToString,
                response_deserializer=common.GetTokenizerChunk.FromString,
            )
            calls = [method(common.GetTokenizerRequest()) for _ in range(10)]
            for each in calls:
                await each.read()
                each.cancel()

    asyncio.run(leave())
    assert call(channel, "HealthCheck").healthy


def test_the_builtin_tokenizer_has_no_files(daemon_with: Pool) -> None:
    daemon = daemon_with()
    with grpc.insecure_channel(f"127.0.0.1:{daemon.port}") as channel:
        with pytest.raises(grpc.RpcError) as failure:
            tokenizer(channel)
        error: Any = failure.value
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert call(channel, "HealthCheck").message == "Health"


def test_ranks_with_processes_of_their_own_have_the_files_too(folder: Path) -> None:
    with Daemon("--tokenizer", str(folder), "--data-parallel-mode", "process", ranks=2) as daemon:
        for rank in range(2):
            with grpc.insecure_channel(f"127.0.0.1:{daemon.port + rank}") as channel:
                (load,) = call(channel, "GetLoads").loads
                assert load.dp_rank == rank
                assert call(channel, "GetServerInfo").data_parallel_size == 2
                assert tokenizer(channel)[-1].sha256
