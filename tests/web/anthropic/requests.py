"""Bodies of Messages requests, and the requests they are read into."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmdsim.web.anthropic.conversion import chat_request
from llmdsim.web.anthropic.reading import decode
from llmdsim.web.anthropic.request import CountTokensRequest, MessagesRequest
from llmdsim.web.chat_request import ChatRequest
from llmdsim.web.errors import ApiError

MESSAGES = "/v1/messages"
COUNT = "/v1/messages/count_tokens"

USER = {"role": "user", "content": "hi"}
WEATHER = {
    "name": "get_weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


def fields(**more: Any) -> dict[str, Any]:
    """A body that is taken, with the fields given; those that are `...` are left out."""
    all_of_them = {"model": "m", "max_tokens": 50, "messages": [USER], **more}
    return {name: value for name, value in all_of_them.items() if value is not ...}


def read(**more: Any) -> MessagesRequest:
    return decode(MessagesRequest, json.dumps(fields(**more)).encode())


def counted(**more: Any) -> CountTokensRequest:
    return decode(CountTokensRequest, json.dumps(fields(**{"max_tokens": ..., **more})).encode())


def converted(**more: Any) -> ChatRequest:
    return chat_request(read(**more))


def said_by(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


def refused(**more: Any) -> str:
    """The message of the 400 that a body gets."""
    with pytest.raises(ApiError) as caught:
        converted(**more)
    assert caught.value.status == 400
    return caught.value.message
