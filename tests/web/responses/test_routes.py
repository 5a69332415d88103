"""The routes of `/v1/responses` over connections in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.internet.defer import maybeDeferred
from twisted.logger import capturedLogs

from llmdsim.reply.parts import PartedReply
from llmdsim.reply.reply import Part
from llmdsim.web.responses.background import Background
from tests.web.responses.events import judge, parse, text_of
from tests.web.responses.rig import PATH, ResponsesRig, parted, reply_of, says
from tests.wire.channel import post

ECHO = ("--mode", "echo")
PACED = (*ECHO, "--time-to-first-token", "1s", "--inter-token-latency", "1s")
RESPONSE = (
    *("id", "created_at", "incomplete_details", "instructions", "metadata", "model", "object", "output"),
    *("parallel_tool_calls", "temperature", "tool_choice", "tools", "top_p", "background"),
    *("max_output_tokens", "max_tool_calls", "previous_response_id", "prompt", "prompt_cache_options"),
    *("prompt_cache_key", "prompt_cache_retention", "reasoning", "safety_identifier", "service_tier"),
    *("status", "text", "top_logprobs", "truncation", "usage", "user", "presence_penalty"),
    *("frequency_penalty", "kv_transfer_params", "ec_transfer_params", "input_messages"),
    "output_messages",
)
USAGE = {
    "input_tokens": 7,
    "input_tokens_details": {
        "cached_tokens": 0,
        "cache_write_tokens": 0,
        "input_tokens_per_turn": [],
        "cached_tokens_per_turn": [],
    },
    "output_tokens": 2,
    "output_tokens_details": {
        "reasoning_tokens": 0,
        "tool_output_tokens": 0,
        "output_tokens_per_turn": [],
        "tool_output_tokens_per_turn": [],
    },
    "total_tokens": 9,
}
FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no reactor to wait for a thread."""
    for module in ("llmdsim.web.whole", "llmdsim.web.responses.background"):
        monkeypatch.setattr(f"{module}.deferToThread", maybeDeferred)


# --- the object


def test_v37_every_key_is_there_in_vllms_order() -> None:
    made = ResponsesRig(*ECHO).made(input="one two")
    assert tuple(made) == RESPONSE
    assert made["id"].startswith("resp_")
    assert len(made["id"]) == 21
    assert (made["object"], made["model"], made["status"]) == ("response", "m", "completed")
    (item,) = made["output"]
    assert list(item) == ["id", "content", "role", "status", "type", "phase"]
    assert item["content"] == [
        {"annotations": [], "text": "one two", "type": "output_text", "logprobs": None}
    ]
    assert made["usage"] == USAGE
    assert list(made["usage"]) == list(USAGE)


