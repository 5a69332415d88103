"""What frames that ask for nothing cost a client, so that no flood of them keeps us busy."""

from __future__ import annotations

#: Frames a client may send at once, and each second, that are neither headers nor data.
BURST, PER_SECOND = 10_000, 1000.0

#: What a request that is taken back costs, as it has been begun.
RESET = 4


class Allowance:
    """Filled by time, by what the client is sent and by requests that are answered."""

    __slots__ = ("_at", "_left")

    def __init__(self, now: float) -> None:
        self._left = float(BURST)
        self._at = now

    def earn(self, frames: int) -> None:
        """Something was sent that the client may answer with so many frames."""
        self._left = min(self._left + frames, float(BURST))

    def spend(self, frames: int, now: float) -> bool:
        """Whether so many frames may still be sent; `now` is in seconds."""
        if now > self._at:
            self._left = min(self._left + (now - self._at) * PER_SECOND, float(BURST))
            self._at = now
        self._left -= frames
        return self._left >= 0.0
