"""The error object of every error answer: its shape, its types by status, and its size whatever was sent."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.web.errors import ApiError, error_body, shown, unknown_model


@pytest.mark.parametrize(
    ("status", "type_"),
    [
        (400, "BadRequestError"),
        (401, "AuthenticationError"),
        (403, "PermissionDeniedError"),
        (404, "NotFoundError"),
        (405, "MethodNotAllowedError"),
        (408, "RequestTimeoutError"),
        (413, "RequestTooLargeError"),
        (418, "APIConnectionError"),
        (422, "UnprocessableEntityError"),
        (429, "RateLimitError"),
        (500, "InternalServerError"),
        (501, "NotImplementedError"),
        (503, "ServiceUnavailableError"),
        (505, "HTTPVersionNotSupportedError"),
        (599, "InternalServerError"),
    ],
)
def test_type_follows_from_status(status: int, type_: str) -> None:
    assert ApiError(status, "m").type == type_
    assert json.loads(error_body(status, "m"))["error"]["type"] == type_


def test_body_is_compact_utf8_with_the_four_keys_in_order() -> None:
    body = error_body(400, "größer", param="n")
    assert body == '{"error":{"message":"größer","type":"BadRequestError","param":"n","code":400}}'.encode()


def test_error_carries_everything_an_answer_needs() -> None:
    error = ApiError(429, "slow down", headers=((b"Retry-After", b"1"),))
    assert (error.status, error.param, error.headers) == (429, None, ((b"Retry-After", b"1"),))
    assert error.body == error_body(429, "slow down")
    assert str(error) == "slow down"


def test_explicit_type_wins() -> None:
    assert json.loads(ApiError(400, "m", type="Bad Request").body)["error"]["type"] == "Bad Request"


@pytest.mark.parametrize(
    ("value", "ending"),
    [
        (None, " (parameter=n)"),
        (0, " (parameter=n, value=0)"),
        (-1.5, " (parameter=n, value=-1.5)"),
        ("x", " (parameter=n, value=x)"),
        (["a", 1], " (parameter=n, value=['a', 1])"),
    ],
)
def test_parameter_errors_end_with_field_and_value(value: object, ending: str) -> None:
    error = ApiError.parameter("n is wrong", "n", value)
    assert error.message == f"n is wrong{ending}"
    assert (error.status, error.type, error.param) == (400, "BadRequestError", "n")


def test_unknown_model_names_it_in_backquotes_and_lists_the_served_ones() -> None:
    error = unknown_model("gpt-0", ["a", "b"])
    assert "`gpt-0` does not exist" in error.message
    assert "a, b" in error.message
    assert (error.status, error.type, error.param) == (404, "NotFoundError", "model")


def test_lone_surrogates_do_not_break_the_answer() -> None:
    message = json.loads(error_body(404, "model \ud800", param="\udfff"))["error"]
    assert message["message"] == "model \\ud800"
    assert message["param"] == "\\udfff"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(json_values)
def test_a_shown_value_is_short(value: object) -> None:
    assert len(shown(value)) <= 203


@pytest.mark.parametrize(
    "value",
    ["x" * 10**6, [["x" * 1000] * 1000] * 1000, 10**5000, {"a": "x" * 10**6}],
    ids=["text", "list", "integer", "dict"],
)
def test_a_huge_value_is_shown_short(value: object) -> None:
    assert len(shown(value)) <= 203
