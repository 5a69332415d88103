"""The render routes: requests for the engine, over connections in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmdsim.tokenization import BuiltinTokenizer, render_chat
from llmdsim.web import render
from tests.web.clients import CHAT, TEXT
from tests.web.rig import PassRig, RankRig
from tests.wire.channel import Reply, post, read_replies

USER = {"role": "user", "content": "one two"}
#: What the plainest request of each kind is rendered to, but for its id and tokens.
PARAMS = {
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_p": 1.0,
    "min_p": 0.0,
    "stop": [],
    "stop_token_ids": [],
    "max_tokens": 5,
    "output_kind": 2,
    "skip_clone": True,
    "bad_words": [],
    "skip_reading_prefix_cache": False,
}
PARSE_CONTEXT = {
    "tools": None,
    "tool_choice": "none",
    "parallel_tool_calls": True,
    "include_reasoning": True,
    "chat_template_kwargs": {"add_generation_prompt": True, "continue_final_message": False},
    "history_tool_call_cnt": 0,
}
BOTH = pytest.mark.parametrize("path", [CHAT, TEXT])


def ask(path: str, rig: RankRig | None = None, **more: Any) -> Reply:
    prompt = {"messages": [USER]} if path == CHAT else {"prompt": "one two"}
    rig = rig or RankRig()
    body = json.dumps({**prompt, "max_tokens": 5, **more}).encode()
    client = rig.connect().send(post(body, path=f"{path}/render".encode()))
    for _ in range(100_000):
        if client.received:
            break
        rig.settle()
    (reply,) = read_replies(client.received, [b"POST"], client.fate != "open")
    return reply


@BOTH
def test_the_pod_is_told_with_what_is_rendered(path: str) -> None:
    rig = RankRig("--pod-name", "p", "--port", "8123")
    told = ask(path, rig).headers
    assert (told[b"x-inference-pod"], told[b"x-inference-port"]) == (b"p", b"8123")
    assert b"x-inference-pod" not in ask(path, rig, model="other").headers


def rendered(path: str, rig: RankRig | None = None, **more: Any) -> Any:
    """What one prompt is rendered to."""
    reply = ask(path, rig, **more)
    assert reply.status == 200, reply
    found = json.loads(reply.body)
    if path == CHAT:
        return found
    (only,) = found
    return only


def params(path: str, **more: Any) -> dict[str, Any]:
    """What the sampling parameters have that the plainest request's have not, or otherwise."""
    found = rendered(path, **more)["sampling_params"]
    changed = {name: value for name, value in found.items() if PARAMS.get(name, ...) != value}
    return changed | {name: None for name in PARAMS if name not in found}


@BOTH
def test_every_key_is_there_in_its_order(path: str) -> None:
    text = render_chat([USER]) if path == CHAT else "one two"
    found = rendered(path, request_id="me")
    assert list(found.items()) == [
        ("request_id", "chatcmpl-me" if path == CHAT else "cmpl-me"),
        ("token_ids", BuiltinTokenizer().encode(text)),
        ("token_offsets", None),
        ("features", None),
        ("content_parts", None),
        ("sampling_params", PARAMS),
        ("model", None),
        ("reasoning_ended", None),
        ("reasoning_parser_kwargs", None),
        ("return_token_ids", None),
        ("output_mode", "tokens"),
        ("parse_context", PARSE_CONTEXT if path == CHAT else None),
        ("stream", False),
        ("stream_options", None),
        ("cache_salt", None),
        ("priority", 0),
        ("kv_transfer_params", None),
        ("ec_transfer_params", None),
    ]
    assert list(found["sampling_params"]) == list(PARAMS)


@BOTH
def test_what_is_asked_for_is_passed_on(path: str) -> None:
    found = rendered(
        path,
        model="m",
        stream=True,
        stream_options={"include_usage": True},
        return_token_ids=True,
        cache_salt="salt",
        priority=-3,
        kv_transfer_params={"do_remote_decode": True, "remote_block_ids": [[1], [2]]},
        ec_transfer_params={},
    )
    assert found["model"] == "m"
    assert found["stream"] is True
    assert found["stream_options"] == {"include_usage": True, "continuous_usage_stats": False}
    assert found["return_token_ids"] is True
    assert (found["cache_salt"], found["priority"]) == ("salt", -3)
    assert found["kv_transfer_params"] == {"do_remote_decode": True, "remote_block_ids": [[1], [2]]}
    assert found["ec_transfer_params"] is None
    assert "extra_args" not in found["sampling_params"]


