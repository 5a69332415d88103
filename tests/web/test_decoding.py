"""Bodies that are no request: malformed, unreadable, too deep; and the lenient reading of near misses."""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta

from llmdsim.web import coercion, decoding
from llmdsim.web.chat_request import ChatRequest, decode_chat
from llmdsim.web.decoding import MAX_NESTING, Problem
from llmdsim.web.errors import ApiError
from llmdsim.web.sampling import Limits, sampling
from llmdsim.web.text_request import TextRequest, decode_text, prompts

MESSAGES = b'"messages":[{"role":"user","content":"hi"}]'


def refused(body: bytes, content_type: str | None = None) -> ApiError:
    with pytest.raises(ApiError) as caught:
        decode_chat(body, content_type)
    assert caught.value.status == 400
    assert json.loads(caught.value.body)["error"]["code"] == 400
    return caught.value


@pytest.mark.parametrize(
    ("body", "kind", "param"),
    [
        (b'{"messages":[', "json_invalid", "body.13"),
        (b'{"model":"a",}', "json_invalid", None),
        (b"{} x", "json_invalid", "body.3"),
        (b'{"a":"\x01"}', "json_invalid", "body.6"),
        (b"{'a':1}", "json_invalid", "body.1"),
        (b'{"n":01}', "json_invalid", None),
        (b"", "missing", "body"),
        (b"null", "missing", "body"),
        (b"[]", "model_attributes_type", "body"),
        (b"5", "model_attributes_type", "body"),
        (b'"text"', "model_attributes_type", "body"),
        (b"{" + MESSAGES + b',"user":"\\ud800"}', "string_unicode", "body.user"),
        (b'{"messages":[{"role":"user","content":"\\udfff x"}]}', "string_unicode", "body.messages"),
        (b"{" + MESSAGES + b',"user":"\xed\xa0\x80"}', "string_unicode", "body.user"),
    ],
)
def test_bodies_of_the_wrong_form(body: bytes, kind: str, param: str | None) -> None:
    error = refused(body)
    assert error.type == "Bad Request"
    assert error.message.startswith("1 validation error:\n  {'type': '" + kind + "'")
    if param is not None:
        assert error.param == param


@pytest.mark.parametrize(
    "body",
    [
        b'{"messages":[{"role":"user","content":"\xff"}]}',
        b"{" + MESSAGES + b',"unknown":"\xff\xfe"}',
        b"{" + MESSAGES + b',"unknown":NaN,"other":"\xff\xfe"}',
        b"\xff\xfe\xfd",
        b"{" + MESSAGES + b',"max_tokens":' + b"9" * 5000 + b"}",
    ],
    ids=["content", "ignored key", "ignored key, slow path", "nothing else", "huge integer"],
)
def test_unreadable_bodies(body: bytes) -> None:
    error = refused(body)
    assert (error.type, error.param) == ("Bad Request", None)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'[{"a":'])
@pytest.mark.parametrize(
    "frame", [b"%s", b'{"unknown":%s', b"{" + MESSAGES + b',"tools":%s', b'{"messages":[{"a":%s']
)
def test_endless_nesting_is_refused(opening: bytes, frame: bytes) -> None:
    error = refused(frame % (opening * 100_000))
    assert "levels deep" in error.message


def nested(levels: int) -> bytes:
    """A chat whose deepest value sits under `levels` objects and arrays, the body's own included."""
    inner = b"[" * (levels - 2) + b"]" * (levels - 2)
    return b"{" + MESSAGES + b',"kv_transfer_params":{"a":' + inner + b"}}"


@pytest.mark.parametrize("extra", [b"", b', "max_tokens": "5"'], ids=["exact", "lenient"])
def test_nesting_is_bounded_exactly(extra: bytes) -> None:
    decode_chat(nested(MAX_NESTING)[:-1] + extra + b"}")
    assert "levels deep" in refused(nested(MAX_NESTING + 1)[:-1] + extra + b"}").message


def test_many_brackets_side_by_side_are_not_deep() -> None:
    parts = b",".join([b'{"type":"text","text":"[[[["}'] * 1000)
    request = decode_chat(b'{"messages":[{"role":"user","content":[' + parts + b"]}]}")
    assert len(request.messages[0]["content"]) == 1000


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-32", "utf-32-be"])
def test_other_unicode_encodings_and_byte_order_marks_are_read(encoding: str) -> None:
    text = '{"messages":[{"role":"user","content":"héllo"}]}'
    assert decode_chat(text.encode(encoding)).messages[0]["content"] == "héllo"
    assert codecs.lookup(encoding)


