"""What is asked of a daemon with enough blocks, and which of them the router must find then."""

from typing import Any

from tests.conformance.router.answers import turns
from tests.conformance.router.scene import BLOCK, Scene, computed, shared, whole

IMAGE = "data:image/png;base64,"


def everyday(scene: Scene) -> None:
    """All that one daemon with enough blocks shows."""
    for case in (prompts, turns, chats, adapters, salts, media, resets):
        case(scene)


def prompts(scene: Scene) -> None:
    """Prompts of a model: whole, part, longer, other."""
    (pod,) = scene.pods
    prompt = scene.tokens(5 * BLOCK + 7)
    pod.check("a prompt before it is sent", 0, prompt)
    pod.complete(prompt)
    pod.check("a prompt", 5, prompt)
    pod.check("a part of it", 2, prompt[: 3 * BLOCK - 1])
    longer = prompt + scene.tokens(3 * BLOCK)
    pod.check("a longer one before it is sent", 5, longer)
    pod.complete(longer)
    pod.check("a longer one", whole(longer), longer)
    other = prompt[: 2 * BLOCK] + scene.tokens(2 * BLOCK)
    pod.complete(other)
    pod.check("one that begins alike", 4, other)
    pod.check("what begins differently", 0, scene.tokens(1) + prompt)
    aligned = scene.tokens(4 * BLOCK)
    pod.complete(aligned)
    pod.check("a prompt of whole blocks", 4, aligned)
    short = scene.tokens(BLOCK - 1)
    pod.complete(short, 1)
    pod.check("less than a block", 0, short)
    long = scene.tokens(2000)
    pod.complete(long)
    pod.check("2,000 tokens", 125, long)
    pod.check("the first prompt still", 5, prompt)


def chats(scene: Scene) -> None:
    """Conversations through the routes that have them, with ids as a router gets them: by rendering."""
    (pod,) = scene.pods
    say = " ".join(f"w{number}" for number in scene.tokens(40))
    messages: list[dict[str, Any]] = [{"role": "user", "content": say}]
    body = {"model": scene.model, "messages": messages, "max_tokens": 50}
    first = pod.rendered("/v1/chat/completions/render", body)
    reply = pod.post("/v1/chat/completions", {**body, "return_token_ids": True, "ignore_eos": True})
    pod.check("a chat", whole(first), first)
    answer = reply["choices"][0]
    messages += [answer["message"] | {"tool_calls": None}, {"role": "user", "content": "And then?"}]
    messages[1] = {"role": "assistant", "content": answer["message"]["content"]}
    second = pod.rendered("/v1/chat/completions/render", body)
    known = shared(second, [*first, *answer["token_ids"]][:-1]) // BLOCK
    pod.check("its second turn before it is sent", known, second)
    pod.post("/v1/chat/completions", body)
    pod.check("its second turn", whole(second), second)

    streamed = {"model": scene.model, "messages": [{"role": "user", "content": say[::-1]}], "max_tokens": 3}
    ids = pod.rendered("/v1/chat/completions/render", streamed)
    pod.client.stream("/v1/chat/completions", streamed)
    pod.check("a streamed chat", whole(ids), ids)

    message = {
        "model": scene.model,
        "messages": [{"role": "user", "content": "Claude " + say}],
        "max_tokens": 3,
    }
    ids = pod.rendered("/v1/messages/render", message)
    pod.post("/v1/messages", message)
    pod.check("Anthropic's messages", whole(ids), ids)

    response = {"model": scene.model, "input": "Respond " + say, "max_output_tokens": 3}
    ids = pod.rendered("/v1/responses/render", response)
    pod.post("/v1/responses", response)
    pod.check("responses", whole(ids), ids)

    ids = scene.tokens(3 * BLOCK)
    pod.post("/inference/v1/generate", {"token_ids": ids, "sampling_params": {"max_tokens": 3}})
    pod.check("tokens in, tokens out", 3, ids)

    text = {"model": scene.model, "prompt": "Complete " + say, "max_tokens": 3}
    ids = pod.post("/tokenize", text)["tokens"]
    pod.post("/v1/completions", text)
    pod.check("a text prompt", whole(ids), ids)

    several = [scene.tokens(2 * BLOCK), scene.tokens(3 * BLOCK)]
    pod.post("/v1/completions", {"model": scene.model, "prompt": several, "max_tokens": 1})
    pod.check("a list of prompts: the first", 2, several[0])
    pod.check("a list of prompts: the second", 3, several[1])


