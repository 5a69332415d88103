"""What `make protos` writes: modules of messages, from the files in llmdsim/rpc/proto.

protoc makes descriptors and stubs; why its Python is not used, llmdsim/rpc/pb/pool.py tells.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

RPC = Path(__file__).parents[3] / "llmdsim" / "rpc"
SOURCES = RPC / "proto"
MODULES = RPC / "pb"


def generated() -> dict[str, str]:
    """Text by name of file."""
    files = [path.relative_to(SOURCES).as_posix() for path in sorted(SOURCES.rglob("*.proto"))]
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder)
        descriptors = made / "descriptors"
        subprocess.run(
            [
                *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={SOURCES}"),
                *(f"--descriptor_set_out={descriptors}", f"--pyi_out={made}", *files),
            ],
            check=True,
        )
        texts = {}
        for file in FileDescriptorSet.FromString(descriptors.read_bytes()).file:
            name = module_of(file.name)
            texts[f"{name}.py"] = module(file)
            texts[f"{name}.pyi"] = stub(file, (made / file.name.replace(".proto", "_pb2.pyi")).read_text())
    return texts


def module_of(file: str) -> str:
    """`common.proto` is common_pb2, and `grpc/health/v1/health.proto` grpc_health_v1_pb2."""
    path = Path(file)
    return "_".join(path.parent.parts or (path.stem,)) + "_pb2"


def module(file: FileDescriptorProto) -> str:
    imports = "".join(f"import llmdsim.rpc.pb.{module_of(name)}\n" for name in file.dependency)
    return (
        f"{remark(file)}{imports}from llmdsim.rpc.pb.pool import define\n"
        f"\nDESCRIPTOR = define({file.SerializeToString(deterministic=True)!r}, globals())\n"
    )


def stub(file: FileDescriptorProto, text: str) -> str:
    for name in file.dependency:
        text = text.replace(f"import {module_of(name)} ", f"from llmdsim.rpc.pb import {module_of(name)} ")
    return remark(file) + text


def remark(file: FileDescriptorProto) -> str:
    return f'# Made by "make protos" from {file.name}.\n'


if __name__ == "__main__":
    texts = generated()
    for path in MODULES.glob("*_pb2.py*"):
        path.unlink()
    for name, text in texts.items():
        (MODULES / name).write_text(text, encoding="utf-8")