@BOTH
def test_options_of_a_stream_are_told_of_streams_alone(path: str) -> None:
    assert rendered(path, stream_options={})["stream_options"] is None


@BOTH
@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({"n": 3}, {"n": 3}),
        ({"temperature": 0.5, "top_p": 0.9, "min_p": 0.1}, {"temperature": 0.5, "top_p": 0.9, "min_p": 0.1}),
        ({"temperature": 0.001}, {"temperature": 0.01}),
        # Greedy sampling has no use for these.
        (
            {"temperature": 0, "top_p": 0.5, "top_k": 3, "min_p": 0.2},
            {"temperature": 0.0, "top_p": None, "min_p": None},
        ),
        ({"top_k": 7}, {"top_k": 7}),
        ({"top_k": -1}, {"top_k": -1}),
        (
            {"presence_penalty": 1, "frequency_penalty": -1},
            {"presence_penalty": 1.0, "frequency_penalty": -1.0},
        ),
        ({"seed": 5}, {"seed": 5}),
        ({"seed": -1}, {}),
        ({"max_tokens": 16}, {"max_tokens": None}),
        ({"min_tokens": 2}, {"min_tokens": 2}),
        ({"stop": "end"}, {"stop": ["end"], "output_text_buffer_length": 2}),
        (
            {"stop": ["a", "bcd"], "include_stop_str_in_output": True},
            {"stop": ["a", "bcd"], "include_stop_str_in_output": True},
        ),
        ({"stop_token_ids": [3, 1, 3]}, {"stop_token_ids": [3, 1]}),
        ({"bad_words": ["x", "y", "x"]}, {"bad_words": ["x", "y"]}),
        ({"ignore_eos": True}, {"ignore_eos": True}),
        ({"stream": True}, {"output_kind": 1}),
        ({"stream": True, "stream_interval": 4}, {"output_kind": 1, "stream_interval": 4}),
        ({"prompt_logprobs": 0}, {"prompt_logprobs": 0, "skip_reading_prefix_cache": True}),
        ({"skip_special_tokens": False}, {"skip_special_tokens": False}),
        ({"spaces_between_special_tokens": False}, {"spaces_between_special_tokens": False}),
        ({"logit_bias": {"7": 500, "08": -1.5}}, {"logit_bias": {"7": 100.0, "8": -1.5}}),
        ({"allowed_token_ids": [1, 2]}, {"allowed_token_ids": [1, 2]}),
        ({"vllm_xargs": {"a": 1}}, {"extra_args": {"a": 1}}),
        ({"thinking_token_budget": 9}, {"thinking_token_budget": 9}),
        ({"thinking_token_budget": -1}, {}),
        ({"routed_experts_prompt_start": 1}, {"routed_experts_prompt_start": 1}),
        ({"watermarking": False}, {"watermarking": False}),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_sampling_parameters_are_those_that_differ(
    path: str, asked: dict[str, Any], shown: dict[str, Any]
) -> None:
    assert params(path, **asked) == shown


def test_log_probabilities_as_each_kind_asks_for_them() -> None:
    assert params(CHAT, logprobs=True) == {"logprobs": 0}
    assert params(CHAT, logprobs=True, top_logprobs=4) == {"logprobs": 4}
    assert params(TEXT, logprobs=4) == {"logprobs": 4}
    echoed = {"prompt_logprobs": 4, "skip_reading_prefix_cache": True}
    assert params(TEXT, logprobs=4, echo=True) == {"logprobs": 4, **echoed}
    assert params(CHAT, logprobs=True, top_logprobs=4, echo=True) == {"logprobs": 4, **echoed}
    assert params(TEXT, logprobs=4, logprob_token_ids=[1]) == {"logprob_token_ids": [1]}


EMPTY = {
    "json": None,
    "regex": None,
    "choice": None,
    "grammar": None,
    "json_object": None,
    "structural_tag": None,
    "disable_any_whitespace": False,
    "disable_additional_properties": False,
    "whitespace_pattern": None,
}


