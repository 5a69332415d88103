"""Reading KV blocks that another server's prefill made, and which of these transfers fail."""

from __future__ import annotations

from random import Random
from typing import Protocol

from llmdsim.config.kv_transfer import recomputes


class TransferSettings(Protocol):
    """The options it reads; the rate is a percentage."""

    @property
    def kv_transfer_failure_rate(self) -> float: ...
    @property
    def kv_transfer_config(self) -> dict[str, object] | None: ...
    @property
    def seed(self) -> int | None: ...


class RemotePrefill:
    """Of a sequence whose prompt another server has prefilled.

    `cached` is how many tokens that server found cached, where it was told. The transfer began at `began`,
    and `fails` when its time is over; with `recomputes`, the prompt is prefilled here then, else the sequence
    ends. `lost`: it has failed.
    """

    __slots__ = ("began", "cached", "fails", "lost", "recomputes")

    def __init__(self, cached: int | None = None, fails: bool = False, recomputes: bool = False) -> None:
        self.cached = cached
        self.fails = fails
        self.recomputes = recomputes
        self.lost = False
        self.began = 0.0


class Transfers:
    """For one rank. Chance comes from a source of its own: replies are the same with and without failures.

    With a seed, the same transfers in the same order fail.
    """

    def __init__(self, settings: TransferSettings) -> None:
        self._random = Random(None if settings.seed is None else f"kv transfers {settings.seed}")
        self._recomputes = recomputes(settings.kv_transfer_config)
        self.configure(settings)

    def configure(self, settings: TransferSettings) -> None:
        """Go by the rate of `settings` from now on."""
        self._rate = settings.kv_transfer_failure_rate

    def draw(self, cached: int | None) -> RemotePrefill:
        """A sequence's, whose prefill found `cached` tokens cached if it was told."""
        # Drawn at any rate, so that a change of the rate does not change what chance has for the others.
        fails = self._random.random() * 100.0 < self._rate
        return RemotePrefill(cached, fails, self._recomputes)
