"""Servers that must give blocks up, and what the router knows of that."""

import threading
from collections.abc import Callable, Sequence
from functools import partial

from tests.conformance.router.scene import BLOCK, Pod, Scene, whole


def eviction(scene: Scene) -> None:
    """64 blocks, and prompts of more than that."""
    (pod,) = scene.pods
    first = scene.tokens(8 * BLOCK + 1)
    pod.complete(first)
    pod.check("a prompt", 8, first)
    known = [first, *fill(pod)]
    pod.check("it is gone", 0, first)
    agreed(scene, pod, "one after another", known)
    pod.complete(known[5] + [1])
    agreed(scene, pod, "one is sent again", known)

    roots = [scene.tokens(BLOCK * 3) for _ in range(3)]
    crowd = [[*roots[number % 3], *scene.tokens(BLOCK * (number % 5) + 9)] for number in range(60)]
    crowd += crowd[:20]
    for start in range(0, len(crowd), 20):
        together([partial(pod.complete, prompt, 20) for prompt in crowd[start : start + 20]])
        agreed(scene, pod, f"20 at a time, {start + 20} in all", known + crowd)
    preempted = pod.client.metrics().value("vllm:num_preemptions_total")
    scene.table.check(scene.name, "some were preempted", True, lambda: preempted > 0)
    twins = scene.tokens(6 * BLOCK + 4)
    pod.complete(twins, 2, n=2)
    pod.check("two choices of one prompt", 6, twins)
    known += fill(pod)
    pod.check("they are gone", 0, twins)
    agreed(scene, pod, "after twins", [*known, *crowd, twins])


def offloading(scene: Scene) -> None:
    """64 blocks, and copies of twice as many in CPU memory."""
    (pod,) = scene.pods

    def tiers() -> str:
        found = scene.router.tiers(pod.name, scene.model, first)
        return ", ".join(f"{found[tier]} {tier}" for tier in sorted(found))

    first = scene.tokens(8 * BLOCK + 1)
    pod.complete(first)
    scene.table.check(scene.name, "a prompt, by memory", "8 cpu, 8 gpu", tiers)
    known = [first, *fill(pod)]
    scene.table.check(scene.name, "it is given up, but for its copies", "8 cpu", tiers)
    agreed(scene, pod, "copies hold all", known, gives_up=False)
    pod.complete(first)
    scene.table.check(scene.name, "it is sent again, and back", "8 cpu, 8 gpu", tiers)
    known += [*fill(pod), *fill(pod)]
    pod.check("it is gone", 0, first)
    agreed(scene, pod, "copies are given up too", known)
    pod.post("/reset_prefix_cache", {})
    agreed(scene, pod, "reset", known)


def pods(scene: Scene) -> None:
    """Two servers, of which each has its own; and what both have, one after the other gives up."""
    one, other = scene.pods
    prompt = scene.tokens(6 * BLOCK + 2)
    one.complete(prompt)
    one.check("a prompt, where it was sent", 6, prompt)
    other.check("and where it was not", 0, prompt)
    other.complete(prompt[: 4 * BLOCK] + scene.tokens(BLOCK))
    other.check("its beginning, sent to the other", 4, prompt)
    one.check("the first still has all", 6, prompt)
    longer = prompt + scene.tokens(2 * BLOCK)
    other.complete(longer)
    other.check("a longer one, sent to the other", whole(longer), longer)
    one.check("of which the first has the beginning", 6, longer)
    for _ in range(12):
        one.complete(scene.tokens(7 * BLOCK))
    one.check("the first has given it up", 0, longer)
    other.check("the other has not", whole(longer), longer)
    one.complete(longer)
    one.check("the first has it again", whole(longer), longer)
    other.post("/reset_prefix_cache", {})
    other.check("the other is reset", 0, longer)
    one.check("the first is not", whole(longer), longer)


def fill(pod: Pod) -> list[list[int]]:
    """Tokens of 12 requests, of 8 blocks each."""
    return [pod.complete(pod.scene.tokens(7 * BLOCK + 5), BLOCK)[:-1] for _ in range(12)]


def agreed(scene: Scene, pod: Pod, case: str, known: Sequence[list[int]], gives_up: bool = True) -> None:
    """The router finds of each prompt what the daemon has of it, which is not all if it `gives_up` any."""
    truth = [probe(pod, tokens) for tokens in known]
    scene.table.check(
        scene.name,
        f"{case}: of so many prompts, what is there",
        len(known),
        lambda: sum(
            scene.router.blocks(pod.name, scene.model, tokens) == blocks
            for tokens, blocks in zip(known, truth, strict=True)
        ),
    )
    gone = sum(map(whole, known)) - sum(truth)
    scene.table.check(
        scene.name, f"{case}: blocks were evicted ({gone} of {gone + sum(truth)})", gives_up, lambda: gone > 0
    )


def probe(pod: Pod, tokens: Sequence[int]) -> int:
    """Blocks that the daemon itself says it would find for a prompt, were it one token longer."""
    reply = pod.post("/admin/kv/probe", {"model": pod.scene.model, "prompt": [*tokens, 0]})
    cached: int = reply["cached_tokens"]
    return cached // BLOCK


def together(calls: Sequence[Callable[[], object]]) -> None:
    """Make all calls at the same time."""
    problems: list[BaseException] = []

    def run(call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as problem:
            problems.append(problem)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]