@BOTH
@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({"structured_outputs": {"regex": "a+"}}, {"regex": "a+"}),
        ({"structured_outputs": {"choice": ["a", "b"]}}, {"choice": ["a", "b"]}),
        ({"guided_choice": ["a", "b"]}, {"choice": ["a", "b"]}),
        ({"guided_json": {"type": "object"}}, {"json": {"type": "object"}}),
        ({"structured_outputs": {"regex": "a"}, "guided_regex": "b"}, {"regex": "a"}),
        ({"response_format": {"type": "json_object"}}, {"json_object": True}),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "s", "schema": {"type": "object"}},
                }
            },
            {"json": {"type": "object"}},
        ),
        (
            {"response_format": {"type": "structural_tag", "format": {"type": "any_text"}}},
            {"structural_tag": '{"type": "structural_tag", "format": {"type": "any_text"}}'},
        ),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_constraints_are_one_object(path: str, asked: dict[str, Any], shown: dict[str, Any]) -> None:
    assert params(path, **asked) == {"structured_outputs": {**EMPTY, **shown}}


@BOTH
def test_a_format_of_text_is_no_constraint(path: str) -> None:
    assert params(path, response_format={"type": "text"}) == {}


def test_what_reads_the_answer_is_told_of_tools() -> None:
    tool = {
        "type": "function",
        "function": {"name": "f", "parameters": {"type": "object"}, "strict": True},
        "defer_loading": False,
    }
    history = [
        USER,
        {"role": "assistant", "content": None, "tool_calls": [tool | {"id": "1"}, tool | {"id": "2"}]},
        {"role": "tool", "content": "x", "tool_call_id": "1"},
    ]
    found = rendered(CHAT, messages=history, tools=[tool], parallel_tool_calls=False)["parse_context"]
    assert found["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "f",
                "description": None,
                "parameters": {"type": "object"},
                "strict": True,
                "defer_loading": False,
            },
            "defer_loading": False,
        }
    ]
    assert (found["tool_choice"], found["parallel_tool_calls"]) == ("auto", False)
    assert found["history_tool_call_cnt"] == 2
    allowed = {"tools": [{"function": {"name": "f"}, "type": "function"}], "mode": "required"}
    for choice in (
        {"type": "function", "function": {"name": "f"}},
        {"type": "allowed_tools", "allowed_tools": allowed},
    ):
        assert rendered(CHAT, tools=[tool], tool_choice=choice)["parse_context"]["tool_choice"] == choice


def test_what_reads_the_answer_is_told_of_the_template() -> None:
    found = rendered(
        CHAT,
        chat_template_kwargs={"x": [1], "add_generation_prompt": 7},
        reasoning_effort="none",
        documents=[{"a": "b"}],
        add_generation_prompt=False,
        include_reasoning=False,
    )
    assert found["reasoning_ended"] is True
    assert found["parse_context"]["include_reasoning"] is False
    assert found["parse_context"]["chat_template_kwargs"] == {
        "x": [1],
        "add_generation_prompt": False,
        "continue_final_message": False,
        "documents": [{"a": "b"}],
        "reasoning_effort": "none",
        "enable_thinking": False,
    }
    told = rendered(CHAT, chat_template_kwargs={"enable_thinking": None}, reasoning_effort="high")
    assert told["parse_context"]["chat_template_kwargs"]["enable_thinking"] is None


def test_whether_reasoning_has_ended_is_told_where_there_is_any() -> None:
    rig = RankRig("--reasoning-parser", "deepseek_r1")
    found = rendered(CHAT, rig)
    assert found["reasoning_ended"] is False
    kwargs = found["parse_context"]["chat_template_kwargs"]
    assert found["reasoning_parser_kwargs"] == {"chat_template_kwargs": kwargs}
    assert rendered(CHAT, rig, reasoning_effort="none")["reasoning_ended"] is True
    assert rendered(CHAT, rig, include_reasoning=False)["reasoning_ended"] is True
    assert rendered(TEXT, rig)["reasoning_ended"] is None


IMAGE = {"type": "image_url", "image_url": {"url": "http://x/a.png"}}
SOUND = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}


def test_media_are_told_by_hash_and_place() -> None:
    content = [{"type": "text", "text": "look"}, IMAGE, SOUND, {"text": "both", **IMAGE}, IMAGE]
    found = rendered(CHAT, messages=[{"role": "user", "content": content}], return_token_offsets=True)
    features = found["features"]
    assert list(features) == ["mm_hashes", "mm_placeholders", "kwargs_data", "mm_metadata"]
    assert (features["kwargs_data"], features["mm_metadata"]) == (None, None)
    images = features["mm_hashes"]["image"]
    assert [name[:10] for name in images] == ["sim_img_0_", "sim_img_1_", "sim_img_2_"]
    assert len({name[10:] for name in images}) == 1
    assert features["mm_hashes"]["audio"][0].startswith("sim_audio_0_")
    words = {name: BuiltinTokenizer().encode(f"{name} ")[0] for name in ("image", "audio")}
    for name, length in (("image", 256), ("audio", 128)):
        for place in features["mm_placeholders"][name]:
            assert place["length"] == length
            start = place["offset"]
            # All but the last have a blank behind them.
            assert set(found["token_ids"][start : start + length - 1]) == {words[name]}
            assert found["token_ids"][start - 1] != words[name]


