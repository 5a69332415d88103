"""The exit code of the process, whatever twistd makes of its end."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import atexit
atexit.register(print, "never")
from llmdsim.services.exit_code import ExitCode
code = ExitCode().install()
atexit.register(print, "later")
code.code = {code}
print("done")
"""


@pytest.mark.parametrize(("code", "said"), [(0, "done later never"), (3, "done later")])
def test_it_is_the_processs_own(code: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(code=code)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (code, said.split(), "")
