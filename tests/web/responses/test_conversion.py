"""What chat a request of Responses amounts to."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET

from llmdsim.web.chat_request import ChatRequest, ToolChoice
from llmdsim.web.errors import ApiError
from llmdsim.web.responses.conversion import messages_of, to_chat
from llmdsim.web.responses.request import decode_responses

USER = {"role": "user", "content": "hi"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "5"}
FUNCTION = {"type": "function", "name": "f", "description": "d", "parameters": {"type": "object"}}
CUSTOM = {"type": "custom", "name": "c"}
NAMESPACE = {"type": "namespace", "name": "ns", "description": "d", "tools": [{**FUNCTION, "name": "g"}]}


def chat(history: list[Any] | None = None, **body: Any) -> ChatRequest:
    return to_chat(decode_responses(json.dumps({"input": "hi", **body}).encode()), history or [])


def refused(**body: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        chat(**body)
    assert caught.value.status == 400
    return caught.value


def called(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("items", "messages"),
    [
        ("hi", [USER]),
        ([USER], [USER]),
        ([{**USER, "type": "message", "status": "completed", "id": "x"}], [USER]),
        (
            [{"role": "user", "content": [{"type": "input_text", "text": "x", "more": 1}]}],
            [{"role": "user", "content": [{"type": "input_text", "text": "x"}]}],
        ),
        (
            [{"role": "user", "content": [{"type": "input_image", "image_url": "u", "detail": "low"}]}],
            [{"role": "user", "content": [{"type": "input_image", "image_url": "u"}]}],
        ),
        (
            [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}],
            [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}],
        ),
        (
            [{"role": "user", "content": [{"type": "input_audio", "data": "AA", "format": "wav"}]}],
            [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA"}}]}],
        ),
        (
            [{"role": "assistant", "content": [{"type": "output_text", "text": t} for t in "ab"]}],
            [{"role": "assistant", "content": "a"}],
        ),
        (
            [{"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}],
            [{"role": "assistant", "content": "no"}],
        ),
        ([{"role": "assistant", "content": []}], [{"role": "assistant", "content": ""}]),
        (
            [CALL, OUTPUT],
            [
                {"role": "assistant", "tool_calls": [called("c1", "f", "{}")]},
                {"role": "tool", "content": "5", "tool_call_id": "c1"},
            ],
        ),
        # Reasoning, text and calls in a row are one message.
        (
            [
                {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "why"}]},
                {"role": "assistant", "content": "so"},
                CALL,
                {**CALL, "call_id": "c2", "namespace": "ns"},
                {"type": "custom_tool_call", "call_id": "c3", "name": "c", "input": 'a"b'},
            ],
            [
                {
                    "role": "assistant",
                    "reasoning": "why",
                    "content": "so",
                    "tool_calls": [
                        called("c1", "f", "{}"),
                        called("c2", "ns__f", "{}"),
                        called("c3", "c", '{"input":"a\\"b"}'),
                    ],
                }
            ],
        ),
        (
            [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}],
            [{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}],
        ),
        (
            [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "short"}]}],
            [{"role": "assistant", "reasoning": "short"}],
        ),
        (
            [{"type": "custom_tool_call_output", "call_id": "c", "output": "x"}],
            [{"role": "tool", "content": "x", "tool_call_id": "c"}],
        ),
    ],
)
def test_items_become_messages(items: Any, messages: list[Any]) -> None:
    assert messages_of(items) == messages


@pytest.mark.parametrize(
    "item",
    [
        {"type": "item_reference", "id": "x"},
        {"id": "x"},
        {"type": "web_search_call", "id": "x"},
        {"type": "additional_tools", "role": "developer", "tools": []},
        {"type": "reasoning", "summary": [], "encrypted_content": "x"},
        {"role": "user", "content": [{"type": "input_file", "file_id": "x"}]},
    ],
)
def test_items_of_which_nothing_can_be_made(item: Any) -> None:
    error = refused(input=[USER, item])
    assert (error.param, error.type) == ("input", "BadRequestError")


def test_instructions_come_first_then_what_was_said_before() -> None:
    before = [USER, {"role": "assistant", "content": "a"}]
    assert chat(before, instructions="be brief", input="b").messages == [
        {"role": "system", "content": "be brief"},
        *before,
        {"role": "user", "content": "b"},
    ]


def test_nothing_to_answer_is_refused() -> None:
    refused(input=[])
    assert chat(input=[], instructions="go").messages


def test_fields_are_carried_over() -> None:
    body = {
        **{"temperature": 0.5, "top_p": 0.9, "top_k": 3, "min_p": 0.1, "seed": 7, "stop": ["x"]},
        **{"stop_token_ids": [1], "ignore_eos": True, "presence_penalty": 1.0, "frequency_penalty": -1.0},
        **{"repetition_penalty": 1.5, "logit_bias": {"5": 1.0}, "include_stop_str_in_output": True},
        **{"priority": 3, "cache_salt": "s", "request_id": "me", "kv_transfer_params": {"a": 1}},
        **{"parallel_tool_calls": False, "include_reasoning": False, "cache_hit_threshold": 0.5},
    }
    made = chat(**body)
    assert {name: getattr(made, name) for name in body} == body


def test_fields_of_other_names() -> None:
    made = chat(
        max_output_tokens=9,
        reasoning={"effort": "low"},
        truncation="auto",
        include=["message.output_text.logprobs"],
        top_logprobs=3,
    )
    assert made.max_completion_tokens == 9
    assert made.reasoning_effort == "low"
    assert made.truncate_prompt_tokens == -1
    assert (made.logprobs, made.top_logprobs) == (True, 3)
    plain = chat(top_logprobs=3)
    assert plain.truncate_prompt_tokens is None
    assert (plain.logprobs, plain.top_logprobs) == (False, 0)


def test_log_probabilities_below_minus_one_are_refused() -> None:
    assert refused(include=["message.output_text.logprobs"], top_logprobs=-2).param == "top_logprobs"
    chat(top_logprobs=-2)


@pytest.mark.parametrize("kind", ["message", "reasoning"])
@pytest.mark.parametrize("status", ["in_progress", "incomplete", "completed"])
def test_an_unfinished_last_message_is_gone_on_with(kind: str, status: str) -> None:
    item: dict[str, Any] = {"type": kind, "status": status}
    item |= {"summary": []} if kind == "reasoning" else {"role": "assistant", "content": "And"}
    made = chat(input=[USER, item])
    assert made.continue_final_message == (status != "completed")
    assert made.add_generation_prompt != made.continue_final_message


@pytest.mark.parametrize(
    ("wanted", "kind"), [({"type": "text"}, None), ({"type": "json_object"}, "json_object"), (None, None)]
)
def test_formats(wanted: Any, kind: str | None) -> None:
    made = chat(text={"format": wanted}).response_format
    assert (made and made.type) == kind


def test_a_schema_as_format() -> None:
    wanted = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    made = chat(text={"format": wanted}).response_format
    assert made is not None
    assert made.json_schema is not None
    assert (made.json_schema.name, made.json_schema.schema) == ("n", {"type": "object"})
    assert made.json_schema.strict is True


def test_a_format_and_other_constraints_exclude_each_other() -> None:
    regex = {"regex": "a+"}
    assert refused(text={"format": {"type": "text"}}, structured_outputs=regex).param == "structured_outputs"
    assert chat(text={}, structured_outputs=regex).structured_outputs is not None


# --- tools


def test_tools_are_flattened() -> None:
    made = chat(tools=[FUNCTION, CUSTOM, NAMESPACE, {"type": "web_search"}])
    assert made.tools is not None
    assert [tool.function.name for tool in made.tools] == ["f", "c", "ns__g"]
    custom = made.tools[1].function.parameters
    assert custom is not None
    assert custom["required"] == ["input"]
    assert made.tools[0].function.description == "d"
    assert made.tool_choice == "auto"


@pytest.mark.parametrize("choice", ["none", "auto", "required"])
def test_choices_in_a_word(choice: str) -> None:
    assert chat(tools=[FUNCTION], tool_choice=choice).tool_choice == choice


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ({"type": "function", "name": "f"}, "f"),
        ({"type": "function", "name": "g"}, "ns__g"),
        ({"type": "custom", "name": "c"}, "c"),
    ],
)
def test_choices_by_name(choice: Any, name: str) -> None:
    made = chat(tools=[FUNCTION, CUSTOM, NAMESPACE], tool_choice=choice).tool_choice
    assert isinstance(made, ToolChoice)
    assert made.names == [name]


def test_a_hosted_tool_is_never_called() -> None:
    made = chat(tools=[{"type": "web_search_preview"}], tool_choice={"type": "web_search_preview"})
    assert (made.tools, made.given_tool_choice) == (None, UNSET)


def test_a_call_is_required_where_there_is_nothing_to_call() -> None:
    assert refused(tools=[{"type": "web_search"}], tool_choice="required").param == "tool_choice"
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "x"}]}
    assert refused(tools=[FUNCTION], tool_choice=allowed).param == "tool_choice"


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_allowed_tools_are_all_there_is(mode: str) -> None:
    tools = [FUNCTION, {**FUNCTION, "name": "g"}]
    allowed = {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": "g"}]}
    made = chat(tools=tools, tool_choice=allowed)
    assert made.tools is not None
    assert [tool.function.name for tool in made.tools] == ["g"]
    assert made.tool_choice == mode


@pytest.mark.parametrize(("choice", "then"), [("auto", "none"), ("required", "required"), ("none", "none")])
def test_what_tools_answered_ends_a_loop_that_is_not_forced(choice: str, then: str) -> None:
    made = chat(input=[USER, CALL, OUTPUT], tools=[FUNCTION], tool_choice=choice)
    assert made.tool_choice == then
    named = {"type": "function", "name": "f"}
    made = chat(input=[USER, CALL, OUTPUT], tools=[FUNCTION], tool_choice=named)
    assert isinstance(made.tool_choice, ToolChoice)