def test_a_part_with_a_text_and_an_image_is_no_trouble() -> None:
    found = rendered(CHAT, messages=[{"role": "user", "content": [{"text": "a", "image_url": {"url": "x"}}]}])
    assert found["token_ids"]


def test_media_of_a_prompt_that_is_cut_are_not_told() -> None:
    messages = [{"role": "user", "content": [IMAGE]}]
    assert rendered(CHAT, messages=messages, truncate_prompt_tokens=9)["features"] is None


def test_each_prompt_has_an_object() -> None:
    reply = ask(TEXT, request_id="x", prompt=["a b", "c"])
    first, second = json.loads(reply.body)
    assert (first["request_id"], second["request_id"]) == ("cmpl-x-0", "cmpl-x-1")
    assert (len(first["token_ids"]), len(second["token_ids"])) == (2, 1)
    (ids,) = json.loads(ask(TEXT, prompt=[7, 8]).body)
    assert ids["token_ids"] == [7, 8]


@BOTH
def test_offsets_say_where_tokens_are(path: str) -> None:
    found = rendered(path, return_token_offsets=True)
    text = render_chat([USER]) if path == CHAT else "one two"
    assert [text[start:end] for start, end in found["token_offsets"]] == BuiltinTokenizer().split(text)[1]


def test_ids_have_no_offsets() -> None:
    assert rendered(TEXT, prompt=[1, 2], return_token_offsets=True)["token_offsets"] is None


@BOTH
def test_a_prompt_is_cut_as_for_an_answer(path: str) -> None:
    whole = rendered(path)["token_ids"]
    assert rendered(path, truncate_prompt_tokens=2)["token_ids"] == whole[-2:]
    assert rendered(path, truncate_prompt_tokens=1, truncation_side="right")["token_ids"] == whole[:1]


@BOTH
def test_the_room_bounds_max_tokens(path: str) -> None:
    found = rendered(path, RankRig("--max-model-len", "20"), max_tokens=20)
    assert found["sampling_params"]["max_tokens"] == 20 - len(found["token_ids"])