def adapters(scene: Scene) -> None:
    """LoRA adapters `first` and `second`."""
    (pod,) = scene.pods
    prompt = scene.tokens(4 * BLOCK + 3)
    one = pod.complete(prompt, 2 * BLOCK, model="first")
    pod.check("an adapter's prompt and answer", computed(one), one, "first")
    pod.check("the same tokens for the base model", 0, one)
    pod.check("the same tokens for another adapter", 0, one, "second")
    pod.complete(prompt, model="second")
    pod.check("they are sent to the other adapter", 4, prompt, "second")
    pod.complete(prompt)
    pod.check("they are sent to the base model", 4, prompt)
    longer = one + scene.tokens(2 * BLOCK)
    pod.complete(longer, model="first")
    pod.check("the adapter's second turn", whole(longer), longer, "first")


def salts(scene: Scene) -> None:
    """Prompts with a cache salt."""
    (pod,) = scene.pods
    prompt = scene.tokens(4 * BLOCK)
    said = pod.complete(prompt, BLOCK + 3, cache_salt="ours")
    pod.check("a salted prompt and its answer", computed(said), said, cache_salt="ours")
    pod.check("the same tokens without the salt", 0, said)
    pod.check("the same tokens with another", 0, said, cache_salt="theirs")
    pod.complete(prompt)
    pod.check("they are sent without it", 4, prompt)
    pod.complete(prompt, model="first", cache_salt="ours")
    pod.check("a salted prompt of an adapter", 4, prompt, "first", cache_salt="ours")


def media(scene: Scene) -> None:
    """Images in a chat; the router knows them by what rendering says of them."""
    (pod,) = scene.pods
    text = " ".join(f"w{number}" for number in scene.tokens(40))

    def of(*images: str) -> tuple[list[int], list[dict[str, Any]]]:
        content: list[dict[str, Any]] = [{"type": "text", "text": text}]
        content += [{"type": "image_url", "image_url": {"url": IMAGE + image}} for image in images]
        body = {"model": scene.model, "messages": [{"role": "user", "content": content}], "max_tokens": 3}
        reply = pod.post("/v1/chat/completions/render", body)
        features = reply["features"]
        hashes, places = features["mm_hashes"]["image"], features["mm_placeholders"]["image"]
        items = [{"hash": each, **place} for each, place in zip(hashes, places, strict=True)]
        if images[0] != "bm90IHNlbnQ=":
            pod.post("/v1/chat/completions", body)
        return reply["token_ids"], items

    ids, items = of("Zmlyc3Q=")
    pod.check("a chat with an image", whole(ids), ids, media=items)
    before = items[0]["offset"] // BLOCK
    pod.check("its tokens without it: those before it", before, ids)
    other, of_other = of("bm90IHNlbnQ=", "bm90IHNlbnQ=")
    pod.check("another image: what is before it", before, other, media=of_other)
    ids, items = of("Zmlyc3Q=", "c2Vjb25k")
    pod.check("a chat with two images", whole(ids), ids, media=items)


def resets(scene: Scene) -> None:
    """The cache is cleared while the router listens."""
    (pod,) = scene.pods
    prompt = scene.tokens(4 * BLOCK)
    pod.complete(prompt)
    pod.complete(prompt, model="first")
    pod.check("before /reset_prefix_cache", 4, prompt)
    pod.post("/reset_prefix_cache", {})
    pod.check("after it", 0, prompt)
    pod.check("after it, an adapter's", 0, prompt, "first")
    pod.complete(prompt)
    pod.check("sent again", 4, prompt)
    pod.post("/sleep?level=1", {})
    pod.check("asleep", 0, prompt)
    pod.post("/wake_up", {})
    pod.complete(prompt)
    pod.check("awake, and sent again", 4, prompt)


def larger_blocks(scene: Scene) -> None:
    """Blocks twice as large as the router's."""
    (pod,) = scene.pods
    prompt = scene.tokens(11 * BLOCK + 3)
    pod.complete(prompt)
    pod.check("a prompt", 10, prompt)
    longer = prompt + scene.tokens(5 * BLOCK)
    pod.complete(longer)
    pod.check("a longer one", 16, longer)
    pod.post("/reset_prefix_cache", {})
    pod.check("reset", 0, longer)