@pytest.mark.parametrize(
    "content_type",
    [
        None,
        "",
        "application/json",
        "application/json; charset=utf-8",
        "application/x-www-form-urlencoded",
        "text/plain",
    ],
)
def test_any_media_type_but_a_form_is_read(content_type: str | None) -> None:
    assert decode_chat(b"{" + MESSAGES + b"}", content_type).messages
    assert decode_text(b'{"prompt":"hi"}', content_type).prompt == "hi"


@pytest.mark.parametrize("content_type", ["multipart/form-data; boundary=x", " Multipart/Form-Data"])
def test_forms_are_refused(content_type: str) -> None:
    error = refused(b"{" + MESSAGES + b"}", content_type)
    assert (error.type, error.param) == ("Bad Request", None)
    assert "application/json" in error.message
    with pytest.raises(ApiError):
        decode_text(b'{"prompt":"hi"}', content_type)


def test_half_a_surrogate_pair_is_found_in_any_encoding() -> None:
    text = '{"messages":[{"role":"user","content":"\ud800 x"}]}'
    assert refused(text.encode("utf-16", "surrogatepass")).param == "body.messages"


def test_the_last_of_equal_keys_wins() -> None:
    assert decode_chat(b"{" + MESSAGES + b',"n":2,"n":3}').n == 3
    assert decode_chat(b"{" + MESSAGES + b',"n":"2","n":"3"}').n == 3


class Everything(msgspec.Struct):
    """One field of each kind the requests use."""

    i: int | None = None
    f: float | None = None
    b: bool | None = None
    s: str | None = None
    ids: list[int] | None = None
    few: str | Annotated[list[str], Meta(max_length=2)] | None = None
    word: Literal["left", "right"] | None = None
    small: Annotated[int, Meta(ge=-1, le=5)] | None = None
    mixed: dict[str, str | int | float | list[str | int | float]] | None = None
    free: dict[str, Any] | None = None


def read(**fields: Any) -> tuple[dict[str, Any], list[Problem]]:
    problems: list[Problem] = []
    return coercion.read(Everything, fields, problems), problems


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("i", "5", 5),
        ("i", " 5 ", 5),
        ("i", "-5", -5),
        ("i", "+5", 5),
        ("i", "5.0", 5),
        ("i", "1_000", 1000),
        ("i", 5.0, 5),
        ("i", 1e18, 10**18),
        ("i", True, 1),
        ("i", False, 0),
        ("i", 10**30, 10**30),
        ("i", None, None),
        ("f", "1.5", 1.5),
        ("f", " 1e5 ", 1e5),
        ("f", ".5", 0.5),
        ("f", "inf", math.inf),
        ("f", 5, 5.0),
        ("f", True, 1.0),
        ("f", "-Infinity", -math.inf),
        ("b", "true", True),
        ("b", "YES", True),
        ("b", "off", False),
        ("b", "n", False),
        ("b", 1, True),
        ("b", 0.0, False),
        ("ids", ["1", 2.0, True], [1, 2, 1]),
        ("few", "stop", "stop"),
        ("few", ["a", "b"], ["a", "b"]),
        ("word", "left", "left"),
        ("small", "5", 5),
        ("small", -1.0, -1),
        (
            "mixed",
            {"a": True, "b": 1.5, "c": "x", "d": ["1", 2]},
            {"a": 1, "b": 1.5, "c": "x", "d": ["1", 2]},
        ),
        ("free", {"a": [None]}, {"a": [None]}),
    ],
)
def test_values_read_leniently(field: str, value: object, expected: object) -> None:
    result, problems = read(**{field: value})
    assert not problems
    assert result == {field: expected}
    assert type(result[field]) is type(expected)


def test_a_value_keeps_the_type_that_holds_it_exactly() -> None:
    result, problems = read(mixed={"f": 2.0, "i": 2, "s": "2", "l": [2.0, "2", 2]})
    assert not problems
    assert repr(result["mixed"]) == "{'f': 2.0, 'i': 2, 's': '2', 'l': [2.0, '2', 2]}"


