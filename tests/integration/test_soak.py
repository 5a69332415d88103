"""The soak itself, for a few seconds: it passes, and it can fail."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

SOAK = Path(__file__).parents[2] / "bench" / "soak.py"

#: A daemon whose every connection costs a file descriptor, and whose aborted choices are counted twice.
FAULTY = """
import os, sys
from llmdsim.__main__ import main
from llmdsim.engine.engine import Engine
from llmdsim.wire.http1 import HTTP1
lose, end = HTTP1.connectionLost, Engine._end
def leak(self, *given):
    os.dup(0)
    lose(self, *given)
def miscount(self, sequence, reason, now):
    self.stats.finished["abort"] += reason == "abort"
    end(self, sequence, reason, now)
HTTP1.connectionLost, Engine._end = leak, miscount
sys.exit(main())
"""


def soak(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SOAK), *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_a_short_soak_leaves_nothing() -> None:
    child = soak("--minutes", "0.05")
    assert (child.returncode, child.stderr) == (0, ""), child.stdout + child.stderr
    assert "FAILED" not in child.stdout
    for check in ("failed visits", "memory growth by a line, MB", "open files", "errors in the log"):
        assert f"\n{check}" in child.stdout


def test_a_soak_tells_what_is_wrong_with_a_faulty_daemon(tmp_path: Path) -> None:
    script = tmp_path / "faulty.py"
    script.write_text(FAULTY)
    command = shlex.join([sys.executable, str(script)])
    child = soak("--minutes", "0.02", "--server-command", command)
    assert child.returncode == 1
    assert "open files is" in child.stderr
    assert "choices ended in any way is" in child.stderr
    assert "tokens generated is" not in child.stderr
