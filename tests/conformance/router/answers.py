"""Answers: the router knows of the blocks that they fill."""

from functools import partial
from typing import Any

from tests.conformance.router.scene import BLOCK, Scene, computed, shared, whole


def turns(scene: Scene) -> None:
    """A second turn, whose prompt has the first one's prompt and answer in it."""
    (pod,) = scene.pods
    first = pod.complete(scene.tokens(2 * BLOCK + 5), 3 * BLOCK)
    second = first + scene.tokens(BLOCK + 3)
    pod.check("turn 2 before it is sent: turn 1's prompt and answer", computed(first), second)
    reply = pod.post("/v1/completions", {"model": scene.model, "prompt": second, "max_tokens": 1})
    cached = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
    scene.table.check(
        scene.name, "turn 2: cached_tokens of its reply", computed(first) * BLOCK, lambda: cached
    )
    pod.check("turn 2", whole(second), second)
    third = pod.complete(second, 2 * BLOCK) + scene.tokens(BLOCK)
    pod.check("turn 3 before it is sent: turns 1 and 2", computed(third[:-BLOCK]), third)


def running(scene: Scene) -> None:
    """A reply of 4 s: the router knows of its blocks as they fill."""
    (pod,) = scene.pods
    prompt = scene.tokens(2 * BLOCK + 1)
    body = {"model": scene.model, "prompt": prompt, "max_tokens": 40, "ignore_eos": True, "stream": True}
    said: list[int] = []
    with pod.client.connect() as connection:
        connection.post("/v1/completions", {**body, "return_token_ids": True})
        connection.read_head()
        for event in connection.events():
            if event.data == "[DONE]":
                break
            for choice in event.json["choices"]:
                said += choice["token_ids"] or []
            if len(said) in (1, 20):
                known = [*prompt, *said]
                pod.check(f"while it runs: after {len(said)} tokens", computed(known), known)
    pod.check("at its end", computed([*prompt, *said]), [*prompt, *said])


def templated(scene: Scene) -> None:
    """Chats by a model's own template and tokenizer: an answer's blocks are found in the next turn."""
    (pod,) = scene.pods
    for model in (scene.model, "first"):
        said = " ".join(f"{number:x}" for number in scene.tokens(20))
        messages: list[dict[str, Any]] = [{"role": "user", "content": f"What does {said} mean?"}]
        asked: list[int] = []
        known: list[int] = []
        for turn in (1, 2, 3):
            body = {"model": model, "messages": messages, "max_tokens": 60, "min_tokens": 40}
            ids = pod.rendered("/v1/chat/completions/render", body)
            if known:
                pod.check(
                    f"turn {turn} before it is sent: the turn before", shared(ids, known) // BLOCK, ids, model
                )
                of_answer = shared(ids, known) - len(asked) > BLOCK
                scene.table.check(
                    scene.name, "in which are blocks of the answer", True, partial(bool, of_answer)
                )
            reply = pod.post("/v1/chat/completions", {**body, "return_token_ids": True})
            pod.check(f"turn {turn} of {model}", whole(ids), ids, model)
            answer = reply["choices"][0]
            asked, known = ids, [*ids, *answer["token_ids"]][:-1]
            messages.append({"role": "assistant", "content": answer["message"]["content"]})
            messages.append({"role": "user", "content": f"And {said[: 20 * turn]}, 你好?"})
