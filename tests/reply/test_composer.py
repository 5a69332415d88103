"""Replies made to a plan."""

import json
import re
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.reply.bank import SENTENCES
from llmdsim.reply.parts import PartedReply
from llmdsim.reply.plan import Constraint, Function, Plan
from llmdsim.reply.reply import Reply
from tests.reply.asks import TOKENIZER, ask, author, requested

WEATHER = Function(
    "get_weather",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
        "required": ["city", "days"],
    },
)
NOTHING = Function("now")
PLENTY = 1000
ODD = 'é | ü 日本 \N{GRINNING FACE} "q" \\'


def written(plan: Plan, max_tokens: int = PLENTY, seed: int = 1, **others: Any) -> Reply:
    return author().write(ask(max_tokens=max_tokens, plan=plan, seed=seed, **others))


def calls_of(reply: Reply) -> list[tuple[str, str]]:
    return [
        (part.name, text)
        for part, text in zip(reply.parts, reply.part_texts(), strict=True)
        if part.kind == "call"
    ]


def test_a_required_call_has_arguments_by_its_schema() -> None:
    ((name, arguments),) = calls_of(written(Plan(functions=(WEATHER,), calls="required")))
    assert name == "get_weather"
    given = json.loads(arguments)
    assert isinstance(given["city"], str)
    assert given["days"] >= 1


@pytest.mark.parametrize("parameters", [None, {}, {"type": "object"}, {"properties": {}}])
def test_a_function_without_parameters_is_called_with_an_empty_object(parameters: Any) -> None:
    plan = Plan(functions=(Function("now", parameters),), calls="named")
    assert calls_of(written(plan)) == [("now", "{}")]


def test_how_many_calls_there_are() -> None:
    functions = tuple(Function(name) for name in "abcd")
    counts: dict[str, Counter[int]] = {}
    for calls in ("auto", "required", "named"):
        writer = author(tool_call_extra_call_probability=45)
        plan = Plan(functions=functions, calls=calls)  # type: ignore[arg-type]
        counts[calls] = Counter(
            len(calls_of(writer.write(ask(max_tokens=PLENTY, plan=plan)))) for _ in range(2000)
        )
    # facts: each further call comes with the probability given, up to as many as there are functions
    assert counts["auto"][0] / 2000 == pytest.approx(0.55, abs=0.05)
    assert counts["auto"][1] / 2000 == pytest.approx(0.45 * 0.55, abs=0.05)
    assert set(counts["auto"]) == {0, 1, 2, 3, 4}
    assert set(counts["required"]) == {1, 2, 3, 4}
    assert set(counts["named"]) == {1}


@pytest.mark.parametrize(("probability", "calls"), [(0, 0), (100, 4)])
def test_the_extremes_of_the_probability(probability: int, calls: int) -> None:
    writer = author(tool_call_extra_call_probability=probability)
    plan = Plan(functions=tuple(Function(name) for name in "abcd"), calls="auto")
    assert len(calls_of(writer.write(ask(max_tokens=PLENTY, plan=plan)))) == calls


def test_calls_that_may_not_be_parallel_are_one() -> None:
    writer = author(tool_call_extra_call_probability=100)
    plan = Plan(functions=(WEATHER, NOTHING), calls="auto", parallel=False)
    assert len(calls_of(writer.write(ask(max_tokens=PLENTY, plan=plan)))) == 1


def test_without_a_call_there_is_text() -> None:
    reply = author(tool_call_extra_call_probability=0).write(
        ask(max_tokens=PLENTY, plan=Plan(functions=(NOTHING,), calls="auto"))
    )
    assert [part.kind for part in reply.parts] == ["text"]


def test_echo_mode_calls_too_and_echoes_where_it_does_not() -> None:
    plan = Plan(functions=(NOTHING,), calls="required")
    assert calls_of(author(mode="echo").write(ask("hello", max_tokens=PLENTY, plan=plan)))
    auto = Plan(functions=(NOTHING,), calls="auto")
    writer = author(mode="echo", tool_call_extra_call_probability=0)
    assert writer.write(ask("hello you", max_tokens=PLENTY, plan=auto)).part_texts() == ["hello you"]


def test_a_call_cut_by_max_tokens_ends_by_length() -> None:
    plan = Plan(functions=(WEATHER,), calls="required")
    whole = written(plan)
    assert whole.finish_reason == "stop"
    # up to the call's markup, into its arguments, and all but the last token
    for most in (3, whole.total - 4, whole.total - 1):
        cut = written(plan, max_tokens=most)
        assert (cut.total, cut.finish_reason) == (most, "length")
        assert all(calls_of(whole)[0][1].startswith(arguments) for _, arguments in calls_of(cut))
    assert calls_of(written(plan, max_tokens=3)) == []


def test_names_and_arguments_in_any_script_are_whole() -> None:
    function = Function(
        "wetter_münchen",
        {"type": "object", "properties": {"o": {"enum": [ODD]}}, "required": ["o"]},
    )
    ((name, arguments),) = calls_of(written(Plan(functions=(function,), calls="named")))
    assert name == "wetter_münchen"
    assert json.loads(arguments) == {"o": ODD}


def test_reasoning_comes_before_text_and_counts() -> None:
    reply = author().write(requested(100, plan=Plan(reasoning="shown"), seed=3))
    assert [part.kind for part in reply.parts] == ["reasoning", "text"]
    thoughts, text = reply.part_texts()
    assert thoughts
    assert text
    assert 0 < reply.reasoning_tokens(reply.total) < reply.total
    assert reply.reasoning_tokens(reply.total) == len(TOKENIZER.encode(thoughts))


