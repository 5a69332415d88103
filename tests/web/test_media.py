"""Media in chats: accepted, never fetched, counted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.web.clients import CHAT, post, reply_of
from tests.web.rig import RankRig

IMAGE = {"type": "image_url", "image_url": {"url": "http://127.0.0.1:1/never-fetched.png"}}


def usage(*parts: Any, flags: tuple[str, ...] = ()) -> int:
    messages = [{"role": "user", "content": [{"type": "text", "text": "look"}, *parts]}]
    reply = reply_of(post(RankRig(*flags), CHAT, messages=messages))
    assert reply.status == 200, reply.body
    return int(json.loads(reply.body)["usage"]["prompt_tokens"])


def test_r85_images_count_as_prompt_tokens() -> None:
    one, two = usage(IMAGE), usage(IMAGE, IMAGE)
    assert one - usage() >= 256
    assert 256 <= two - one < 300


def test_data_does_not_count_by_its_length() -> None:
    data = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 1_000_000}}
    assert usage(data) < 600
    sound = {"type": "input_audio", "input_audio": {"data": "A" * 1_000_000, "format": "wav"}}
    assert usage(sound) < 600


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "http://x/y.png"}},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}},
    ],
)
def test_one_item_of_any_kind_fits_a_server_without_options(part: Any) -> None:
    messages = [{"role": "user", "content": [part, {"type": "text", "text": "what is this?"}]}]
    assert reply_of(post(RankRig(), CHAT, messages=messages)).status == 200


@pytest.mark.parametrize("number", [5, 20_000])
def test_more_than_the_context_holds_is_refused_before_it_is_rendered(number: int) -> None:
    video = {"type": "video_url", "video_url": {"url": "x"}}
    messages = [{"role": "user", "content": [video] * number}]
    reply = reply_of(post(RankRig(), CHAT, messages=messages))
    assert reply.status == 400
    assert reply.error["error"]["param"] == "input_tokens"


@pytest.mark.parametrize(
    "part", [{"type": "image_url"}, {"type": "image_url", "image_url": {}}, {"type": "film"}]
)
def test_r85_bad_parts_are_refused(part: Any) -> None:
    messages = [{"role": "user", "content": [part]}]
    assert reply_of(post(RankRig(), CHAT, messages=messages)).status == 400
