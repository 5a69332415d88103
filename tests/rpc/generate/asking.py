"""Calls of Generate, and what their answers say."""

from __future__ import annotations

from typing import Any, TypeAlias

from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.wire.grpc import Code
from tests.rpc.client import Call, RpcClient
from tests.web.rig import RankRig

IDS = [11, 22, 33, 44, 55]

#: A call of Generate.
Generate: TypeAlias = "Call[pb.GenerateResponse]"


def request(sampling: dict[str, Any] | None = None, **fields: Any) -> pb.GenerateRequest:
    """A request with `IDS` for a prompt, unless `fields` has another."""
    if not {"text", "tokenized"} & fields.keys():
        fields["tokenized"] = {"input_ids": IDS}
    if sampling is not None:
        fields["sampling_params"] = sampling
    return pb.GenerateRequest(**fields)


def begin(client: RpcClient, message: pb.GenerateRequest, **options: Any) -> Generate:
    return client.call("Generate", message, pb.GenerateResponse, **options)


def ask(rig: RankRig, sampling: dict[str, Any] | None = None, **fields: Any) -> Generate:
    """A call that is over, whatever became of it."""
    client = RpcClient(rig)
    return client.finish(begin(client, request(sampling, **fields)))


def whole(rig: RankRig, sampling: dict[str, Any] | None = None, **fields: Any) -> list[pb.GenerateComplete]:
    """The choices of a call that is not streamed, and ends well."""
    messages = ask(rig, sampling, **fields).ok()
    assert all(message.WhichOneof("response") == "complete" for message in messages)
    found = [message.complete for message in messages]
    assert [choice.index for choice in found] == list(range(len(found)))
    return found


def only(rig: RankRig, sampling: dict[str, Any] | None = None, **fields: Any) -> pb.GenerateComplete:
    """The same of one choice."""
    (found,) = whole(rig, sampling, **fields)
    return found


def stream(rig: RankRig, sampling: dict[str, Any] | None = None, **fields: Any) -> list[pb.GenerateResponse]:
    """The messages of a stream that ends well."""
    return ask(rig, sampling, stream=True, **fields).ok()


def chunks(messages: list[pb.GenerateResponse], index: int = 0) -> list[pb.GenerateStreamChunk]:
    """Those of one choice."""
    found = [message.chunk for message in messages if message.WhichOneof("response") == "chunk"]
    return [chunk for chunk in found if chunk.index == index]


def completes(messages: list[pb.GenerateResponse]) -> list[pb.GenerateComplete]:
    return [message.complete for message in messages if message.WhichOneof("response") == "complete"]


def joined(messages: list[pb.GenerateResponse], index: int = 0) -> list[int]:
    """The ids of one choice of a stream."""
    return [token for chunk in chunks(messages, index) for token in chunk.token_ids]


def refusal(rig: RankRig, sampling: dict[str, Any] | None = None, **fields: Any) -> str:
    """The message of a call that is refused for what it asks."""
    call = ask(rig, sampling, **fields)
    assert call.code is Code.INVALID_ARGUMENT, (call.code, call.message, call.messages)
    assert not call.messages
    assert call.message
    return call.message
