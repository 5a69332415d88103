"""What the web needs of whoever passes time to the engine."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from llmdsim.engine.engine import Engine
from llmdsim.engine.sequence import Sequence
from llmdsim.web.orca import Load


class Driver(Protocol):
    """Where sequences go."""

    engine: Engine
    #: What clients are told of how busy the engine is.
    load: Load
    #: When something was submitted last, taken or not, in the clock's seconds; None before the first.
    submitted_at: float | None

    def submit(self, sequences: Collection[Sequence]) -> None:
        """Queue or start all of them, or raise `QueueFull`; reveals nothing yet."""

    def run(self) -> None:
        """Reveal what is due."""

    def abort(self, sequence: Sequence) -> None:
        """End one whose client left."""

    def cut_short(self, sequences: Iterable[Sequence]) -> None:
        """End sequences as they stand; their clients get what there is of their replies."""

    def give_up(self, reason: str = "abort") -> None:
        """End everything unfinished, for `reason`; its clients are told that it failed."""

    def hold(self) -> None:
        """Start nothing until `resume`; what runs goes on."""

    def freeze(self) -> None:
        """Start and reveal nothing until `resume`."""

    def resume(self) -> None:
        """Go on after `hold` or `freeze`."""

    def reset_prefix_cache(self, preempt: bool = False) -> bool:
        """Have the engine forget cached blocks; returns whether it has. See `Engine.reset_prefix_cache`."""
