"""All ranks of the server: what is wanted of every one, and the processes of those that have their own."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from twisted.application.service import Service
from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger

from llmdsim.config import Config, rank_numbers
from llmdsim.logs.destination import Destination
from llmdsim.services.handing_over import HeldListeners
from llmdsim.services.messages import GROUP_SIGNALS, Handover, Server
from llmdsim.services.rank import Rank
from llmdsim.services.rank_child import RankChild
from llmdsim.web.operations import Answer, Order, answers_of

log = Logger()

#: How a rank's process is started.
MODULE = "llmdsim.services.rank_process"


def in_processes(config: Config) -> bool:
    """Whether each rank is to have a process of its own."""
    if len(rank_numbers(config)) == 1:
        return False
    if config.data_parallel_mode is not None:
        return config.data_parallel_mode == "process"
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores > 1


class Crew(Service):
    """The `ranks` of this process, and one process for each of `held`, which serves these.

    A process that ends by itself takes the server down: `on_loss` is called. `destination` is where lines of
    theirs go.
    """

    def __init__(
        self,
        ranks: Sequence[Rank],
        held: Sequence[HeldListeners],
        reactor: Any,
        destination: Destination,
        server: Server,
    ) -> None:
        self._ranks = ranks
        self._reactor = reactor
        self._server = server
        self.on_loss: Callable[[], object] = reactor.stop
        self._leaving = False
        self._children = {
            each.config.data_parallel_rank: RankChild(each.config.data_parallel_rank, self, destination.relay)
            for each in held
        }
        self._held = held
        self._alive = set[RankChild]()
        self._starting = set(self._children.values())
        #: Fires when the ranks of other processes are ready, which is at once where there are none.
        self.ready: Deferred[None] = Deferred()
        self._gone: Deferred[None] | None = None
        for rank in ranks:
            rank.operations.elsewhere = partial(self.everywhere_but, rank.number)
        if not held:
            self.ready.callback(None)

    # --- life

    def startService(self) -> None:
        super().startService()  # type: ignore[no-untyped-call]
        if not self._held:
            return
        # They inherit the mask, and so do not end by a signal before they have said that they ignore it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, GROUP_SIGNALS)
        try:
            for held, child in zip(self._held, self._children.values(), strict=True):
                self._start(held, child)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _start(self, held: HeldListeners, child: RankChild) -> None:
        handover = Handover(self._server, child.number, len(held.sockets), held.inherited)
        child.handover = handover.packed()
        self._alive.add(child)
        self._reactor.spawnProcess(
            child,
            sys.executable,
            # Nothing secret, since everybody can see it; and no module out of the working directory.
            [sys.executable, "-P", "-m", MODULE, str(child.number)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            childFDs=child.descriptors(held.sockets),
        )
        held.hand_over()

    def stopService(self) -> Deferred[None]:
        """Fires when all processes have ended; those that have not yet are made to."""
        super().stopService()  # type: ignore[no-untyped-call]
        self._leaving = True
        for child in self._alive:
            child.kill()
        if not self._alive:
            return succeed(None)
        self._gone = Deferred()
        return self._gone

    def drain(self, at_once: bool = False) -> None:
        """Let the processes finish what they have to do, or tell their clients that it failed, and end."""
        self._leaving = True
        for child in self._alive:
            child.release(at_once)

    @property
    def at_work(self) -> bool:
        """Whether a process is there still."""
        return bool(self._alive)

    def kill(self) -> None:
        """End those that take too long."""
        for child in self._alive:
            if not child.killed:
                log.warn(
                    "rank {number} (process {pid}) is still there: killed", number=child.number, pid=child.pid
                )
                child.kill()

    # --- everybody

    def broadcast(self, word: bytes) -> None:
        """Tell all processes a word that stands alone, as `rank_process` knows it."""
        for child in self._alive:
            child.tell(word)

    def everywhere_but(self, number: int, order: Order) -> Deferred[dict[int, Answer]]:
        """Do it on all ranks but one; fires with what each answered."""
        asked: Mapping[int, Callable[[Order], Deferred[Answer]]] = {
            **{rank.number: rank.operations.perform for rank in self._ranks},
            **{child.number: child.perform for child in self._children.values()},
        }
        return answers_of({each: ask(order) for each, ask in asked.items() if each != number})

    # --- what its processes tell

    def is_ready(self, child: RankChild) -> None:
        """A rank serves."""
        self._starting.discard(child)
        if not self._starting and not self._leaving:
            self.ready.callback(None)

    def ended(self, child: RankChild, how: str, well: bool) -> None:
        """A process ended: as it should, or by itself."""
        self._alive.discard(child)
        if not self._leaving:
            log.error(
                "rank {number} (process {pid}) ended by itself, {how}: so does the server",
                number=child.number,
                pid=child.pid,
                how=how,
            )
            self.on_loss()
        elif not (well or child.ended):
            log.warn(
                "rank {number} (process {pid}) ended, {how}", number=child.number, pid=child.pid, how=how
            )
        if self._gone is not None and not self._alive:
            self._gone.callback(None)
