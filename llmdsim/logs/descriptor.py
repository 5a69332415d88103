"""Writes lines to a descriptor, which may be a pipe that nobody reads."""

from __future__ import annotations

import os
import select
import stat

#: How long a reader that lags is waited for, in milliseconds.
PATIENCE = 100


class Descriptor:
    """An open descriptor. Lines are lost, where it is no file, rather than everybody held up by its reader.

    Once that was waited for in vain, it is not again until it reads on.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._patience = PATIENCE
        self._line_is_cut = False

    def write(self, data: bytes) -> None:
        """Write whole lines. Raises OSError."""
        if self._line_is_cut:
            data = b"\n" + data
        whole = data
        while data:
            # What a descriptor that is ready takes at once.
            part = data if self._is_file else data[: select.PIPE_BUF]
            if not self._is_file and not self._poll.poll(self._patience):
                self._patience = 0
                if len(data) < len(whole):
                    self._line_is_cut = whole[-len(data) - 1] != ord("\n")
                return
            data = data[os.write(self._descriptor, part) :]
        self._patience = PATIENCE
        self._line_is_cut = False
