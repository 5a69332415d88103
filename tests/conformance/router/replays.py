"""Routers that ask for what they have missed, and the reasons they have to."""

import time

from tests.conformance.router.scene import BLOCK, Pod, Scene

#: Seconds after which the router dials again, and some more.
REDIAL = 8.0


def everything(scene: Scene) -> None:
    """All of them, on a daemon with enough blocks."""
    late(scene)
    losses(scene)
    restarts(scene)
    holes(scene)


def late(scene: Scene) -> None:
    """Routers that begin when the daemon has served for long."""
    (pod,) = scene.pods
    turn = pod.complete(scene.tokens(4 * BLOCK), 2 * BLOCK + 1)[:-1]
    adapted = scene.tokens(3 * BLOCK)
    pod.complete(adapted, model="first")
    for _ in range(100):
        pod.complete(scene.tokens(2 * BLOCK))
    scene.lose_router()
    scene.start_router()
    pod.check("started late, and nothing is sent any more", 6, turn)
    pod.check("an adapter's", 3, adapted, "first")
    scene.lose_router()
    longer = turn + scene.tokens(3 * BLOCK)
    pod.complete(longer)
    scene.start_router()
    pod.check("started again; sent in the meantime", 9, longer)
    more = longer + scene.tokens(2 * BLOCK)
    pod.complete(more)
    pod.check("sent since", 11, more)
    scene.router.remove(pod.name)
    pod.check("the pod goes", 0, more)
    pod.complete(more + scene.tokens(BLOCK))
    scene.discover()
    pod.check("and is back", 11, more)


def unheard(scene: Scene) -> None:
    """A router that begins late, and has no replay."""
    (pod,) = scene.pods
    heard = scene.tokens(3 * BLOCK)
    pod.complete(heard)
    pod.check("a prompt", 3, heard)
    scene.lose_router()
    # For the daemon to notice.
    time.sleep(0.5)
    prompt = pod.complete(scene.tokens(4 * BLOCK), BLOCK + 1)[:-1]
    scene.start_router()
    pod.meet()
    # Where the daemon connects, ZeroMQ keeps messages for the address until somebody is there.
    kept = 0 if scene.way.dials else 5
    pod.check("started late: sent while nobody listened", kept, prompt)
    longer = prompt + scene.tokens(2 * BLOCK)
    pod.complete(longer)
    pod.check("a longer one is sent: all of it", 7, longer)
    built = heard + scene.tokens(2 * BLOCK)
    pod.complete(built)
    last = scene.tokens(2 * BLOCK)
    pod.complete(last)
    pod.check("another one", 2, last)
    pod.check("one built on what the other router was told: none", 0, built)


def losses(scene: Scene) -> None:
    """Messages that are lost on the way, or come late or twice."""
    (pod,) = scene.pods
    prompt = scene.tokens(3 * BLOCK)
    pod.complete(prompt)
    pod.check("before a loss", 3, prompt)
    _fault(pod, "drop; times=1")
    lost = prompt + scene.tokens(2 * BLOCK)
    pod.complete(lost)
    time.sleep(0.2)
    pod.check("a message is lost: what was there before", 3, lost)
    last = lost + scene.tokens(2 * BLOCK)
    pod.complete(last)
    pod.check("the next one comes: all, by replay", 7, last)
    _fault(pod, "duplicate; times=1")
    twice = last + scene.tokens(BLOCK)
    pod.complete(twice)
    pod.check("a message comes twice", 8, twice)
    _fault(pod, "delay; for=300ms; times=1")
    late = twice + scene.tokens(BLOCK)
    pod.complete(late)
    pod.check("a message comes late", 9, late)
    _fault(pod)
    pod.post("/reset_prefix_cache", {})
    pod.check("reset after all this", 0, late)


def restarts(scene: Scene) -> None:
    """A daemon that begins again where another one was."""
    (pod,) = scene.pods
    prompt = scene.tokens(3 * BLOCK)
    pod.complete(prompt)
    pod.check("before a restart", 3, prompt)
    scene.restart(pod)
    again = scene.tokens(5 * BLOCK)
    pod.complete(again)
    pod.check("restarted: still what was before, until it dials again", 3, prompt)
    time.sleep(REDIAL)
    newer = scene.tokens(4 * BLOCK)
    pod.complete(newer)
    pod.check("dialled again: what was sent meanwhile", 5, again)
    pod.check("what was sent since", 4, newer)
    pod.check("what the other one had", 0, prompt)


def holes(scene: Scene) -> None:
    """What the router does if the replay is not complete: it forgets the pod, and waits for 30 s."""
    (pod,) = scene.pods
    _fault(pod, "restart; times=1")
    known = scene.tokens(2 * BLOCK)
    pod.complete(known)
    pod.check("the numbers begin again", 2, known)
    _fault(pod, "gap; skip=3; times=1")
    prompt = scene.tokens(2 * BLOCK)
    pod.complete(prompt)
    pod.check("numbers are left out: it forgets what it knew", 0, known)
    _fault(pod)


def _fault(pod: Pod, *faults: str) -> None:
    """What goes wrong with the next messages."""
    pod.post("/admin/config", {"kv-event-faults": list(faults), "kv-event-fault-rate": 100 if faults else 0})
