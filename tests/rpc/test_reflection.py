"""Server reflection, in both versions."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from llmdsim.rpc.reflection import VERSIONS
from llmdsim.rpc.services import ENGINE, HEALTH
from llmdsim.wire.grpc import Code, frame
from tests.rpc.client import Call, RpcClient
from tests.web.rig import RankRig


class Asking:
    def __init__(self, version: str, acknowledges: bool = True, window: int = 65535) -> None:
        self.pb: Any = VERSIONS[version]
        self.rig = RankRig()
        client = RpcClient(self.rig, acknowledges, window)
        self.path = f"/{version}/ServerReflectionInfo"
        self.call: Call[Any] = client.call(self.path, None, self.pb.ServerReflectionResponse, end=False)

    def ask(self, **question: Any) -> Any:
        before = len(self.call.messages)
        self.call.send(self.pb.ServerReflectionRequest(host="here", **question))
        answer = self.call.messages[before]
        assert answer.valid_host == answer.original_request.host == "here"
        return answer


@pytest.fixture(params=list(VERSIONS))
def asking(request: pytest.FixtureRequest) -> Asking:
    return Asking(request.param)


def test_all_services_are_listed(asking: Asking) -> None:
    names = {each.name for each in asking.ask(list_services="*").list_services_response.service}
    assert names == {ENGINE, HEALTH, *VERSIONS}


def test_files_are_found_by_what_is_in_them_with_all_they_need(asking: Asking) -> None:
    for symbol in (
        ENGINE,
        f"{ENGINE}.Generate",
        "vllm.grpc.engine.GenerateRequest",
        "smg.grpc.common.KvEventBatch",
        HEALTH,
    ):
        answer = asking.ask(file_containing_symbol=symbol)
        pool = DescriptorPool()
        for data in reversed(answer.file_descriptor_response.file_descriptor_proto):
            pool.AddSerializedFile(data)
        assert pool.FindFileContainingSymbol(symbol.removesuffix(".Generate"))


def test_a_file_is_found_by_its_name(asking: Asking) -> None:
    answer = asking.ask(file_by_filename="vllm_engine.proto")
    first = FileDescriptorProto.FromString(answer.file_descriptor_response.file_descriptor_proto[0])
    assert (first.name, first.package) == ("vllm_engine.proto", "vllm.grpc.engine")


def test_messages_have_no_extensions(asking: Asking) -> None:
    name = "vllm.grpc.engine.GenerateRequest"
    found = asking.ask(all_extension_numbers_of_type=name).all_extension_numbers_response
    assert (found.base_type_name, list(found.extension_number)) == (name, [])


def test_what_is_not_there_is_told_and_the_call_goes_on(asking: Asking) -> None:
    extension = asking.pb.ExtensionRequest(
        containing_type="vllm.grpc.engine.GenerateRequest", extension_number=1
    )
    for question, code in (
        ({"file_by_filename": "none.proto"}, Code.NOT_FOUND),
        ({"file_containing_symbol": "none.such"}, Code.NOT_FOUND),
        ({"file_containing_symbol": f"{ENGINE}.None"}, Code.NOT_FOUND),
        ({"all_extension_numbers_of_type": "none.such"}, Code.NOT_FOUND),
        ({"file_containing_extension": extension}, Code.NOT_FOUND),
        ({}, Code.INVALID_ARGUMENT),
    ):
        assert asking.ask(**question).error_response.error_code == code
    asking.call.close()
    asking.call.ok()


def test_questions_are_bounded(asking: Asking) -> None:
    assert asking.ask(file_by_filename="x" * (1 << 16)).error_response.error_code == Code.NOT_FOUND
    asking.call.send(asking.pb.ServerReflectionRequest(file_by_filename="x" * (1 << 17)))
    assert asking.call.code is Code.RESOURCE_EXHAUSTED


def test_it_does_not_hold_up_the_end(asking: Asking) -> None:
    asking.ask(list_services="")
    asking.rig.rank.calls.end_endless()
    asking.call.client.wait()
    assert asking.call.code is Code.UNAVAILABLE


QUESTION = {"file_containing_symbol": ENGINE}


def test_questions_wait_for_who_asks_them_to_read_the_answers() -> None:
    asking = Asking("grpc.reflection.v1.ServerReflection", acknowledges=False, window=10)
    asked = asking.pb.ServerReflectionRequest(host="x" * 10_000, list_services="")
    data = frame(asked.SerializeToString()) * 200
    client, stream = asking.call.client, asking.call.stream_id
    kept, sent = [], 0
    while room := client.h2.h2.local_flow_control_window(stream):
        piece = data[sent : sent + min(room, 5000)]
        client.h2.h2.send_data(stream, piece)
        client.read()
        kept.append(client.h2.client.protocol.kept)
        sent += len(piece)
    assert max(kept) < 30_000
    client.h2.acknowledges = True
    client.h2.open_window(1 << 20, stream)
    client.h2.send(stream, data[sent:], end=True)
    client.read()
    assert len(asking.call.ok()) == 200


def test_many_questions_at_once_are_answered_in_their_order() -> None:
    asking = Asking("grpc.reflection.v1.ServerReflection", window=1 << 30)
    client = asking.call.client
    client.h2.open_window(1 << 30)
    asked = [
        asking.pb.ServerReflectionRequest(host=str(number), **(QUESTION if number % 2 else {}))
        for number in range(200)
    ]
    data = b"".join(frame(each.SerializeToString()) for each in asked)
    client.h2.send(asking.call.stream_id, data, end=True)
    client.read()
    assert [answer.valid_host for answer in asking.call.ok()] == [each.host for each in asked]


def test_windows_are_given_back_whatever_becomes_of_a_call() -> None:
    """Or the connection would take nothing any more."""
    asking = Asking("grpc.reflection.v1.ServerReflection", acknowledges=False, window=10)
    client, first = asking.call.client, asking.call
    data = frame(asking.pb.ServerReflectionRequest(**QUESTION).SerializeToString()) * 20_000
    for number in range(40):
        call = asking.call if number == 0 else client.call(asking.path, None, first.answers, end=False)
        client.h2.send(call.stream_id, data, end=False)
        call.cancel()
    assert client.h2.h2.outbound_flow_control_window > len(data)
