"""GetTokenizer: the archive in chunks, made once for all, and no more sent than is read."""

from __future__ import annotations

import random
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest

from llmdsim.rpc.pb import common_pb2 as pb
from llmdsim.rpc.tokenizer_files import CHUNK
from llmdsim.tokenization.archive import archive
from llmdsim.wire.grpc import Code
from tests.rpc.client import Call, RpcClient
from tests.rpc.files import FilesRig
from tests.web.rig import RankRig


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    # What cannot be made shorter, so that there are chunks.
    (tmp_path / "tokenizer.json").write_bytes(random.Random(1).randbytes(20 * CHUNK))
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


@pytest.fixture
def rig(folder: Path) -> FilesRig:
    return FilesRig(folder)


def ask(client: RpcClient) -> Call[pb.GetTokenizerChunk]:
    return client.call("GetTokenizer", pb.GetTokenizerRequest(), pb.GetTokenizerChunk)


def read_on(client: RpcClient, call: Call[pb.GetTokenizerChunk]) -> None:
    """Have a client that did not read do so to the end."""
    for _ in range(100):
        if call.ended:
            return
        client.h2.open_window(CHUNK)
        client.h2.open_window(CHUNK, call.stream_id)
        client.wait(0.01)
    raise AssertionError("no end")


def whole(chunks: list[pb.GetTokenizerChunk]) -> bytes:
    data = b"".join(chunk.data for chunk in chunks)
    assert [len(chunk.data) for chunk in chunks[:-1]] == [CHUNK] * (len(chunks) - 1)
    assert 0 < len(chunks[-1].data) <= CHUNK
    assert [chunk.sha256 for chunk in chunks] == [""] * (len(chunks) - 1) + [sha256(data).hexdigest()]
    return data


def test_the_archive_comes_in_chunks_with_its_hash_behind_the_last(rig: FilesRig, folder: Path) -> None:
    client = RpcClient(rig)
    call = ask(client)
    rig.run()
    data = whole(client.finish(call).ok())
    assert data == archive(str(folder))
    with ZipFile(BytesIO(data)) as files:
        assert files.namelist() == ["tokenizer.json", "config.json"]


def test_one_that_fits_a_chunk_is_one(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    rig = FilesRig(tmp_path)
    client = RpcClient(rig)
    call = ask(client)
    rig.run()
    assert len(client.finish(call).ok()) == 1


def test_it_is_made_once_for_all(rig: FilesRig, folder: Path) -> None:
    clients = [RpcClient(rig) for _ in range(3)]
    calls = [ask(client) for client in clients]
    assert len(rig.work) == 1
    rig.run()
    answers = {whole(client.finish(call).ok()) for client, call in zip(clients, calls, strict=True)}
    assert len(answers) == 1
    (folder / "tokenizer.json").unlink()
    assert whole(clients[0].finish(ask(clients[0])).ok()) in answers
    assert not rig.work


def test_whoever_began_it_may_leave(rig: FilesRig) -> None:
    first, second = RpcClient(rig), RpcClient(rig)
    left = ask(first)
    call = ask(second)
    left.cancel()
    rig.run()
    whole(second.finish(call).ok())
    assert not rig.rank.context.turns.busy


def test_a_client_that_does_not_read_is_sent_no_more_than_it_has_room_for(rig: FilesRig) -> None:
    client = RpcClient(rig, acknowledges=False)
    call = ask(client)
    rig.run()
    for _ in range(50):
        client.wait(0.01)
    assert not call.ended
    assert len(call.answer.body) <= 65535
    (connection,) = rig.site.connections
    assert 0 < connection.kept <= 2 * CHUNK  # type: ignore[attr-defined]
    # Another connection is not held up by it.
    other = RpcClient(rig)
    whole(other.finish(ask(other)).ok())
    read_on(client, call)
    whole(call.ok())


def test_a_client_that_reads_nothing_and_leaves_leaves_nothing(rig: FilesRig) -> None:
    client = RpcClient(rig, acknowledges=False)
    call = ask(client)
    rig.run()
    client.wait(0.01)
    assert rig.rank.context.turns.busy
    call.cancel()
    client.wait(0.01)
    assert not rig.rank.context.turns.busy
    (connection,) = rig.site.connections
    assert connection.kept == 0


def test_its_time_may_be_up_in_the_middle(rig: FilesRig) -> None:
    client = RpcClient(rig, acknowledges=False)
    asked = pb.GetTokenizerRequest()
    call = client.call("GetTokenizer", asked, pb.GetTokenizerChunk, timeout="1S")
    rig.run()
    client.wait(1.1)
    read_on(client, call)
    assert call.code is Code.DEADLINE_EXCEEDED
    assert not rig.rank.context.turns.busy


def test_without_files_there_is_nothing_to_give() -> None:
    call = ask(RpcClient(RankRig()))
    assert call.code is Code.FAILED_PRECONDITION
    assert "built-in" in call.message


def test_files_that_are_gone_are_an_error_until_they_are_back(rig: FilesRig, folder: Path) -> None:
    content = (folder / "tokenizer.json").read_bytes()
    for path in folder.iterdir():
        path.unlink()
    client = RpcClient(rig)
    calls = [ask(client) for _ in range(2)]
    rig.run()
    for call in calls:
        client.finish(call)
        assert call.code is Code.INTERNAL
        assert "there are none" in call.message
        assert str(folder) not in call.message
    (folder / "tokenizer.json").write_bytes(content)
    call = ask(client)
    rig.run()
    whole(client.finish(call).ok())


def test_it_is_given_whatever_is_the_matter(rig: FilesRig) -> None:
    context = rig.rank.context
    context.draining = True
    context.suspension.pause("abort", False)
    client = RpcClient(rig)
    call = ask(client)
    rig.run()
    whole(client.finish(call).ok())


def test_the_end_of_a_drain_ends_the_work(rig: FilesRig) -> None:
    client = RpcClient(rig)
    call = ask(client)
    rig.rank.context.turns.give_up()
    client.wait(0.01)
    assert call.code is Code.UNAVAILABLE
    rig.run()
    assert not rig.rank.context.turns.busy
