"""The pool of our messages, apart from the process's own, where other packages define the same names."""

from __future__ import annotations

from typing import Any, Final

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper
from google.protobuf.message_factory import GetMessageClass

POOL: Final = DescriptorPool()


def define(serialized: bytes, namespace: dict[str, Any]) -> FileDescriptor:
    """Add a file, a serialized FileDescriptorProto, and name its messages and enums in `namespace`.

    What protoc generates for Python would add it to the pool of the process, and refuse to load where
    protobuf is older than the protoc was; this needs neither.
    """
    file: FileDescriptor = POOL.AddSerializedFile(serialized)
    for name, message in file.message_types_by_name.items():
        namespace[name] = GetMessageClass(message)
    for name, enum in file.enum_types_by_name.items():
        namespace[name] = EnumTypeWrapper(enum)
        namespace |= {value.name: value.number for value in enum.values}
    return file
