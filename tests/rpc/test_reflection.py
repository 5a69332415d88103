"""Server reflection, in both versions."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool

from llmdsim.rpc.reflection import VERSIONS
from llmdsim.rpc.services import ENGINE, HEALTH
from llmdsim.wire.grpc import Code
from tests.rpc.client import Call, RpcClient
from tests.web.rig import RankRig


class Asking:
    def __init__(self, version: str) -> None:
        self.pb: Any = VERSIONS[version]
        self.rig = RankRig()
        client = RpcClient(self.rig)
        path = f"/{version}/ServerReflectionInfo"
        self.call: Call[Any] = client.call(path, None, self.pb.ServerReflectionResponse, end=False)

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


def test_it_does_not_hold_up_the_end(asking: Asking) -> None:
    asking.ask(list_services="")
    asking.rig.rank.calls.end_endless()
    asking.call.client.wait()
    assert asking.call.code is Code.UNAVAILABLE