@BOTH
@pytest.mark.parametrize(
    ("more", "status", "param"),
    [
        ({"model": "other"}, 404, "model"),
        ({"use_beam_search": True}, 400, None),
        ({"n": "x"}, 400, "body.n"),
        ({"n": -1}, 400, None),
        ({"max_tokens": 5000}, 400, "max_tokens"),
        (
            {"prompt": "a " * 2000, "messages": [{"role": "user", "content": "a " * 2000}]},
            400,
            "input_tokens",
        ),
        ({"temperature": 3}, 400, "temperature"),
        ({"request_id": "x" * 2000}, 400, "request_id"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_could_not_be_answered_is_refused(
    path: str, more: dict[str, Any], status: int, param: Any
) -> None:
    reply = ask(path, **more)
    assert (reply.status, reply.error["error"]["param"]) == (status, param)


@pytest.mark.parametrize("prompt", ["", [], [[]], [""], None, [-1], [2**32]])
def test_an_empty_or_impossible_prompt_is_refused(prompt: Any) -> None:
    assert ask(TEXT, prompt=prompt).status == 400


def test_integers_of_any_size_are_passed_on() -> None:
    # Read leniently: otherwise what no 64 bits hold is a float.
    found = rendered(CHAT, n="1", chat_template_kwargs={"x": 10**4000, "y": -(2**63) - 1})
    assert found["parse_context"]["chat_template_kwargs"]["x"] == 10**4000


@BOTH
def test_an_adapter_is_rendered_for(path: str) -> None:
    assert rendered(path, RankRig("--lora-modules", "l1=/l1"), model="l1")["model"] == "l1"


@BOTH
def test_nothing_is_generated(path: str) -> None:
    rig = RankRig("--failure-injection-rate", "100")
    rig.rank.context.draining = True
    rendered(path, rig)
    assert not rig.rank.stats.prompt_tokens
    assert not sum(rig.rank.stats.finished.values())


@BOTH
def test_a_long_prompt_is_rendered_in_turns(path: str) -> None:
    rig = PassRig("--max-model-len", "100000")
    text = "wörter, " * 20_000
    body: dict[str, Any] = (
        {"prompt": text} if path == TEXT else {"messages": [{"role": "user", "content": text}]}
    )
    body["return_token_offsets"] = True
    client = rig.connect().send(post(json.dumps(body).encode(), path=f"{path}/render".encode()))
    assert not client.received
    assert rig.finish() > 20
    (reply,) = read_replies(client.received, [b"POST"], False)
    found = json.loads(reply.body)
    found = found if path == CHAT else found[0]
    if path == CHAT:
        text = render_chat(body["messages"])
    ids, pieces = BuiltinTokenizer().split(text)
    assert found["token_ids"] == ids
    assert [text[start:end] for start, end in found["token_offsets"]] == pieces


def test_many_prompts_are_rendered_in_turns_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = PassRig()
    body = {"prompt": ["a b"] * 500}
    client = rig.connect().send(post(json.dumps(body).encode(), path=b"/v1/completions/render"))
    assert not client.received
    assert rig.finish() > 20
    (reply,) = read_replies(client.received, [b"POST"], False)
    assert len(json.loads(reply.body)) == 500
    monkeypatch.setattr(render, "MOST_TOKENS", 5)
    assert ask(TEXT, prompt=["a b"] * 2).status == 200
    assert ask(TEXT, prompt=["a b"] * 3).status == 400


# --- what is rendered can be generated


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"temperature": 0, "stop": ["x", "yz"], "seed": 7, "n": 1},
        {"n": 2, "logprobs": True, "top_logprobs": 3, "logit_bias": {"5": 1}, "bad_words": ["b"]},
        {"stream": True, "stream_options": {"include_usage": True}, "stream_interval": 2},
        {"prompt_logprobs": 1, "vllm_xargs": {"a": 1}, "cache_salt": "salt", "priority": 2},
        {"response_format": {"type": "json_object"}, "return_token_ids": True, "return_token_offsets": True},
        {"messages": [{"role": "user", "content": [IMAGE, SOUND]}], "return_token_ids": True},
        {"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "required"},
        {"kv_transfer_params": {"do_remote_decode": True}, "repetition_detection": {}},
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_what_is_rendered_can_be_generated(more: dict[str, Any]) -> None:
    rig = RankRig("--max-model-len", "1000")
    wanted = ask(CHAT, rig, **more)
    assert wanted.status == 200, wanted
    client = rig.connect().send(post(wanted.body, path=b"/inference/v1/generate"))
    for _ in range(100):
        if rig.rank.engine.idle and client.received:
            break
        rig.settle()
    (reply,) = read_replies(client.received, [b"POST"], client.fate != "open")
    assert reply.status == 200, reply
    assert rig.rank.stats.generation_tokens > 0


@pytest.mark.parametrize(
    ("path", "body", "prefix"),
    [
        ("/v1/messages/render", {"messages": [USER], "max_tokens": 5}, "chatcmpl-"),
        ("/v1/responses/render", {"input": "one two", "max_output_tokens": 5}, "resp_"),
    ],
)
def test_r19_other_conversations_are_rendered_as_the_chats_they_amount_to(
    path: str, body: Any, prefix: str
) -> None:
    rig = RankRig()
    client = rig.connect().send(post(json.dumps({"model": "m", **body}).encode(), path=path.encode()))
    (reply,) = client.replies("POST")
    assert reply.status == 200, reply
    found, chat = json.loads(reply.body), rendered(CHAT, rig)
    assert list(found) == list(chat)
    assert found["token_ids"] == chat["token_ids"]
    assert found["sampling_params"] == chat["sampling_params"]
    assert found["request_id"].startswith(prefix)
    assert (found["parse_context"] is None) == (prefix == "resp_")
    assert rig.rank.engine.idle
    assert sum(rig.rank.stats.finished.values()) == 0


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/messages/render", {"model": "m", "messages": [USER]}, 400),
        ("/v1/messages/render", {"model": "other", "messages": [USER], "max_tokens": 1}, 404),
        ("/v1/responses/render", {"input": []}, 400),
        ("/v1/responses/render", {"input": "x", "model": "other"}, 404),
        ("/v1/responses/render", {"input": "x", "previous_response_id": "resp_1"}, 400),
    ],
)
def test_r19_their_refusals_have_one_shape(path: str, body: Any, status: int) -> None:
    client = RankRig().connect().send(post(json.dumps(body).encode(), path=path.encode()))
    (reply,) = client.replies("POST")
    assert reply.status == status
    assert reply.error["error"]["code"] == status
