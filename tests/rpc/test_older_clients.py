"""Clients made for llm-d-inference-sim, or an older vLLM, whose messages have fewer fields."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from llmdsim.rpc.pb.pool import POOL
from tests.rpc.client import RpcClient
from tests.rpc.generate.asking import IDS
from tests.web.rig import RankRig

PACKAGE = "vllm.grpc.engine"

#: The fields of each message: number, name, type; `?` has presence, `*` is repeated, `|` is of a oneof.
FIELDS = {
    "ChoiceConstraint": "1 choices string*",
    "SamplingParams": """
        1 temperature float?; 2 top_p float; 3 top_k uint32; 4 min_p float; 5 frequency_penalty float
        6 presence_penalty float; 7 repetition_penalty float; 8 max_tokens uint32?; 9 min_tokens uint32
        10 stop string*; 11 stop_token_ids uint32*; 12 skip_special_tokens bool
        13 spaces_between_special_tokens bool; 14 ignore_eos bool; 15 n uint32
        16 json_schema string|constraint; 17 regex string|constraint; 18 grammar string|constraint
        19 structural_tag string|constraint; 20 json_object bool|constraint
        21 choice ChoiceConstraint|constraint; 22 logprobs int32?; 23 prompt_logprobs int32?; 24 seed int32?
        25 include_stop_str_in_output bool; 27 truncate_prompt_tokens int32?""",
    "TokenizedInput": "1 original_text string; 2 input_ids uint32*",
    "GenerateRequest": """
        1 request_id string; 2 tokenized TokenizedInput|input; 3 text string|input
        4 sampling_params SamplingParams; 5 stream bool""",
    "GenerateStreamChunk": """
        1 token_ids uint32*; 2 prompt_tokens uint32; 3 completion_tokens uint32; 4 cached_tokens uint32""",
    "GenerateComplete": """
        1 output_ids uint32*; 2 finish_reason string; 3 prompt_tokens uint32; 4 completion_tokens uint32
        5 cached_tokens uint32""",
    "GenerateResponse": "1 chunk GenerateStreamChunk|response; 2 complete GenerateComplete|response",
    "EmbedRequest": "1 request_id string; 2 tokenized TokenizedInput",
    "EmbedResponse": "1 embedding float*; 2 prompt_tokens uint32; 3 embedding_dim uint32",
    "HealthCheckRequest": "",
    "HealthCheckResponse": "1 healthy bool; 2 message string",
    "AbortRequest": "1 request_ids string*",
    "AbortResponse": "",
    "GetModelInfoRequest": "",
    "GetModelInfoResponse": """
        1 model_path string; 2 is_generation bool; 3 max_context_length uint32; 4 vocab_size uint32
        5 supports_vision bool""",
    "GetServerInfoRequest": "",
    "GetServerInfoResponse": """
        1 active_requests uint32; 2 is_paused bool; 3 last_receive_timestamp double; 4 uptime_seconds double
        5 server_type string""",
}


def described(name: str) -> DescriptorProto:
    """A message with the older fields alone."""
    message = DescriptorProto(name=name)
    synthetic = []
    for line in FIELDS[name].replace("\n", ";").split(";"):
        if not line.strip():
            continue
        number, field_name, told = line.split()
        kind, _, oneof = told.partition("|")
        field = message.field.add(number=int(number), name=field_name)
        field.label = (
            FieldDescriptorProto.LABEL_REPEATED if "*" in kind else FieldDescriptorProto.LABEL_OPTIONAL
        )
        bare = kind.rstrip("*?")
        if bare in FIELDS:
            field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{PACKAGE}.{bare}"
        else:
            field.type = FieldDescriptorProto.Type.Value(f"TYPE_{bare.upper()}")
        if oneof:
            if not any(each.name == oneof for each in message.oneof_decl):
                message.oneof_decl.add(name=oneof)
            field.oneof_index = [each.name for each in message.oneof_decl].index(oneof)
        elif "?" in kind:
            synthetic.append(field)
    for field in synthetic:
        # As protoc has it: behind the others.
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")
    return message


def messages() -> dict[str, Any]:
    pool = DescriptorPool()
    file = FileDescriptorProto(name="older.proto", package=PACKAGE, syntax="proto3")
    file.message_type.extend(map(described, FIELDS))
    pool.Add(file)  # type: ignore[no-untyped-call]
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in FIELDS}


OLDER = messages()


@pytest.mark.parametrize("name", FIELDS)
def test_fields_are_where_they_were(name: str) -> None:
    ours = DescriptorProto()
    POOL.FindMessageTypeByName(f"{PACKAGE}.{name}").CopyToProto(ours)
    fields = {field.number: field for field in ours.field}
    theirs = described(name)
    for field in theirs.field:
        mine = fields[field.number]
        assert (mine.name, mine.type, mine.type_name) == (field.name, field.type, field.type_name)
        assert (mine.label, mine.proto3_optional) == (field.label, field.proto3_optional)
        assert mine.HasField("oneof_index") == field.HasField("oneof_index")
        if mine.HasField("oneof_index"):
            choice = ours.oneof_decl[mine.oneof_index].name
            assert choice == theirs.oneof_decl[field.oneof_index].name


def ask(rig: RankRig, method: str, answer: str = "", **fields: Any) -> list[Any]:
    """What an older client makes of the messages of a call that ends well."""
    client = RpcClient(rig)
    asked: Message = OLDER[f"{method}Request"](**fields)
    call = client.finish(client.call(method, asked, OLDER[answer or f"{method}Response"]))
    return list(call.ok())


def test_an_older_client_is_told_of_model_and_server() -> None:
    rig = RankRig()
    (health,) = ask(rig, "HealthCheck")
    assert (health.healthy, health.message) == (True, "Health")
    (model,) = ask(rig, "GetModelInfo")
    assert (model.model_path, model.is_generation, model.max_context_length) == ("m", True, 1024)
    (server,) = ask(rig, "GetServerInfo")
    assert (server.active_requests, server.is_paused, server.server_type) == (0, False, "vllm-grpc")
    ask(rig, "Abort", request_ids=["none"])
    (embedded,) = ask(rig, "Embed", tokenized={"input_ids": IDS})
    assert (embedded.prompt_tokens, embedded.embedding_dim) == (len(IDS), len(embedded.embedding))


def test_an_older_client_reads_what_is_generated() -> None:
    sampling = {"max_tokens": 4, "ignore_eos": True, "seed": 3, "logprobs": 2, "prompt_logprobs": 1}
    fields = {"request_id": "a", "tokenized": {"input_ids": IDS}, "sampling_params": sampling}
    rig = RankRig()
    (whole,) = [message.complete for message in ask(rig, "Generate", **fields)]
    assert (whole.finish_reason, whole.prompt_tokens, whole.completion_tokens) == ("length", len(IDS), 4)
    *chunks, last = ask(rig, "Generate", stream=True, **fields)
    assert [token for message in chunks for token in message.chunk.token_ids] == whole.output_ids
    assert {message.chunk.prompt_tokens for message in chunks} == {len(IDS)}
    assert last.complete.output_ids == whole.output_ids[3:]
