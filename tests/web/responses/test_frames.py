"""Streams of responses: the order, numbers and indexes of events, whatever the reply is made of."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from llmdsim.engine.sequence import Sequence
from llmdsim.reply.ask import Ask
from llmdsim.reply.reply import Part, Reply, TextReply
from llmdsim.reply.stopping import held_back
from llmdsim.tokenization import Layout
from llmdsim.tokenization.builtin import BuiltinTokenizer
from llmdsim.tokenization.prompt import Prompt
from llmdsim.web.context import Served
from llmdsim.web.reply_head import ReplyHead
from llmdsim.web.responses.frames import ResponseFrames
from llmdsim.web.responses.logprobs import ResponseLogprobs
from llmdsim.web.responses.request import ResponsesRequest
from llmdsim.web.responses.response import Response
from llmdsim.web.responses.response_object import ResponseObject
from llmdsim.web.sampling import Sampling
from llmdsim.web.wants import ChoiceWants, ReplyWants
from tests.web.responses.events import judge, parse, text_of
from tests.web.responses.rig import Said, parted

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "f"},
    {"type": "custom", "name": "c"},
    {"type": "namespace", "name": "ns", "description": "", "tools": [{"type": "function", "name": "g"}]},
]
PROMPT = Prompt(BuiltinTokenizer(), "one two")

words = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=12)
parts = st.one_of(
    st.tuples(st.just(Part("text")), words),
    st.tuples(st.just(Part("reasoning")), words),
    st.tuples(st.sampled_from([Part("call", "f"), Part("call", "ns__g")]), words),
    st.tuples(st.just(Part("call", "c")), words.map(lambda text: json.dumps({"input": text}))),
)
cuts = st.lists(st.integers(0, 400), max_size=30)


def response_of(parted: bool, shape: ResponseLogprobs | None = None, **fields: Any) -> Response:
    request = ResponsesRequest(input="one two", tools=TOOLS, **fields)
    sampled = Sampling(max_tokens=9, requested_max=None, logprobs=None)
    head = ReplyHead("resp_1", 1, Served("m", b'"m"'), b'"x"')
    choice = ChoiceWants(PROMPT, logprobs=shape, parted=parted)
    wants = ReplyWants(choices=[choice], prompt_tokens=2)
    return Response(request, ResponseObject(request, sampled, head), wants, shape)


def sequence_of(reply: Reply) -> Sequence:
    ask = Ask(prompt=PROMPT, echoed=PROMPT, max_tokens=9, requested_max=None)
    sequence = Sequence(ask, None)  # type: ignore[arg-type]
    sequence.reply = reply
    sequence.revealed = reply.total
    sequence.finish_reason = reply.finish_reason
    return sequence


def stream(response: Response, reply: Reply, stops: list[int], early: bool = False) -> list[Any]:
    """The events of a reply whose steps are rendered up to each of `stops` at a time."""
    sequence = sequence_of(reply)
    frames = ResponseFrames(response)
    out = [frames.early()] if early else []
    bounds = sorted({stop % (reply.total + 1) for stop in stops} - {0, reply.total})
    start = -1
    for stop in [*bounds, reply.total]:
        out.append(frames.render(0, sequence, start, stop, stop == reply.total))
        start = stop
    out.append(frames.end(sequence, reply.total, 0))
    return parse(b"".join(out))


def whole(response: Response, reply: Reply) -> Any:
    return json.loads(response.body([sequence_of(reply)], reply.total, 0))


def alike(streamed: Any, whole: Any) -> None:
    """The two are the same but for the status of reasoning, which is only told in streams (vLLM)."""
    for item in streamed["output"]:
        if item["type"] == "reasoning":
            item["status"] = None
    assert streamed == whole


@settings(max_examples=300, deadline=None)
@given(
    said=st.lists(parts, min_size=1, max_size=6),
    cuts=cuts,
    stops=st.lists(st.integers(0, 500), max_size=8),
    reason=st.sampled_from(["stop", "length"]),
    early=st.booleans(),
    logprobs=st.sampled_from([None, 0, 2]),
)
def test_any_parts_cut_into_any_tokens_make_a_well_formed_stream(
    said: list[Said], cuts: list[int], stops: list[int], reason: str, early: bool, logprobs: int | None
) -> None:
    reply = parted(said, cuts, reason)
    shape = None if logprobs is None else ResponseLogprobs(logprobs, False, 2**32)
    response = response_of(True, shape)
    ended = judge(stream(response, reply, stops, early))
    assert ended["status"] == {"stop": "completed", "length": "incomplete"}[reason]
    texts = []
    for part, text in said:
        texts.append(json.loads(text)["input"] if part.name == "c" else text)
    assert [text_of(item) for item in ended["output"]] == texts
    alike(ended, whole(response, reply))


@settings(max_examples=100, deadline=None)
@given(
    texts=st.lists(words, max_size=20),
    held=st.integers(0, 9),
    stops=st.lists(st.integers(0, 20), max_size=5),
    logprobs=st.sampled_from([None, 0, 2]),
)
def test_any_plain_text_makes_a_well_formed_stream(
    texts: list[str], held: int, stops: list[int], logprobs: int | None
) -> None:
    reply = TextReply(Layout.of(texts, list(range(len(texts)))), "stop", held_back=held)
    shape = None if logprobs is None else ResponseLogprobs(logprobs, False, 2**32)
    response = response_of(False, shape)
    events = stream(response, reply, stops)
    ended = judge(events)
    finished = whole(response, reply)
    if not "".join(texts):
        # As vLLM has it.
        assert ended["output"] == []
        assert [item["content"] for item in finished["output"]] == [[]]
        return
    assert ended == finished
    (item,) = ended["output"]
    told = [entry for event in events for entry in event.get("logprobs", ())]
    listed = item["content"][0]["logprobs"]
    if logprobs is None:
        assert (told, listed) == ([], None)
        return
    assert [entry["token"] for entry in listed] == texts
    assert [{**entry, "bytes": None} for entry in listed][: len(told)] == [
        {
            **{"token": entry["token"], "bytes": None, "logprob": entry["logprob"]},
            "top_logprobs": [
                {"token": top["token"], "bytes": list(top["token"].encode()), "logprob": top["logprob"]}
                for top in entry["top_logprobs"]
            ],
        }
        for entry in told
    ]


def test_the_order_and_places_of_all_kinds_of_items() -> None:
    said = [
        (Part("reasoning"), "why"),
        (Part("text"), "so"),
        (Part("call", "f"), "{}"),
        (Part("call", "ns__g"), "{}"),
        (Part("call", "c"), '{"input": "x\\ny"}'),
    ]
    events = stream(response_of(True), parted(said, [], "length"), [])
    assert [
        (event["type"].removeprefix("response."), event.get("output_index"), event.get("delta"))
        for event in events
    ] == [
        ("created", None, None),
        ("in_progress", None, None),
        ("output_item.added", 0, None),
        ("content_part.added", 0, None),
        ("reasoning_text.delta", 0, "why"),
        ("reasoning_text.done", 0, None),
        ("content_part.done", 0, None),
        ("output_item.done", 0, None),
        ("output_item.added", 1, None),
        ("content_part.added", 1, None),
        ("output_text.delta", 1, "so"),
        ("output_text.done", 1, None),
        ("content_part.done", 1, None),
        ("output_item.done", 1, None),
        ("output_item.added", 2, None),
        ("function_call_arguments.delta", 2, "{}"),
        ("function_call_arguments.done", 2, None),
        ("output_item.done", 2, None),
        ("output_item.added", 3, None),
        ("function_call_arguments.delta", 3, "{}"),
        ("function_call_arguments.done", 3, None),
        ("output_item.done", 3, None),
        ("output_item.added", 4, None),
        ("custom_tool_call_input.delta", 4, "x\ny"),
        ("custom_tool_call_input.done", 4, None),
        ("output_item.done", 4, None),
        ("incomplete", None, None),
    ]
    reasoning, message, plain, inside, custom = judge(events)["output"]
    assert reasoning["content"] == [{"text": "why", "type": "reasoning_text"}]
    assert message["content"] == [{"annotations": [], "text": "so", "type": "output_text", "logprobs": None}]
    assert (plain["name"], plain["namespace"]) == ("f", None)
    assert (inside["name"], inside["namespace"]) == ("g", "ns")
    assert (custom["name"], custom["input"]) == ("c", "x\ny")
    assert plain["call_id"].startswith("chatcmpl-tool-")
    assert len({item.get("call_id") for item in (plain, inside, custom)}) == 3


def test_a_custom_call_cut_short_shows_what_there_was_of_its_input() -> None:
    response = response_of(True)
    ended = judge(stream(response, parted([(Part("call", "c"), '{"input": "abc\\')], [], "length"), []))
    assert ended["output"][0]["input"] == "abc"


def test_the_last_events_of_a_cut_reply_say_so() -> None:
    *_, item, end = stream(response_of(False), TextReply(Layout.of(["a"], [1]), "length"), [])
    assert item["item"]["status"] == "incomplete"
    assert end["type"] == "response.incomplete"
    assert end["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_text_held_back_before_a_stop_takes_its_log_probabilities_along() -> None:
    ask = Ask(prompt=PROMPT, echoed=PROMPT, max_tokens=9, requested_max=None, stop=("xxxx",))
    reply = TextReply(Layout.of(["a", "b", "c", "d", "e"], [1, 2, 3, 4, 5]), "stop", held_back=held_back(ask))
    events = stream(response_of(False, ResponseLogprobs(0, False, 2**32)), reply, [1, 2, 3, 4])
    deltas = [event for event in events if event["type"] == "response.output_text.delta"]
    assert [(event["delta"], len(event["logprobs"])) for event in deltas] == [("a", 4), ("bcde", 1)]


def test_a_token_of_a_stop_that_is_not_shown_is_listed_all_the_same() -> None:
    reply = TextReply(Layout.of(["a", "b"], [1, 2]), "stop", "b", shown=1)
    response = response_of(False, ResponseLogprobs(0, False, 2**32))
    ended = judge(stream(response, reply, [1]))
    assert [entry["token"] for entry in ended["output"][0]["content"][0]["logprobs"]] == ["a", "b"]
    assert ended == whole(response, reply)
