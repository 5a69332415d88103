"""The process of one rank, as the main process starts it: `python -m llmdsim.services.rank_process`.

It heeds no signal: it drains when its standard input ends, and so outlives the main process by no more.
"""

from __future__ import annotations

import importlib
import signal
from typing import Any

from llmdsim.services.messages import GROUP_SIGNALS, TOLD, receive


def main() -> None:
    """Serve until standard input ends, and all is finished."""
    for number in GROUP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)
    from llmdsim.services.reactor import install  # noqa: PLC0415 - before anything imports the reactor

    install()
    from llmdsim.services.rank_daemon import make_rank  # noqa: PLC0415

    reactor: Any = importlib.import_module("twisted.internet.reactor")
    stdio: Any = importlib.import_module("twisted.internet.stdio")
    handover = receive(0)
    if handover is None:
        return
    daemon, control = make_rank(handover, reactor)
    daemon.privilegedStartService()  # type: ignore[no-untyped-call]
    daemon.startService()
    stdio.StandardIO(control, 0, TOLD, reactor)
    reactor.addSystemEventTrigger("before", "shutdown", daemon.stopService)
    reactor.run(installSignalHandlers=False)


if __name__ == "__main__":
    main()
