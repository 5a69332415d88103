"""A scene: daemons and a router that hears of their caches, and a table of what it should and does find."""

import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.conformance.router.router import Router
from tests.integration.client import Reply
from tests.integration.daemon import Daemon, free_ports

#: Seconds in which the router must have heard; events take milliseconds.
PATIENCE = 3.0

BLOCK = 16
MODEL = "org/base"


def whole(tokens: Sequence[int]) -> int:
    """Blocks that the tokens fill."""
    return len(tokens) // BLOCK


def computed(tokens: Sequence[int]) -> int:
    """Blocks filled after a request that ended with these tokens: the last one was never computed."""
    return (len(tokens) - 1) // BLOCK


def shared(left: Sequence[int], right: Sequence[int]) -> int:
    """Tokens with which both begin."""
    for count, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return count
    return min(len(left), len(right))


class Row(NamedTuple):
    """One line of the table; `took` is how many seconds after the question the answer was right."""

    scene: str
    case: str
    expected: str
    found: str
    ok: bool
    took: float


class Table:
    """The lines so far."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def check(self, scene: str, case: str, expected: object, look: Callable[[], object]) -> bool:
        """Look until what is expected is found, or PATIENCE is over, and write a line."""
        began = time.monotonic()
        while (found := look()) != expected and time.monotonic() - began < PATIENCE:
            time.sleep(0.002)
        took = time.monotonic() - began
        row = Row(scene, case, str(expected), str(found), found == expected, took)
        self.rows.append(row)
        print(line(row), flush=True)
        return row.ok


def line(row: Row) -> str:
    """A row as it is printed."""
    mark = "ok" if row.ok else "FAILED"
    return (
        f"{row.scene:46} {row.case:54} {row.expected:>8} {row.found:>8}  {mark:6} {row.took * 1000:6.0f} ms"
    )


class Way(NamedTuple):
    """How events reach the router: it dials, or it is bound and daemons connect; with replay or not."""

    dials: bool = True
    replay: bool = False

    def __str__(self) -> str:
        return ("dials" if self.dials else "bound") + (" + replay" if self.replay else "")


class Pod:
    """One rank of one daemon, as clients and the router see it."""

    def __init__(self, scene: "Scene", place: int, rank: int, address: str) -> None:
        self.scene = scene
        self.place = place
        self.rank = rank
        self.address = address
        self.client = self.daemon.clients[rank]
        self.port = self.client.port
        self.name = f"{address}:{self.port}"

    @property
    def daemon(self) -> Daemon:
        """That of now."""
        return self.scene.daemons[self.place]

    def post(self, path: str, document: Mapping[str, Any]) -> Any:
        """What is answered to a body, which must be a good one."""
        reply: Reply = self.client.post(path, document)
        assert reply.status == 200, (path, reply.status, reply.body[:500])
        return reply.json if reply.body[:1] in b"{[" else None

    def complete(self, prompt: Sequence[int], length: int = 2, **fields: Any) -> list[int]:
        """The prompt and what is generated for it, `length` tokens."""
        body = {
            "model": self.scene.model,
            "prompt": list(prompt),
            "max_tokens": length,
            "ignore_eos": True,
            "return_token_ids": True,
            **fields,
        }
        reply = self.post("/v1/completions", body)
        generated: list[int] = reply["choices"][0]["token_ids"]
        assert len(generated) == length, reply
        return [*prompt, *generated]

    def rendered(self, path: str, body: Mapping[str, Any]) -> list[int]:
        """The token ids of a conversation, as a router gets them."""
        ids: list[int] = self.post(path, body)["token_ids"]
        return ids

    def check(self, case: str, expected: int, tokens: Sequence[int], model: str = "", **of: Any) -> bool:
        """Whether the router finds so many blocks of the tokens here."""
        scene = self.scene
        return scene.table.check(
            scene.name,
            case,
            expected,
            lambda: scene.router.blocks(self.name, model or scene.model, tokens, **of),
        )

    def meet(self) -> None:
        """Return once events arrive: a subscription takes a moment, and what is sent before it is lost."""
        began = time.monotonic()
        while True:
            prompt = self.scene.tokens(BLOCK * 2)
            self.complete(prompt)
            for _ in range(20):
                if self.scene.router.blocks(self.name, self.scene.model, prompt):
                    return
                time.sleep(0.005)
            assert time.monotonic() - began < PATIENCE * 6, (
                f"no events\n{self.scene.router.log}\n{self.daemon.stderr}"
            )


class Scene:
    """Daemons with the same flags at addresses 127.0.0.1, 127.0.0.2 and so on, and one router.

    There are `count` daemons of one rank, or one of `ranks`, whose token ids are below `vocabulary`. With
    `vllm_options` events are asked for by vLLM's JSON. Requests name `model`.
    """

    def __init__(
        self,
        table: Table,
        binary: Path,
        name: str,
        way: Way,
        *flags: str,
        served: str = "",
        count: int = 1,
        ranks: int = 1,
        vocabulary: int = 1 << 32,
        vllm_options: bool = False,
    ) -> None:
        self.table = table
        self.name = f"{name} ({way})"
        self.way = way
        self.model = served or MODEL
        self._binary = binary
        self._flags = [*flags, *(["--served-model-name", served] if served else [])]
        self._random = random.Random(name)
        self._vocabulary = vocabulary
        self._vllm_options = vllm_options
        self._live, self._replay = free_ports(ranks), free_ports(ranks)
        self.router = self._new_router()
        self.daemons: list[Daemon] = []
        self.pods: list[Pod] = []
        for number in range(1, count + 1):
            address = f"127.0.0.{number}"
            self.daemons.append(self._new_daemon(address, free_ports(ranks), ranks))
            self.pods += [Pod(self, number - 1, rank, address) for rank in range(ranks)]

    def __enter__(self) -> "Scene":
        try:
            for daemon in self.daemons:
                daemon.wait_until_ready()
            self.discover()
            for pod in self.pods:
                pod.meet()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._kill()
            return
        try:
            for daemon in self.daemons:
                daemon.end()
        finally:
            self._kill()

    def tokens(self, count: int) -> list[int]:
        """So many token ids that nobody has used."""
        return [self._random.randrange(self._vocabulary) for _ in range(count)]

    def discover(self) -> None:
        """Have the router dial all pods, if it is one that does."""
        if self.way.dials:
            for pod in self.pods:
                self.router.add(pod.name, pod.rank)

    def lose_router(self) -> None:
        """The router ends, and all that it knew is gone."""
        self.router.end()

    def start_router(self) -> None:
        """Another one begins, and discovers the pods."""
        self.router = self._new_router()
        self.discover()

    def restart(self, pod: Pod) -> None:
        """The daemon of the pod ends, and another one begins in its place."""
        self.daemons[pod.place].end()
        self.daemons[pod.place] = self._new_daemon(pod.address, pod.port, 1)
        pod.client = self.daemons[pod.place].client
        pod.daemon.wait_until_ready()

    def _new_router(self) -> Router:
        if not self.way.dials:
            return Router(self._binary, "-bind", f"tcp://127.0.0.1:{self._live}")
        replay = ["-replay-port", str(self._replay)] if self.way.replay else []
        return Router(self._binary, "-socket-port", str(self._live), *replay)

    def _new_daemon(self, address: str, port: int, ranks: int) -> Daemon:
        flags = ["--enable-kvcache", "--mode", "random", *self._flags]
        if self._vllm_options:
            # As vLLM's users write it, the topic too.
            events = {
                "enable_kv_cache_events": True,
                "publisher": "zmq",
                "endpoint": f"tcp://*:{self._live}",
                "replay_endpoint": f"tcp://*:{self._replay}",
                "topic": f"kv@{address}:{port}@{self.model}",
            }
            flags += ["--kv-events-config", json.dumps(events)]
        elif self.way.dials:
            flags += ["--zmq-endpoint", f"tcp://{address}:{self._live}", "--zmq-socket", "bind"]
        else:
            flags += ["--zmq-endpoint", f"tcp://127.0.0.1:{self._live}"]
        if self.way.replay and not self._vllm_options:
            flags += ["--kv-events-replay-endpoint", f"tcp://{address}:{self._replay}"]
        environ = {"POD_IP": address, "VLLM_SERVER_DEV_MODE": "1", "HF_HUB_OFFLINE": "1"}
        return Daemon("--port", str(port), *flags, model=MODEL, port=port, ranks=ranks, environ=environ)

    def _kill(self) -> None:
        self.router.end()
        for daemon in self.daemons:
            daemon.kill()
