"""Answers with images, and servers that only encode."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import pytest

from tests.web.clients import CHAT, TEXT, choices_of, events, finishes, post, reply_of, watched
from tests.web.clients import request as bytes_of
from tests.web.rig import RankRig

ASKED = "X-Send-Image: true"
KINDS = pytest.mark.parametrize("stream", [False, True])
MEDIA = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "look"},
            {"type": "image_url", "image_url": {"url": "http://x/a.png"}},
            {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
        ],
    }
]


def is_image(part: Any) -> bool:
    url = part["image_url"]["url"]
    head, _, data = url.partition(",")
    png = base64.b64decode(data, validate=True)
    return (
        part["type"] == "image_url"
        and head == "data:image/png;base64"
        and png.startswith(b"\x89PNG\r\n\x1a\n")
        and zlib.decompress(png[png.index(b"IDAT") + 4 : -16]) == bytes(5)
    )


def content_of(*headers: str, flags: tuple[str, ...] = ("--omni",), **more: Any) -> Any:
    reply = reply_of(post(RankRig(*flags), CHAT, *headers, **more))
    return json.loads(reply.body)["choices"][0]["message"]["content"]


def test_an_image_asked_for_follows_the_text() -> None:
    text, image = content_of(ASKED)
    assert text["type"] == "text"
    assert text["text"]
    assert is_image(image)


def test_with_calls_the_image_is_alone() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    more = {"tools": tools, "tool_choice": "required", "max_tokens": 500, "ignore_eos": False}
    (image,) = content_of(ASKED, **more)
    assert is_image(image)


@pytest.mark.parametrize(
    ("header", "flags", "given"),
    [
        ("X-Send-Image: 1", ("--omni",), True),
        ("X-Send-Image: T", ("--omni",), True),
        ("X-Send-Image: yes", ("--omni",), False),
        ("X-Send-Image: false", ("--omni",), False),
        ("X-Send-Image: false", ("--omni", "--image-emission-rate", "100"), True),
        ("X-Other: 1", ("--omni", "--image-emission-rate", "100"), True),
        ("X-Other: 1", ("--omni",), False),
        ("X-Send-Image: true", (), False),
    ],
)
def test_who_gets_an_image(header: str, flags: tuple[str, ...], given: bool) -> None:
    assert (type(content_of(header, flags=flags)) is list) == given


def test_texts_have_none() -> None:
    reply = reply_of(post(RankRig("--omni"), TEXT, ASKED))
    assert type(json.loads(reply.body)["choices"][0]["text"]) is str


def test_a_streamed_image_comes_after_its_time_and_before_the_end() -> None:
    rig = RankRig("--omni", "--time-to-generate-image", "2s", "--inter-token-latency", "1s")
    client = post(rig, CHAT, ASKED, stream=True, max_tokens=3)
    rig.clock.pump([1] * 3)
    frames = events(reply_of(client).body)
    contents = [choice["delta"]["content"] for choice in choices_of(frames)[1:]]
    assert len(contents) == 3
    assert all(len(content) == 1 and content[0]["type"] == "text" for content in contents)
    assert not reply_of(client).complete
    rig.clock.pump([1, 1])
    *_, image, last, done = events(reply_of(client).body)
    assert image["modality"] == "image"
    (part,) = image["choices"][0]["delta"]["content"]
    assert is_image(part)
    assert image["choices"][0]["finish_reason"] is None
    assert (last["choices"][0]["delta"], last["choices"][0]["finish_reason"]) == ({}, "length")
    assert done == "[DONE]"


def test_each_choice_has_its_image() -> None:
    reply = reply_of(post(RankRig("--omni"), CHAT, ASKED, stream=True, n=2))
    frames = events(reply.body)
    assert [f["choices"][0]["index"] for f in frames[:-1] if "modality" in f] == [0, 1]
    assert finishes(frames) == [(0, "length"), (1, "length")]


@pytest.mark.parametrize(("more", "text"), [({"max_tokens": 3}, "!!!"), ({"max_tokens": None}, "!")])
@KINDS
def test_an_encoder_says_nothing(more: dict[str, Any], text: str, stream: bool) -> None:
    for path in (CHAT, TEXT):
        rig = RankRig("--mm-encoder-only")
        reply = reply_of(post(rig, path, stream=stream, **{"ignore_eos": False, **more}))
        documents = events(reply.body)[:-1] if stream else [json.loads(reply.body)]
        choices = choices_of(documents)
        said = "".join(
            c["text"] if path == TEXT else (c["delta"] if stream else c["message"]).get("content") or ""
            for c in choices
        )
        assert said == text
        assert choices[-1]["finish_reason"] == "length"


def test_an_encoder_tells_where_its_encodings_are() -> None:
    rig = RankRig("--mm-encoder-only")
    document = json.loads(reply_of(post(rig, CHAT, messages=MEDIA, max_tokens=2)).body)
    params = document["ec_transfer_params"]
    assert [name.rsplit("_", 1)[0] for name in params] == ["sim_img_0", "sim_audio_0"]
    for where in params.values():
        assert where == {
            "peer_host": "DUMMY",
            "peer_port": 1234,
            "size_bytes": 2359296,
            "nixl_agent_metadata_b64": "TklYTF9NRVRBREFUQV9QTEFDRUhPTERFUg==",
        }
    assert json.loads(reply_of(post(rig, CHAT)).body)["ec_transfer_params"] is None
    assert json.loads(reply_of(post(RankRig(), CHAT, messages=MEDIA)).body)["ec_transfer_params"] is None


@pytest.mark.parametrize("path", [CHAT, TEXT])
@KINDS
def test_a_cache_threshold_can_be_forced_and_ends_at_once(path: str, stream: bool) -> None:
    rig = RankRig("--time-to-first-token", "1s")
    client = watched(rig)
    body = {"prompt": "one two"} if path == TEXT else {"messages": [{"role": "user", "content": "one two"}]}
    client.send(bytes_of(path, {**body, "stream": stream}, "X-Cache-Threshold-Finish-Reason: true"))
    reply = reply_of(client)
    assert reply.status == 200
    documents = events(reply.body)[:-1] if stream else [json.loads(reply.body)]
    assert choices_of(documents)[-1]["finish_reason"] == "cache_threshold"
    if not stream:
        assert documents[0]["usage"]["completion_tokens"] == 0
    assert rig.rank.engine.idle


@pytest.mark.parametrize(
    ("flags", "asked", "ends"),
    [
        ((), 0.5, False),
        (("--enable-kvcache",), 0.5, True),
        (("--enable-kvcache",), 0, False),
        (("--enable-kvcache",), 7, False),
        (("--enable-kvcache",), None, False),
        (("--enable-kvcache", "--global-cache-hit-threshold", "0.2"), None, True),
        (("--enable-kvcache", "--global-cache-hit-threshold", "0.2"), 0, False),
        (("--global-cache-hit-threshold", "0.2"), None, False),
    ],
)
def test_whose_threshold_counts(flags: tuple[str, ...], asked: float | None, ends: bool) -> None:
    for path in (CHAT, TEXT):
        reply = reply_of(post(RankRig(*flags), path, cache_hit_threshold=asked))
        reason = json.loads(reply.body)["choices"][0]["finish_reason"]
        assert (reason == "cache_threshold") == ends


def test_an_encoder_tells_where_the_encodings_of_given_hashes_are() -> None:
    features = {
        "mm_hashes": {"image": ["h1", "h2"]},
        "mm_placeholders": {"image": [{"offset": 0, "length": 1}, {"offset": 1, "length": 1}]},
    }
    body = {"token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 2}, "features": features}
    rig = RankRig("--mm-encoder-only")
    client = watched(rig).send(bytes_of("/inference/v1/generate", body))
    document = json.loads(reply_of(client).body)
    assert list(document["ec_transfer_params"]) == ["h1", "h2"]
    assert len(document["choices"][0]["token_ids"]) == 2
