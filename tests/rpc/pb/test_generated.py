"""The modules of messages: they are what their sources say, and get along with other packages' modules."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.rpc.pb.generate import MODULES, generated


def test_the_modules_are_what_their_sources_make() -> None:
    present = {path.name: path.read_text(encoding="utf-8") for path in MODULES.glob("*_pb2.py*")}
    assert present == generated(), "run: make protos"


#: Defines a message that ours define too, differently, in the pool of the process, as generated code does.
OTHERS = """
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass
file = FileDescriptorProto(name="{file}", package="vllm.grpc.engine", syntax="proto3")
file.message_type.add(name="AbortRequest").field.add(name="id", number=1, type=9, label=1)
added = Default().AddSerializedFile(file.SerializeToString())
theirs = GetMessageClass(added.message_types_by_name["AbortRequest"])
import grpc_health.v1.health_pb2, grpc_reflection.v1alpha.reflection_pb2
"""
OURS = """
from llmdsim.rpc.pb import grpc_health_v1_pb2, grpc_reflection_v1alpha_pb2, grpc_reflection_v1_pb2
from llmdsim.rpc.pb import vllm_engine_pb2
"""
CHECK = """
assert theirs(id="a").SerializeToString() == b"\\n\\x01a"
ours = vllm_engine_pb2.AbortRequest(request_ids=["a", "b"])
assert ours.SerializeToString() == b"\\n\\x01a\\n\\x01b"
health = grpc_health_v1_pb2.HealthCheckResponse(status=grpc_health_v1_pb2.HealthCheckResponse.SERVING)
health = grpc_health.v1.health_pb2.HealthCheckResponse.FromString(health.SerializeToString())
assert health.status == grpc_health.v1.health_pb2.HealthCheckResponse.SERVING
"""


@pytest.mark.parametrize("implementation", ["upb", "python"])
@pytest.mark.parametrize("file", ["vllm_engine.proto", "elsewhere.proto"])
@pytest.mark.parametrize("ours_first", [True, False])
def test_another_package_may_define_the_same_names(file: str, ours_first: bool, implementation: str) -> None:
    others = OTHERS.format(file=file)
    code = (OURS + others if ours_first else others + OURS) + CHECK
    environ = {"PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation}
    subprocess.run([sys.executable, "-c", code], env=environ, check=True)