@pytest.mark.parametrize(
    ("field", "value", "problems"),
    [
        ("i", "x", [("int_parsing", ("i",))]),
        ("i", "1e2", [("int_parsing", ("i",))]),
        ("i", "", [("int_parsing", ("i",))]),
        ("i", "٥", [("int_parsing", ("i",))]),
        ("i", 1.5, [("int_from_float", ("i",))]),
        ("i", 1e19, [("int_parsing_size", ("i",))]),
        ("i", "9" * 5000, [("int_parsing_size", ("i",))]),
        ("i", math.nan, [("finite_number", ("i",))]),
        ("i", [], [("int_type", ("i",))]),
        ("f", "hot", [("float_parsing", ("f",))]),
        ("f", "0x1p3", [("float_parsing", ("f",))]),
        ("f", [], [("float_type", ("f",))]),
        ("f", 10**400, [("float_type", ("f",))]),
        ("b", "maybe", [("bool_parsing", ("b",))]),
        ("b", 2, [("bool_parsing", ("b",))]),
        ("b", 0.5, [("bool_type", ("b",))]),
        ("b", [], [("bool_type", ("b",))]),
        ("s", 5, [("string_type", ("s",))]),
        ("s", True, [("string_type", ("s",))]),
        ("ids", 5, [("list_type", ("ids",))]),
        ("ids", [1, "x", None], [("int_parsing", ("ids", 1)), ("int_type", ("ids", 2))]),
        ("few", 5, [("string_type", ("few",)), ("list_type", ("few",))]),
        ("few", ["a", "b", "c"], [("string_type", ("few",)), ("too_long", ("few",))]),
        ("few", ["a", 5], [("string_type", ("few",)), ("string_type", ("few", 1))]),
        ("word", "up", [("literal_error", ("word",))]),
        ("word", [], [("literal_error", ("word",))]),
        ("small", 6, [("less_than_equal", ("small",))]),
        ("small", "-2", [("greater_than_equal", ("small",))]),
        ("mixed", 5, [("dict_type", ("mixed",))]),
        ("free", "x", [("dict_type", ("free",))]),
    ],
)
def test_values_that_cannot_be_read(field: str, value: object, problems: list[tuple[str, object]]) -> None:
    _, found = read(**{field: value})
    assert [(problem.type, problem.path) for problem in found] == problems


def test_all_problems_are_reported_together_and_ten_are_shown() -> None:
    _, found = read(i="x", f="y", b=[], ids=["z"] * 20)
    error = decoding.refusal(found)
    lines = error.message.splitlines()
    assert lines[0] == "23 validation errors:"
    assert len(lines) == 12
    assert lines[-1] == "  ...and 13 more errors"
    assert error.param == "body.i"


def test_a_problem_line_is_a_python_dictionary_with_containers_summed_up() -> None:
    error = decoding.refusal([Problem("less_than_equal", ("seed",), "too large", [1, 2], {"le": 5})])
    assert error.message == (
        "1 validation error:\n  {'type': 'less_than_equal', 'loc': 'body.seed', 'msg': 'too large', "
        "'input': '<list of 2 items>', 'ctx': {'le': 5}}"
    )


def test_long_input_is_cut() -> None:
    error = decoding.refusal(
        [Problem("string_type", ("a",), "m", "x" * 10_000), Problem("a", ("b",), "m" * 10_000)]
    )
    assert len(error.message) < 1500
    assert "x" * 200 + "...[truncated]" in error.message


def test_reading_a_hopeless_list_stops_early() -> None:
    _, found = read(ids=["x"] * 100_000)
    assert len(found) <= decoding.MAX_PROBLEMS + 1


number_texts = st.from_regex(r"\A[ \t]?[+-]?[1-9][0-9]{0,5}(\.[0-9]{1,3})?(e[0-9])?[ \n]?\Z")
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | number_texts
    | st.sampled_from(["true", "No", "t", "F", "0", "1", "nan", "inf", "", " ", "null", "None", "0x1", "1,5"])
    | st.lists(st.integers(), max_size=1)
)


@given(scalars)
def test_scalars_are_read_as_pydantic_reads_them(value: object) -> None:
    """pydantic is no dependency of ours; the test extra has it, through the OpenAI client."""
    pydantic = pytest.importorskip("pydantic")
    for kind, ours in ((int, coercion.integer), (float, coercion.number), (bool, coercion.boolean)):
        problems: list[Problem] = []
        result = ours(value, ("x",), problems)
        try:
            expected = pydantic.TypeAdapter(kind).validate_python(value)
        except pydantic.ValidationError:
            assert problems, f"{kind}: {value!r} was taken for {result!r}"
        else:
            assert not problems
            assert repr(result) == repr(expected)


