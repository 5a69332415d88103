"""Server reflection: what services there are, and what their messages are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, Final

from google.protobuf.descriptor import FileDescriptor

from llmdsim.rpc.call import end, send
from llmdsim.rpc.calls import Method
from llmdsim.rpc.pb import grpc_reflection_v1_pb2, grpc_reflection_v1alpha_pb2
from llmdsim.rpc.pb.pool import POOL
from llmdsim.web.errors import shown
from llmdsim.wire.grpc import Code
from llmdsim.wire.request import Request

#: The two versions, which differ in their names alone, by the names of their services.
VERSIONS: Final = {
    "grpc.reflection.v1.ServerReflection": grpc_reflection_v1_pb2,
    "grpc.reflection.v1alpha.ServerReflection": grpc_reflection_v1alpha_pb2,
}


class Reflection:
    """The service in one of its versions, with the messages of `pb`; `services` are all there are."""

    def __init__(self, pb: ModuleType, services: Sequence[str]) -> None:
        self._pb: Any = pb
        self._services = sorted(services)

    def methods(self) -> dict[str, Method]:
        """By name."""
        asks = self._pb.ServerReflectionRequest
        return {"ServerReflectionInfo": Method(asks, self.info, streamed=True, endless=True)}

    def info(self, request: Request) -> Callable[[Any], None]:
        """Answer questions as they come, each with one message."""

        def take(asked: Any) -> None:
            if asked is None:
                end(request)
            else:
                send(request, self.answer(asked))

        return take

    def answer(self, asked: Any) -> Any:
        """The answer to one question; one that cannot be answered is told so, and others may follow."""
        pb = self._pb
        found = pb.ServerReflectionResponse(valid_host=asked.host, original_request=asked)
        kind = asked.WhichOneof("message_request")
        try:
            match kind:
                case "list_services":
                    found.list_services_response.service.extend(
                        pb.ServiceResponse(name=name) for name in self._services
                    )
                case "file_by_filename":
                    self._tell(found, POOL.FindFileByName(asked.file_by_filename))
                case "file_containing_symbol":
                    self._tell(found, _file_of(asked.file_containing_symbol))
                case "all_extension_numbers_of_type":
                    # Messages of proto3 have no extensions.
                    name = POOL.FindMessageTypeByName(asked.all_extension_numbers_of_type).full_name
                    found.all_extension_numbers_response.base_type_name = name
                case "file_containing_extension":
                    raise KeyError(
                        f"no extensions of {shown(asked.file_containing_extension.containing_type)}"
                    )
                case _:
                    found.error_response.error_code = Code.INVALID_ARGUMENT
                    found.error_response.error_message = "the request asks for nothing"
        except KeyError as problem:
            found.error_response.error_code = Code.NOT_FOUND
            found.error_response.error_message = str(problem.args[0])
        return found

    def _tell(self, found: Any, file: FileDescriptor) -> None:
        """A file and all that it needs, in an order in which they can be added to a pool."""
        found.file_descriptor_response.file_descriptor_proto.extend(
            each.serialized_pb for each in _with_imports(file, set())
        )


def _file_of(symbol: str) -> FileDescriptor:
    """The file that defines a symbol. Raises KeyError."""
    try:
        return POOL.FindFileContainingSymbol(symbol)
    except KeyError:
        # Of methods the pool knows nothing.
        service, _, method = symbol.rpartition(".")
        found = POOL.FindServiceByName(service)
        if method not in found.methods_by_name:
            raise
        return found.file


def _with_imports(file: FileDescriptor, seen: set[str]) -> Iterator[FileDescriptor]:
    if file.name not in seen:
        seen.add(file.name)
        yield file
        for other in file.dependencies:
            yield from _with_imports(other, seen)