def test_defaults_are_told_as_they_take_effect() -> None:
    made = ResponsesRig(*ECHO).made(input="one two", presence_penalty=None, parallel_tool_calls=None)
    assert {key: made[key] for key in RESPONSE if key not in ("id", "created_at", "output", "usage")} == {
        **dict.fromkeys(key for key in RESPONSE if key not in ("id", "created_at", "output", "usage")),
        **{"model": "m", "object": "response", "status": "completed", "service_tier": "auto"},
        **{"parallel_tool_calls": True, "background": False, "tool_choice": "none", "tools": []},
        **{"temperature": 1.0, "top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0},
        **{"max_output_tokens": 1024 - 7, "truncation": "disabled"},
    }


def test_parameters_are_repeated() -> None:
    echoed = {
        **{"instructions": "be brief", "metadata": {"a": "b"}, "parallel_tool_calls": False},
        **{"temperature": 0.5, "top_p": 0.5, "max_output_tokens": 9, "max_tool_calls": 3},
        **{"prompt_cache_key": "k", "prompt_cache_retention": "24h", "safety_identifier": "s"},
        **{"service_tier": "flex", "truncation": "auto", "user": "u", "presence_penalty": 1.5},
        **{"frequency_penalty": -1.5},
    }
    made = ResponsesRig(*ECHO).made(
        **echoed,
        reasoning={"effort": "low", "summary": "auto"},
        text={"format": {"type": "json_schema", "name": "n", "schema": {"x": 2**70}}, "verbosity": "low"},
        prompt_cache_options={"mode": "explicit", "prewarm": True},
        tools=[FUNCTION],
    )
    assert {name: made[name] for name in echoed} == echoed
    assert made["reasoning"] == {
        **{"context": None, "effort": "low", "generate_summary": None, "mode": None, "summary": "auto"},
    }
    assert made["text"] == {
        "format": {
            **{"name": "n", "schema": {"x": 2**70}, "type": "json_schema", "description": None},
            "strict": None,
        },
        "verbosity": "low",
    }
    assert made["prompt_cache_options"] == {
        **{"mode": "explicit", "ttl": "30m", "comparison_response_id": None},
    }
    assert (made["tool_choice"], made["top_logprobs"]) == ("auto", None)
    (tool,) = made["tools"]
    assert list(tool) == [
        *("name", "parameters", "strict", "type", "allowed_callers", "async", "defer_loading"),
        *("description", "output_schema"),
    ]


def test_greedy_sampling_is_told_as_vllm_tells_it() -> None:
    rig = ResponsesRig(*ECHO)
    made = rig.made(temperature=0, top_p=0.5)
    assert (made["temperature"], made["top_p"]) == (0.0, 1.0)
    assert rig.made(temperature=0.001)["temperature"] == 0.01


def test_v38_the_more_is_asked_than_there_is_room_the_less_is_told() -> None:
    assert ResponsesRig(*ECHO).made(input="one two", max_output_tokens=1024)["max_output_tokens"] == 1017


def test_the_id_is_the_bodys_and_no_headers() -> None:
    rig = ResponsesRig(*ECHO)
    assert rig.made(request_id="me")["id"] == "me"
    body = json.dumps({"input": "x"}).encode()
    client = rig.connect().send(post(body, b"X-Request-Id: you", path=PATH.encode()))
    rig.settle()
    assert json.loads(reply_of(client).body)["id"].startswith("resp_")
    assert rig.create(request_id="x" * 1025).status == 400


def test_a_reply_cut_short_is_incomplete() -> None:
    made = ResponsesRig().made(max_output_tokens=3, ignore_eos=True)
    assert made["status"] == "incomplete"
    assert made["incomplete_details"] == {"reason": "max_output_tokens"}
    assert made["output"][0]["status"] == "incomplete"


def test_raw_messages_where_they_are_wanted() -> None:
    rig = ResponsesRig(*ECHO)
    made = rig.made(input="one two", enable_response_messages=True)
    (sent,), (said,) = made["input_messages"], made["output_messages"]
    assert list(sent) == ["message", "tokens", "type"]
    assert "one two" in sent["message"]
    assert (len(sent["tokens"]), len(said["tokens"]), said["message"]) == (7, 2, "one two")
    ended = judge(rig.streamed(input="one two", enable_response_messages=True))
    assert (ended["input_messages"], ended["output_messages"]) == ([sent], [said])


def test_log_probabilities() -> None:
    rig = ResponsesRig(*ECHO)
    asked: dict[str, Any] = {"include": ["message.output_text.logprobs"], "input": "one two"}
    made = rig.made(**asked, top_logprobs=2)
    assert made["top_logprobs"] == 2
    first, _ = made["output"][0]["content"][0]["logprobs"]
    assert list(first) == ["token", "bytes", "logprob", "top_logprobs"]
    assert [list(top) for top in first["top_logprobs"]] == [["token", "bytes", "logprob"]] * 2
    bare = rig.made(**asked)
    assert bare["top_logprobs"] == 0
    assert bare["output"][0]["content"][0]["logprobs"][0]["top_logprobs"] == []
    assert rig.create(**asked, top_logprobs=21).error["error"]["param"] == "logprobs"
    assert rig.made(top_logprobs=50)["top_logprobs"] is None


# --- refusals


@pytest.mark.parametrize(
    ("status", "kind", "param", "body"),
    [
        (404, "NotFoundError", "model", {"model": "other"}),
        (404, "invalid_request_error", "response_id", {"previous_response_id": "none"}),
        (400, "BadRequestError", "max_output_tokens", {"max_output_tokens": 1025}),
        (400, "BadRequestError", "max_tokens", {"max_output_tokens": 0}),
        (400, "BadRequestError", "temperature", {"temperature": 3}),
        (400, "BadRequestError", "input_tokens", {"input": "x " * 1200}),
        (400, "BadRequestError", None, {"chat_template_kwargs": {"chat_template": "x"}}),
        (400, "BadRequestError", None, {"structured_outputs": {}}),
        (
            *(400, "invalid_request_error", "previous_response_id"),
            {"previous_response_id": "none", "previous_input_messages": [{}]},
        ),
        # The first of several.
        (404, "NotFoundError", "model", {"model": "other", "previous_response_id": "none"}),
        (404, "invalid_request_error", "response_id", {"previous_response_id": "none", "temperature": 3}),
    ],
)
def test_refusals(status: int, kind: str, param: str | None, body: dict[str, Any]) -> None:
    reply = ResponsesRig().create(**body)
    error = reply.error["error"]
    assert (reply.status, error["type"], error["param"], error["code"]) == (status, kind, param, status)


def test_a_prompt_over_the_context_is_cut_where_that_is_asked_for() -> None:
    made = ResponsesRig().made(input="x " * 1200, truncation="auto")
    assert made["usage"]["input_tokens"] == 1023


def test_a_full_queue_keeps_nothing() -> None:
    rig = ResponsesRig(*PACED, "--max-num-seqs", "1", "--max-waiting-queue-length", "1")
    first = rig.made(background=True)
    rig.made(background=True)
    refused = rig.create(background=True, request_id="third")
    assert refused.status == 429
    assert rig.ask("third").status == 404
    assert rig.found(first["id"])["status"] == "in_progress"


# --- streams


def test_b19_b20_a_stream_begins_at_once_and_is_in_order() -> None:
    rig = ResponsesRig(*PACED)
    client = rig.send(stream=True, input="one two")
    events = parse(reply_of(client).body)
    assert [event["type"] for event in events] == ["response.created", "response.in_progress"]
    rig.clock.pump([1, 1])
    reply = reply_of(client)
    assert reply.complete
    assert reply.headers[b"content-type"] == b"text/event-stream; charset=utf-8"
    ended = judge(parse(reply.body))
    assert text_of(ended["output"][0]) == "one two"
    assert ended["usage"] == USAGE


@pytest.mark.parametrize("more", [{}, {"include": ["message.output_text.logprobs"], "top_logprobs": 2}])
def test_a_stream_ends_as_the_whole_response(more: dict[str, Any]) -> None:
    rig = ResponsesRig()
    body: dict[str, Any] = {"seed": 5, "request_id": "me", "max_output_tokens": 40, **more}
    ended, made = judge(rig.streamed(**body)), rig.made(**body)
    for response in (ended, made):
        response["created_at"] = 0
        for item in response["output"]:
            item["id"] = "x"
    assert ended == made


def test_text_with_a_stop_string_is_complete() -> None:
    ended = judge(ResponsesRig(*ECHO).streamed(input="one two three", stop=["thr"]))
    assert text_of(ended["output"][0]) == "one two "
    assert ended["status"] == "completed"


def test_an_empty_answer_is_as_vllms() -> None:
    rig = ResponsesRig(*ECHO)
    (item,) = rig.made(input="")["output"]
    assert item["content"] == []
    assert judge(rig.streamed(input=""))["output"] == []


def test_r50_a_stream_that_is_given_up_ends_with_an_event() -> None:
    rig = ResponsesRig(*PACED)
    client = rig.send(stream=True, input="one two three")
    rig.clock.advance(1)
    rig.rank.driver.give_up()
    reply = reply_of(client)
    assert reply.complete
    *_, last = parse(reply.body)
    assert last["type"] == "response.failed"
    assert last["response"]["status"] == "failed"
    assert last["response"]["error"]["code"] == "server_error"
    assert rig.ask(last["response"]["id"]).status == 404


def test_a_response_that_is_cut_short_from_outside_is_completed_as_it_stands() -> None:
    """As in vLLM."""
    rig = ResponsesRig(*PACED)
    stream = rig.send(stream=True, input="one two three")
    whole = rig.send(input="four five six")
    name = rig.made(background=True, input="seven eight nine")["id"]
    waits = ResponsesRig(*PACED, "--max-num-seqs", "1")
    waits.made(background=True)
    waiting = waits.send(stream=True)
    rig.clock.pump([1, 1])
    for each in (rig, waits):
        each.rank.driver.cut_short(each.rank.engine.sequences)
    for made, text in (
        (judge(parse(reply_of(stream).body)), "one two "),
        (json.loads(reply_of(whole).body), "four five "),
        (rig.found(name), "seven eight "),
        (judge(parse(rig.ask(f"{name}?stream=true").body)), "seven eight "),
    ):
        assert (made["status"], text_of(made["output"][0])) == ("completed", text)
        assert made["usage"]["output_tokens"] == 2
    assert judge(parse(reply_of(waiting).body))["output"] == []


def test_a_stream_whose_reply_cannot_be_written_fails_with_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = ResponsesRig()
    monkeypatch.setattr(rig.rank.engine, "_write", lambda ask: 1 / 0)
    with capturedLogs():
        events = rig.streamed()
    assert [event["type"] for event in events] == [
        *("response.created", "response.in_progress", "response.failed"),
    ]


def test_while_shutting_down_nothing_new_is_made() -> None:
    rig = ResponsesRig(*ECHO)
    kept = rig.made()
    rig.rank.context.draining = True
    assert rig.create().status == 503
    assert rig.found(kept["id"]) == kept


# --- parts


@pytest.mark.parametrize("stream", [False, True])
def test_v38_replies_of_parts_become_items(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = ResponsesRig()
    said = [(Part("reasoning"), "why"), (Part("text"), "so"), (Part("call", "f"), '{"a": "é"}')]

    def write(ask: Any) -> PartedReply:
        return parted(said, [5, 12, 13, 20, 25, 30], reasoning=2)

    says(rig, monkeypatch, write)
    made = judge(rig.streamed(tools=[FUNCTION])) if stream else rig.made(tools=[FUNCTION])
    assert [item["type"] for item in made["output"]] == ["reasoning", "message", "function_call"]
    assert [text_of(item) for item in made["output"]] == ["why", "so", '{"a": "é"}']
    assert made["status"] == "completed"
    assert made["usage"]["output_tokens_details"]["reasoning_tokens"] == 2


def test_calls_of_the_previous_response_are_gone_on_from(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = ResponsesRig()

    def write(ask: Any) -> PartedReply:
        return parted([(Part("call", "f"), "{}")], [])

    says(rig, monkeypatch, write)
    prompts = []
    render = rig.rank.context.driver.submit
    monkeypatch.setattr(
        rig.rank.context.driver,
        "submit",
        lambda sequences: prompts.append(sequences[0].ask.prompt.text) or render(sequences),
    )
    first = rig.made(input="call it", tools=[FUNCTION], instructions="be quick")
    call_id = first["output"][0]["call_id"]
    output = {"type": "function_call_output", "call_id": call_id, "output": "42"}
    second = rig.made(input=[output], previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    assert prompts == [
        "### system: be quick\n### user: call it\n",
        f"### user: call it\n### assistant: [f({{}})]\n### tool({call_id}): 42\n",
    ]


# --- transfers


@pytest.mark.parametrize("background", [False, True])
def test_b19_a_stream_under_a_cache_threshold_is_in_order_and_empty(background: bool) -> None:
    rig = ResponsesRig(*ECHO)
    body = json.dumps({"input": "one two", "stream": True, "background": background}).encode()
    client = rig.connect().send(post(body, b"X-Cache-Threshold-Finish-Reason: true", path=PATH.encode()))
    rig.settle()
    ended = judge(parse(reply_of(client).body))
    assert (ended["status"], ended["output"], ended["usage"]["output_tokens"]) == ("completed", [], 0)


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize(
    "more",
    [
        {"cache_hit_threshold": 1.0},
        {"structured_outputs": {"choice": [""]}},
        {"stop": [" ", "e", "a", "i"]},
    ],
    ids=["nothing cached", "an empty text", "stopped at once"],
)
def test_log_probabilities_of_no_text_are_none(background: bool, more: dict[str, Any]) -> None:
    rig = ResponsesRig("--reasoning-parser", "any", "--enable-kvcache", "--seed", "1")
    body = {"include": ["message.output_text.logprobs"], "top_logprobs": 2, "background": background, **more}
    made = rig.made(**body)
    if background:
        made = json.loads(reply_of(rig.visit(made["id"]), b"GET").body)
    assert made["status"] == "completed"
    texts = [text for item in made["output"] if item["type"] == "message" for text in item["content"]]
    assert all(bool(text["text"]) == bool(text["logprobs"]) for text in texts)


@pytest.mark.parametrize("stream", [False, True])
def test_a_prefill_tells_its_blocks(stream: bool) -> None:
    rig = ResponsesRig(*ECHO)
    body = {"kv_transfer_params": {"do_remote_decode": True}, "request_id": "me"}
    made = judge(rig.streamed(**body)) if stream else rig.made(**body)
    told = made["kv_transfer_params"]
    assert told["do_remote_prefill"] is True
    assert told["remote_request_id"].startswith("me")
    assert made["remote_block_ids"] == told["remote_block_ids"]
    rig.made(**body, background=True)
    kept = rig.found("me")["kv_transfer_params"]
    assert kept["remote_block_ids"] != told["remote_block_ids"]
    for _ in range(2):
        (*_, last) = parse(rig.ask("me?stream=true").body)
        assert last["response"]["kv_transfer_params"] == kept


# --- what is kept


def test_a_conversation_goes_on_from_response_to_response() -> None:
    rig = ResponsesRig(*ECHO)
    first = rig.made(input="one", instructions="be brief")
    second = judge(rig.streamed(input="two", previous_response_id=first["id"]))
    third = rig.made(input="three", previous_response_id=second["id"], enable_response_messages=True)
    assert third["input_messages"][0]["message"] == (
        "### user: one\n### assistant: one\n### user: two\n### assistant: two\n### user: three\n"
    )
    branch = rig.made(input="four", previous_response_id=first["id"], enable_response_messages=True)
    assert branch["input_messages"][0]["message"] == ("### user: one\n### assistant: one\n### user: four\n")


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_can_be_had_again_until_it_is_deleted(stream: bool) -> None:
    rig = ResponsesRig(*ECHO)
    made = judge(rig.streamed()) if stream else rig.made()
    assert rig.found(made["id"]) == made
    assert rig.ask(f"{made['id']}/cancel", b"POST").error["error"]["param"] == "response_id"
    assert rig.ask(f"{made['id']}?stream=true").error["error"]["param"] == "stream"
    assert rig.found(made["id"], b"DELETE") == {"id": made["id"], "object": "response", "deleted": True}
    for path, method in (
        ("", b"GET"),
        ("", b"DELETE"),
        ("/cancel", b"POST"),
        ("/input_items", b"GET"),
        ("?stream=true", b"GET"),
    ):
        reply = rig.ask(made["id"] + path, method)
        assert (reply.status, reply.error["error"]["param"]) == (404, "response_id")


@pytest.mark.parametrize("store", [False, None])
@pytest.mark.parametrize("stream", [False, True])
def test_a_response_that_is_not_to_be_stored_is_not(store: bool | None, stream: bool) -> None:
    rig = ResponsesRig(*ECHO)
    made = judge(rig.streamed(store=store)) if stream else rig.made(store=store)
    assert rig.ask(made["id"]).status == 404
    assert rig.create(previous_response_id=made["id"]).status == 404


def test_a_server_may_keep_nothing_as_vllm_does() -> None:
    rig = ResponsesRig(*ECHO, "--max-stored-responses", "0")
    assert rig.ask(rig.made()["id"]).status == 404
    error = rig.create(background=True).error["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", "background")


def test_the_store_is_bounded() -> None:
    rig = ResponsesRig(*ECHO, "--max-stored-responses", "2")
    ids = [rig.made()["id"] for _ in range(3)]
    assert [rig.ask(name).status for name in ids] == [404, 200, 200]


def test_a_client_that_leaves_leaves_nothing_behind() -> None:
    rig = ResponsesRig(*PACED)
    client = rig.send(stream=True, request_id="me")
    client.fin()
    rig.clock.pump([1, 1, 1])
    assert rig.rank.engine.idle
    assert rig.ask("me").status == 404


def test_input_items_page_by_page() -> None:
    rig = ResponsesRig(*ECHO)
    items = [{"role": "user", "content": str(number), "big": 2**80} for number in range(5)]
    made = rig.made(input=[{**items[0], "id": "first"}, *items[1:]])
    listed = rig.found(f"{made['id']}/input_items?order=asc&limit=3")
    assert [item["content"] for item in listed["data"]] == ["0", "1", "2"]
    assert (listed["object"], listed["first_id"], listed["has_more"]) == ("list", "first", True)
    rest = rig.found(f"{made['id']}/input_items?order=asc&after={listed['last_id']}")
    assert [item["content"] for item in rest["data"]] == ["3", "4"]
    assert rest["has_more"] is False
    backwards = rig.found(f"{made['id']}/input_items")
    assert [item["content"] for item in backwards["data"]] == ["4", "3", "2", "1", "0"]
    (item,) = rig.found(f"{rig.made(input='hi')['id']}/input_items")["data"]
    assert item["content"] == [{"type": "input_text", "text": "hi"}]
    for query in ("limit=0", "limit=101", "limit=x", "order=up", "after=none"):
        assert rig.ask(f"{made['id']}/input_items?{query}").status == 400


# --- in the background


def test_a_response_in_the_background_goes_through_its_states() -> None:
    rig = ResponsesRig(*PACED, "--max-num-seqs", "1")
    first = rig.made(background=True, input="one two")
    second = rig.made(background=True, input="three")
    assert (first["status"], first["output"], first["usage"]) == ("queued", [], None)
    assert first["background"] is True
    assert rig.found(first["id"]) == {**first, "status": "in_progress"}
    assert rig.found(second["id"]) == second
    rig.clock.pump([1, 1])
    done = rig.found(first["id"])
    assert (done["status"], text_of(done["output"][0]), done["usage"]) == ("completed", "one two", USAGE)
    assert rig.found(second["id"])["status"] == "in_progress"
    rig.clock.pump([1])
    assert rig.found(second["id"])["status"] == "completed"
    assert rig.create(previous_response_id=second["id"], stream=True).status == 200


def test_a_client_may_leave_and_come_back_for_the_rest() -> None:
    rig = ResponsesRig(*PACED)
    client = rig.send(background=True, stream=True, input="one two three four")
    rig.clock.pump([1, 1])
    seen = parse(reply_of(client).body)
    name = seen[0]["response"]["id"]
    client.fin()
    rig.clock.pump([0, 0])
    late = rig.visit(f"{name}?stream=true&starting_after={seen[-1]['sequence_number']}")
    early = rig.visit(f"{name}?stream=true")
    cut = rig.visit(f"{name}?stream=true&starting_after=1")
    assert parse(reply_of(early, b"GET").body) == seen
    assert reply_of(late, b"GET").body == b""
    rig.clock.pump([1, 1])
    everything = parse(reply_of(early, b"GET").body)
    ended = judge(everything)
    assert everything[: len(seen)] == seen
    assert parse(reply_of(late, b"GET").body) == everything[len(seen) :]
    assert parse(reply_of(cut, b"GET").body) == everything[2:]
    assert rig.found(name) == ended
    for start in range(-2, len(everything) + 2):
        again = rig.ask(f"{name}?stream=true&starting_after={start}")
        assert again.complete
        assert parse(again.body) == everything[max(start + 1, 0) :]
    assert parse(rig.ask(f"{name}?stream=true").body) == everything


def test_readers_that_leave_cost_nothing_more() -> None:
    rig = ResponsesRig(*PACED)
    name = rig.made(background=True)["id"]
    for _ in range(20):
        rig.visit(f"{name}?stream=true").fin()
        rig.clock.pump([0, 0])
    ((sequence, _),) = rig.rank.engine._running.items()
    background = sequence.sink
    assert isinstance(background, Background)
    assert len(background._followers) <= 1
    assert not hasattr(background, "request"), "the connection is kept with the response"


def test_a_long_reply_is_replayed_in_turns() -> None:
    rig = ResponsesRig()
    name = rig.made(background=True, ignore_eos=True)["id"]
    client = rig.visit(f"{name}?stream=true")
    assert not reply_of(client, b"GET").complete
    rig.clock.pump([0.01] * 20)
    ended = judge(parse(reply_of(client, b"GET").body))
    assert ended == rig.found(name)
    assert ended["usage"]["output_tokens"] > 1000


@pytest.mark.parametrize("tokens", [None, 0, 2])
def test_cancelling_ends_it_and_its_streams(tokens: int | None) -> None:
    rig = ResponsesRig(*PACED, "--max-num-seqs", "1")
    if tokens is None:
        rig.made(background=True, input="a b c d e f")
    client = rig.send(background=True, stream=True, input="one two three four", request_id="me")
    rig.clock.pump([1.0] * (tokens or 0))
    cancelled = rig.found("me/cancel", b"POST")
    assert (cancelled["status"], cancelled["output"], cancelled["usage"]) == ("cancelled", [], None)
    assert rig.found("me") == cancelled
    reply = reply_of(client)
    assert reply.complete
    events = parse(reply.body)
    assert (events[-1]["type"], events[-1]["response"]) == ("response.failed", cancelled)
    assert parse(rig.ask("me?stream=true").body) == events
    after = events[-2]["sequence_number"]
    assert parse(rig.ask(f"me?stream=true&starting_after={after}").body) == events[-1:]
    again = rig.ask("me/cancel", b"POST")
    assert (again.status, again.error["error"]["param"]) == (400, "response_id")
    rig.clock.pump([10.0] * 10)
    assert rig.rank.engine.idle
    assert rig.found("me") == cancelled


def test_deleting_a_running_response_ends_it() -> None:
    rig = ResponsesRig(*PACED)
    name = rig.made(background=True)["id"]
    rig.found(name, b"DELETE")
    assert rig.rank.engine.idle
    assert rig.ask(name).status == 404


def test_a_response_in_the_background_that_is_given_up_is_failed() -> None:
    rig = ResponsesRig(*PACED)
    name = rig.made(background=True)["id"]
    client = rig.visit(f"{name}?stream=true")
    rig.rank.driver.give_up()
    found = rig.found(name)
    assert (found["status"], found["error"]["code"]) == ("failed", "server_error")
    assert parse(reply_of(client, b"GET").body)[-1]["response"] == found


def test_a_response_in_the_background_whose_reply_cannot_be_written_is_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = ResponsesRig()
    monkeypatch.setattr(rig.rank.engine, "_write", lambda ask: 1 / 0)
    with capturedLogs():
        made = rig.made(background=True)
        events = rig.streamed(background=True)
    assert rig.found(made["id"])["status"] == "failed"
    assert events[-1]["type"] == "response.failed"


def test_one_id_twice_is_the_latter_response() -> None:
    rig = ResponsesRig(*PACED)
    rig.made(background=True, request_id="me", input="one")
    rig.made(background=True, request_id="me", input="two")
    rig.clock.pump([1])
    assert text_of(rig.found("me")["output"][0]) == "two"


def test_many_log_probabilities_are_listed_beside_everybody_elses_tokens() -> None:
    rig = ResponsesRig()
    asked = {"include": ["message.output_text.logprobs"], "top_logprobs": 20, "ignore_eos": True}
    name = rig.made(background=True, **asked)["id"]
    rig.clock.pump([0.01] * 10)
    made = rig.found(name)
    assert len(made["output"][0]["content"][0]["logprobs"]) == made["usage"]["output_tokens"]


@pytest.mark.parametrize("query", ["stream=maybe", "stream=true&starting_after=x", "starting_after=1.5"])
def test_queries_that_are_none(query: str) -> None:
    rig = ResponsesRig(*ECHO)
    name = rig.made(background=True)["id"]
    error = rig.ask(f"{name}?{query}").error["error"]
    assert error["type"] == "Bad Request"
    assert error["param"].startswith("query.")