def keys_of(struct: type[msgspec.Struct]) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(struct)]


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["1", "5.0", "true", "none", "auto", "text", "json_schema", "left", "user", "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "type", "text", "function", "name", "json", "include_usage", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)
message = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["system", "user", "assistant", "tool", "x"]),
        "content": st.text(max_size=5)
        | st.lists(st.fixed_dictionaries({"type": st.just("text"), "text": anything})),
    },
    optional={"tool_calls": anything, "reasoning_content": anything, "name": anything},
)


def some_of(struct: type[msgspec.Struct]) -> st.SearchStrategy[dict[str, Any]]:
    """A few of a request's fields, with anything in them."""
    return st.dictionaries(st.sampled_from(keys_of(struct)), anything, max_size=3)


everyday = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user"]), "content": st.text(max_size=5)}
)
conversations = st.lists(everyday, min_size=1, max_size=2) | st.lists(message, max_size=2)
chats = st.builds(dict.__or__, st.fixed_dictionaries({"messages": conversations}), some_of(ChatRequest))
prompt = (
    st.text(max_size=5) | st.lists(st.integers(-1, 9), max_size=3) | st.lists(st.text(max_size=2), max_size=3)
)
texts = st.builds(dict.__or__, st.fixed_dictionaries({"prompt": prompt}), some_of(TextRequest))
LIMITS = Limits(max_model_len=64, max_n=8, max_prompts=4, vocab_size=1000)


def answer(decode: Any, body: bytes, prompt_tokens: int) -> None:
    """Decode and size a request: it works or raises a 400 whose answer is valid JSON, nothing else."""
    error: ApiError | None = None
    try:
        request = decode(body)
        if isinstance(request, TextRequest):
            prompts(request, LIMITS)
        sized = sampling(request, prompt_tokens, LIMITS)
    except ApiError as raised:
        error = raised
    if error is not None:
        assert error.status == 400
        assert json.loads(error.body)["error"]["message"]
        assert len(error.body) < 20_000
    else:
        assert 1 <= sized.max_tokens <= LIMITS.max_model_len - prompt_tokens
        assert 0 <= sized.min_tokens <= sized.max_tokens
        assert 1 <= sized.n <= LIMITS.max_n


@given(st.binary(max_size=40) | st.text(alphabet='{}[]":,\\u0dn1eE.-tf ', max_size=40).map(str.encode))
def test_any_bytes_are_a_request_or_a_400(body: bytes) -> None:
    answer(decode_chat, body, 5)
    answer(decode_text, body, 5)


@given(chats, st.integers(0, 80))
def test_any_chat_shaped_object_is_a_request_or_a_400(body: dict[str, Any], prompt_tokens: int) -> None:
    answer(decode_chat, json.dumps(body).encode(), prompt_tokens)


@given(texts, st.integers(0, 80))
def test_any_text_shaped_object_is_a_request_or_a_400(body: dict[str, Any], prompt_tokens: int) -> None:
    answer(decode_text, json.dumps(body).encode(), prompt_tokens)


@given(chats)
def test_both_readings_of_a_chat_agree(body: dict[str, Any]) -> None:
    """A byte order mark sends a body the lenient way; it must come to what the quick way comes to."""
    assert outcome(decode_chat, json.dumps(body).encode()) == outcome(
        decode_chat, json.dumps(body).encode("utf-8-sig")
    )


@given(texts)
def test_both_readings_of_a_text_agree(body: dict[str, Any]) -> None:
    assert outcome(decode_text, json.dumps(body).encode()) == outcome(
        decode_text, json.dumps(body).encode("utf-8-sig")
    )


def outcome(decode: Any, body: bytes) -> object:
    try:
        return repr(decode(body))
    except ApiError as error:
        return error.body


@pytest.mark.parametrize("siblings", [[], [1, "a", None, True, 0.5], [[]], [{}, 1]])
@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: {"a": inner}], ids=["list", "dict"])
def test_depth_is_found_whatever_lies_beside_it(
    siblings: list[object], wrap: Callable[[object], object]
) -> None:
    value: object = []
    for _ in range(4):
        value = [*siblings, wrap(value), *siblings]
    # Nine: the innermost, and two for each round.
    assert not decoding.nested_too_deeply(value, 9)
    assert decoding.nested_too_deeply(value, 8)


def test_what_is_no_container_has_no_depth() -> None:
    assert not decoding.nested_too_deeply("text", 0)
    assert not decoding.nested_too_deeply([1, 2, 3], 1)
    assert decoding.nested_too_deeply([1, 2, 3], 0)