def test_hidden_reasoning_takes_its_tokens_all_the_same() -> None:
    shown = author().write(requested(100, plan=Plan(reasoning="shown"), seed=3))
    hidden = author().write(requested(100, plan=Plan(reasoning="hidden"), seed=3))
    assert [part.kind for part in hidden.parts] == ["text"]
    assert hidden.part_texts() == shown.part_texts()[1:]
    assert hidden.total == shown.total
    assert hidden.reasoning_tokens(hidden.total) == shown.reasoning_tokens(shown.total) > 0


@pytest.mark.parametrize("budget", [0, 1, 5])
def test_reasoning_keeps_to_its_budget(budget: int) -> None:
    reply = author().write(requested(100, plan=Plan(reasoning="shown", reasoning_budget=budget), seed=3))
    assert reply.reasoning_tokens(reply.total) == budget


def test_reasoning_comes_before_calls_and_constrained_text() -> None:
    plan = Plan(reasoning="shown", functions=(NOTHING,), calls="required", parallel=False)
    assert [part.kind for part in written(plan).parts] == ["reasoning", "call"]
    plan = Plan(reasoning="shown", constraint=Constraint("choice", ("yes", "no")))
    assert written(plan).part_texts()[1] in ("yes", "no")


def test_constrained_texts() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    assert isinstance(json.loads(written(Plan(constraint=Constraint("json", schema))).text())["a"], int)
    assert isinstance(json.loads(written(Plan(constraint=Constraint("json_object"))).text()), dict)
    assert re.fullmatch(
        r"[a-f]{3}-\d+", written(Plan(constraint=Constraint("regex", r"[a-f]{3}-\d+"))).text()
    )
    texts = {
        written(Plan(constraint=Constraint("choice", ("yes", "no"))), seed=seed).text() for seed in range(30)
    }
    assert texts == {"yes", "no"}


def test_a_grammar_is_answered_in_plain_text() -> None:
    reply = written(Plan(constraint=Constraint("grammar", "root ::= x")))
    assert any(sentence in reply.text() for sentence in SENTENCES)


def test_calls_come_before_a_constraint() -> None:
    plan = Plan(functions=(NOTHING,), calls="required", constraint=Constraint("choice", ("yes",)))
    assert next(part.kind for part in written(plan).parts) == "call"
    plan = Plan(functions=(NOTHING,), calls="auto", constraint=Constraint("choice", ("yes",)))
    writer = author(tool_call_extra_call_probability=0)
    assert writer.write(ask(max_tokens=PLENTY, plan=plan)).part_texts() == ["yes"]


def test_what_cannot_follow_its_schema_is_counted() -> None:
    writer = author()
    plan = Plan(constraint=Constraint("json", {"not": {}}))
    json.loads(writer.write(ask(max_tokens=PLENTY, plan=plan)).text())
    assert writer.composer.nonconforming == 1


@pytest.mark.parametrize(
    ("option", "finish"), [({"ignore_eos": True}, "length"), ({"min_tokens": 60}, "stop")]
)
def test_an_end_that_may_not_be_yet_is_put_off_without_text(option: dict[str, Any], finish: str) -> None:
    plan = Plan(constraint=Constraint("choice", ("yes",)))
    reply = written(plan, max_tokens=80, **option)
    assert reply.text() == "yes"
    assert (reply.total, reply.finish_reason) == (80 if finish == "length" else 60, finish)


def test_stop_strings_end_planned_replies() -> None:
    reply = written(Plan(constraint=Constraint("choice", ("one two three",))), stop=("two",))
    assert (reply.text(), reply.finish_reason, reply.stop_reason) == ("one ", "stop", "two")


def test_one_seed_says_the_same_again() -> None:
    plan = Plan(reasoning="shown", functions=(WEATHER, NOTHING), calls="auto")
    first, second = (written(plan, seed=9) for _ in range(2))
    assert (first.parts, first.part_texts()) == (second.parts, second.part_texts())


@given(
    st.integers(1, 60),
    st.sampled_from(["none", "auto", "required", "named"]),
    st.sampled_from(["none", "shown", "hidden"]),
    st.sampled_from([None, Constraint("choice", ("é日本",)), Constraint("json_object")]),
    st.booleans(),
    st.integers(0, 20),
    st.sampled_from([(), ("e",), ("}",)]),
)
def test_every_plan_keeps_its_bounds(
    most: int,
    calls: Any,
    reasoning: Any,
    constraint: Constraint | None,
    ignore_eos: bool,
    least: int,
    stop: tuple[str, ...],
) -> None:
    plan = Plan(calls=calls, functions=(WEATHER, NOTHING), reasoning=reasoning, constraint=constraint)
    least = min(least, most)
    reply = written(plan, max_tokens=most, ignore_eos=ignore_eos, min_tokens=least, stop=stop)
    assert isinstance(reply, PartedReply)
    assert 1 <= reply.total <= most
    if not (stop and reply.stop_reason):
        assert reply.total >= least
        assert reply.finish_reason == ("length" if reply.total == most else "stop")


def test_arguments_that_cannot_follow_their_schema_count_once() -> None:
    writer = author()
    function = Function("f", {"type": "array", "not": {}})
    writer.write(ask(max_tokens=PLENTY, plan=Plan(functions=(function,), calls="named")))
    assert writer.composer.nonconforming == 1
