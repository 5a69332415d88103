"""GetModelInfo: each field, as configured and as the model's files have it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from tests.rpc.client import RpcClient
from tests.rpc.files import FilesRig
from tests.web.rig import RankRig


def info(rig: RankRig) -> pb.GetModelInfoResponse:
    client = RpcClient(rig)
    call = client.call("GetModelInfo", pb.GetModelInfoRequest(), pb.GetModelInfoResponse)
    if isinstance(rig, FilesRig):
        rig.run()
        client.read()
    (found,) = call.ok()
    return found


def test_a_model_without_files() -> None:
    rig = RankRig("--served-model-name", "first", "second", "--max-model-len", "4096")
    assert info(rig) == pb.GetModelInfoResponse(
        model_path="m",
        is_generation=True,
        max_context_length=4096,
        max_req_input_len=4096,
        vocab_size=2**32 - 1,  # the built-in tokenizer's ids are of 32 bits
        served_model_name="first",
        tokenizer_path="m",
    )


def test_the_tokenizer_may_have_a_name_of_its_own() -> None:
    assert info(RankRig("--tokenizer", "org/other", "--force-dummy-tokenizer")).tokenizer_path == "org/other"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    model = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "eos_token_id": [2, 3],
        "bos_token_id": 1,
        "pad_token_id": 4,
    }
    (tmp_path / "config.json").write_text(json.dumps(model))
    (tmp_path / "generation_config.json").write_text('{"top_p": 0.9, "temperature": 0.6, "do_sample": true}')
    return tmp_path


def test_what_the_files_say(folder: Path) -> None:
    found = info(FilesRig(folder))
    assert (found.model_type, list(found.architectures)) == ("llama", ["LlamaForCausalLM"])
    assert (list(found.eos_token_ids), found.bos_token_id, found.pad_token_id) == ([2, 3], 1, 4)
    assert found.default_sampling_params_json == '{"temperature":0.6,"top_p":0.9}'
    assert 0 < found.vocab_size < 1000


def test_they_are_read_once_and_in_a_thread(folder: Path) -> None:
    rig = FilesRig(folder)
    client = RpcClient(rig)
    call = client.call("GetModelInfo", pb.GetModelInfoRequest(), pb.GetModelInfoResponse)
    assert not call.ended
    rig.run()
    client.read()
    (first,) = call.ok()
    (folder / "config.json").unlink()
    again = client.call("GetModelInfo", pb.GetModelInfoRequest(), pb.GetModelInfoResponse)
    assert again.ok() == [first]
    assert not rig.work


def test_a_context_that_messages_have_no_room_for() -> None:
    found = info(RankRig("--max-model-len", str(10**12)))
    assert found.max_context_length == found.max_req_input_len == 2**31 - 1


def test_a_dead_engine_tells_as_well() -> None:
    rig = RankRig()
    rig.rank.context.suspension.die()
    rig.rank.context.draining = True
    assert info(rig).model_path == "m"
