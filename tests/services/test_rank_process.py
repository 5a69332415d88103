"""What must hold before a rank's process has anything to go by."""

from __future__ import annotations

import subprocess
import sys

#: The reactor that a process would run, where the main process is gone before it has said anything.
PROBE = """
from llmdsim.services import rank_process
rank_process.main()
from twisted.internet import reactor
print(type(reactor).__name__)
"""


def test_a_process_whose_parent_is_gone_ends_and_would_have_had_our_reactor() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROBE],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "LeanEPollReactor\n", "")
