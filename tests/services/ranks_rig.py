"""Several ranks of one server in memory: in one process, or in several whose pipes are lists."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from twisted.internet.error import ProcessDone, ProcessExitedAlready, ProcessTerminated
from twisted.python.failure import Failure

from llmdsim.config import parse, rank_config, rank_numbers
from llmdsim.services.crew import Crew
from llmdsim.services.messages import LOGGED, TOLD, Handover, Server, receive
from llmdsim.services.rank_control import RankControl
from tests.logs.rig import Memory
from tests.web.rig import RankRig
from tests.wire.channel import Reply, post, read_replies


class Process:
    """What `spawnProcess` makes, and within it the rank's end; nothing moves before `Ranks.settle`."""

    def __init__(self, number: int, protocol: Any, settings: dict[str, Any], pid: int) -> None:
        self.number = number
        self.protocol = protocol
        self.settings = settings
        self.pid = pid
        self.to_rank: list[bytes] = []
        self.from_rank: list[bytes] = []
        self.signals: list[str] = []
        self.input_open = True
        self.handover = b""
        self.control: RankControl | None = None
        self.ended = False
        protocol.makeConnection(self)

    # --- the transport of the main process

    def write(self, data: bytes) -> None:
        assert self.input_open
        self.to_rank.append(data)

    def closeStdin(self) -> None:
        assert self.input_open
        self.input_open = False

    def signalProcess(self, name: str) -> None:
        if self.ended:
            raise ProcessExitedAlready
        self.signals.append(name)

    # --- the process

    def up(self, rig: RankRig, words: dict[bytes, Callable[[], object]] | None = None) -> None:
        """The rank is made, and says that it serves."""
        self.handover = self.to_rank.pop(0)
        self.ends = 0
        self.control = RankControl(rig.rank.operations, words or {}, self._input_ended)
        self.control.makeConnection(SimpleNamespace(write=self.from_rank.append))  # type: ignore[arg-type]
        self.control.ready()

    def _input_ended(self) -> None:
        self.ends += 1

    def end(self, code: int | None = 0, number: int | None = None) -> None:
        """It ends, with an exit code or by a signal."""
        self.ended = True
        reason = ProcessDone(0) if code == 0 else ProcessTerminated(code, number)
        self.protocol.processEnded(Failure(reason))  # type: ignore[no-untyped-call]

    def move(self) -> bool:
        """Carry what both ends have written to the other; tells whether there was anything."""
        down = up = b""
        if self.control is not None and self.to_rank:
            down, self.to_rank = b"".join(self.to_rank), []
            # In pieces, as pipes do.
            self.control.dataReceived(down[:7])
            self.control.dataReceived(down[7:])
        if self.from_rank:
            up = b"".join(self.from_rank)
            self.from_rank.clear()
        if up:
            self.protocol.childDataReceived(TOLD, up[:5])
            self.protocol.childDataReceived(TOLD, up[5:])
        return bool(down or up)

    def logs(self, data: bytes) -> None:
        self.protocol.childDataReceived(LOGGED, data)


class Reactor:
    """Starts processes in memory, nothing else."""

    def __init__(self) -> None:
        self.processes: list[Process] = []

    def spawnProcess(self, protocol: Any, executable: str, args: list[str], **settings: Any) -> None:
        settings = {"executable": executable, "args": args, **settings}
        self.processes.append(Process(int(args[-1]), protocol, settings, 100 + len(self.processes)))

    def stop(self) -> None:
        raise AssertionError("the drain's business")


class Held:
    """The ports of a rank in another process."""

    inherited = 0

    def __init__(self, config: Any) -> None:
        self.config = config
        self.sockets = [50 + config.data_parallel_rank]
        self.handed_over = 0

    def hand_over(self) -> None:
        self.handed_over += 1


class Ranks:
    """The ranks that `flags` ask for; with `processes`, all but the first have one of their own."""

    def __init__(self, *flags: str, processes: bool = False) -> None:
        config = parse(["--model", "m", *flags], {})
        configs = [rank_config(config, number) for number in rank_numbers(config)]
        self.rigs = [RankRig(config=each) for each in configs]
        here = 1 if processes else len(self.rigs)
        self.held = [Held(each) for each in configs[here:]]
        self.reactor = Reactor()
        self.memory = Memory()
        self.losses = 0
        self.server = Server(config, ("--model", "m", *flags), "", "engine", False)
        self.crew = Crew(
            [rig.rank for rig in self.rigs[:here]],
            self.held,  # type: ignore[arg-type]
            self.reactor,
            self.memory.destination,
            self.server,
        )
        self.crew.on_loss = self.lose

    def lose(self) -> None:
        self.losses += 1

    @property
    def processes(self) -> list[Process]:
        return self.reactor.processes

    def start(self) -> Ranks:
        """All are up."""
        self.crew.startService()
        for process in self.processes:
            process.up(self.rigs[process.number])
        self.settle()
        return self

    def settle(self) -> None:
        """Let everything arrive that is on its way."""
        while sum(process.move() for process in self.processes):
            pass

    def send(self, rank: int, path: str, body: Any = None, *headers: bytes) -> Any:
        """A client that has posted something to a rank."""
        content = b"" if body is None else json.dumps(body).encode()
        return self.rigs[rank].connect().send(post(content, *headers, path=path.encode()))

    def post(self, rank: int, path: str, body: Any = None, *headers: bytes) -> Reply:
        """What a rank answers, once all have had their say."""
        client = self.send(rank, path, body, *headers)
        self.settle()
        (reply,) = read_replies(client.received, [b"POST"], client.fate != "open")
        assert reply.complete
        return reply


def handover_of(process: Process) -> Handover:
    """What a process was told first."""
    read, write = os.pipe()
    try:
        os.write(write, process.handover)
        os.close(write)
        received = receive(read)
        assert received is not None
        assert os.read(read, 1) == b""
    finally:
        os.close(read)
    return received
