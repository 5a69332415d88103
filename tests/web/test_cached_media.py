"""Prompts with media in the KV cache: another image is another prompt from there on."""

from __future__ import annotations

import json
from typing import Any

from llmdsim.engine.kvcache import Stored
from tests.web.rig import PassRig

FLAGS = ("--enable-kvcache", "--block-size", "8", "--max-model-len", "4096", "--mode", "random")


def image(name: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"http://127.0.0.1/{name}.png"}}


def chat(*parts: dict[str, Any]) -> dict[str, Any]:
    text = {"type": "text", "text": "one two three four five six seven eight nine ten"}
    return {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": [text, *parts]}]}


class Rig(PassRig):
    """A rank with a cache, whose answers come at once."""

    def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        client = self.post(path, body)
        self.finish()
        (reply,) = client.replies(b"POST")
        assert reply.status == 200, reply.body
        return json.loads(reply.body)  # type: ignore[no-any-return]

    def cached(self, path: str, body: dict[str, Any]) -> int:
        usage = self.ask(path, body)["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])


def stored(rig: Rig) -> list[Stored]:
    records = rig.rank.engine.drain_events()
    return [record for record in records if isinstance(record, Stored)]


def test_blocks_tell_the_image_in_them_as_the_render_route_does() -> None:
    rig = Rig(*FLAGS)
    body = chat(image("a"), image("b"))
    features = rig.ask("/v1/chat/completions/render", body)["features"]
    names, places = features["mm_hashes"]["image"], features["mm_placeholders"]["image"]
    assert rig.cached("/v1/chat/completions", body) == 0
    (record,) = stored(rig)
    assert record.extra_keys is not None
    for index, keys in enumerate(record.extra_keys):
        start = index * 8
        inside = tuple(
            (name, place["offset"] - start)
            for name, place in zip(names, places, strict=True)
            if place["offset"] < start + 8 and place["offset"] + place["length"] > start
        )
        assert (keys or ()) == inside
    assert rig.cached("/v1/chat/completions", body) > 0


def test_ids_with_other_media_share_what_comes_before_them() -> None:
    rig = Rig(*FLAGS)

    def body(name: str) -> dict[str, Any]:
        return {
            "model": "m",
            "token_ids": list(range(1, 34)),
            "sampling_params": {"max_tokens": 1},
            "features": {
                "mm_hashes": {"image": [name]},
                "mm_placeholders": {"image": [{"offset": 20, "length": 4}]},
                "kwargs_data": None,
            },
        }

    cached = [rig.cached("/inference/v1/generate", body(name)) for name in ("a", "b", "a", "b")]
    assert cached == [0, 16, 32, 32]
