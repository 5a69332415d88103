"""The latency model: how long a prefill and each gap between tokens take.

All times are seconds and exact: nothing is rounded to whole milliseconds. A component is scaled by the load
factor first, then varied by its standard deviation, which is never scaled, and kept within 70 % of its mean.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

#: How far a varied time may lie from its mean, as a part of it.
SPREAD = 0.7


class LatencySettings(Protocol):
    """The options the model reads; durations in seconds."""

    @property
    def latency_calculator(self) -> str: ...
    @property
    def time_to_first_token(self) -> float: ...
    @property
    def time_to_first_token_std_dev(self) -> float: ...
    @property
    def inter_token_latency(self) -> float: ...
    @property
    def inter_token_latency_std_dev(self) -> float: ...
    @property
    def prefill_overhead(self) -> float: ...
    @property
    def prefill_time_per_token(self) -> float: ...
    @property
    def prefill_time_std_dev(self) -> float: ...
    @property
    def time_factor_under_load(self) -> float: ...
    @property
    def max_num_seqs(self) -> int: ...
    @property
    def time_to_generate_image(self) -> float: ...
    @property
    def time_to_generate_image_std_dev(self) -> float: ...
    @property
    def seed(self) -> int | None: ...


def varied(mean: float, std_dev: float, random: Random) -> float:
    """A normal draw around `mean`, cut off at `SPREAD` of it on either side."""
    if std_dev <= 0.0 or mean <= 0.0:
        return mean
    return min(max(random.gauss(mean, std_dev), mean * (1.0 - SPREAD)), mean * (1.0 + SPREAD))


class Latency:
    """Times for one engine; `running` is how many sequences run at that instant, this one included."""

    __slots__ = ("_load_step", "_per_token", "_random", "_settings", "constant_gap", "constant_prefill")

    def __init__(self, settings: LatencySettings) -> None:
        self._random = Random(settings.seed)
        self.configure(settings)

    def configure(self, settings: LatencySettings) -> None:
        """Go by `settings` from now on, for times that are not worked out yet."""
        self._settings = settings
        calculator = settings.latency_calculator
        constant_given = settings.time_to_first_token > 0.0 or settings.time_to_first_token_std_dev > 0.0
        self._per_token = calculator == "per-token" or (not calculator and not constant_given)
        slots = settings.max_num_seqs
        self._load_step = (settings.time_factor_under_load - 1.0) / (slots - 1) if slots > 1 else 0.0
        loaded = self._load_step != 0.0
        gap = settings.inter_token_latency
        gap_varies = loaded or settings.inter_token_latency_std_dev != 0.0
        #: The gap between tokens when nothing makes it vary, else None.
        self.constant_gap: float | None = None if gap and gap_varies else gap
        #: The prefill when nothing makes it vary, else None.
        self.constant_prefill: float | None
        if self._per_token:
            by_prompt = settings.prefill_overhead or settings.prefill_time_per_token
            self.constant_prefill = None if by_prompt else 0.0
        else:
            first = settings.time_to_first_token
            varies = loaded or settings.time_to_first_token_std_dev != 0.0
            self.constant_prefill = None if first and varies else first

    def load(self, running: int) -> float:
        """1 with one sequence running, the configured factor with all slots taken, linear between."""
        return 1.0 + self._load_step * (running - 1)

    def prefill(self, prompt_tokens: int, cached_tokens: int, running: int) -> float:
        """Seconds from being scheduled to the first token."""
        settings = self._settings
        load = self.load(running)
        if self._per_token:
            computed = prompt_tokens - cached_tokens
            mean = (settings.prefill_overhead + computed * settings.prefill_time_per_token) * load
            return varied(mean, settings.prefill_time_std_dev, self._random)
        mean = settings.time_to_first_token * load
        return varied(mean, settings.time_to_first_token_std_dev, self._random)

    def gap(self, running: int) -> float:
        """Seconds between one token and the next."""
        if self.constant_gap is not None:
            return self.constant_gap
        settings = self._settings
        mean = settings.inter_token_latency * self.load(running)
        return varied(mean, settings.inter_token_latency_std_dev, self._random)

    def image(self) -> float:
        """Seconds from the last token to the image behind it, whatever the load."""
        settings = self._settings
        mean = settings.time_to_generate_image
        return varied(mean, settings.time_to_generate_image_std_dev, self._random)
