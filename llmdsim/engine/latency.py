"""The latency model: how long a prefill, a transfer of KV blocks and each gap between tokens take.

All times are seconds and exact: nothing is rounded to whole milliseconds. A component is scaled by the load
factor first, then varied by its standard deviation, which is never scaled, and kept within 70 % of its mean.
What comes out of that is divided by the speed.
"""

from __future__ import annotations

from operator import attrgetter
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
    def kv_cache_transfer_latency(self) -> float: ...
    @property
    def kv_cache_transfer_latency_std_dev(self) -> float: ...
    @property
    def kv_cache_transfer_time_per_token(self) -> float: ...
    @property
    def kv_cache_transfer_time_std_dev(self) -> float: ...
    @property
    def kv_offloading_time_per_token(self) -> float: ...
    @property
    def time_factor_under_load(self) -> float: ...
    @property
    def max_num_seqs(self) -> int: ...
    @property
    def time_to_generate_image(self) -> float: ...
    @property
    def time_to_generate_image_std_dev(self) -> float: ...
    @property
    def speed(self) -> float: ...
    @property
    def seed(self) -> int | None: ...


#: All of them that may change at run time.
_changeable = attrgetter(
    *("latency_calculator", "time_to_first_token", "time_to_first_token_std_dev", "inter_token_latency"),
    *("inter_token_latency_std_dev", "prefill_overhead", "prefill_time_per_token", "prefill_time_std_dev"),
    *("kv_cache_transfer_latency", "kv_cache_transfer_latency_std_dev", "kv_cache_transfer_time_per_token"),
    *("kv_cache_transfer_time_std_dev", "time_to_generate_image", "time_to_generate_image_std_dev"),
    *("kv_offloading_time_per_token", "time_factor_under_load", "speed"),
)


def varied(mean: float, std_dev: float, random: Random) -> float:
    """A normal draw around `mean`, cut off at `SPREAD` of it on either side."""
    if std_dev <= 0.0 or mean <= 0.0:
        return mean
    return min(max(random.gauss(mean, std_dev), mean * (1.0 - SPREAD)), mean * (1.0 + SPREAD))


class Latency:
    """Times for one engine; `running` is how many sequences run at that instant, this one included."""

    __slots__ = (
        "_load_step",
        "_per_token",
        "_random",
        "_settings",
        "_transfer_per_token",
        "constant_gap",
        "constant_prefill",
    )

    def __init__(self, settings: LatencySettings) -> None:
        self._random = Random(settings.seed)
        self._settings = settings
        self._follow(settings)

    def configure(self, settings: LatencySettings) -> bool:
        """Go by `settings` from now on; whether they differ from those before."""
        if _changeable(settings) == _changeable(self._settings):
            return False
        self._follow(settings)
        return True

    def _follow(self, settings: LatencySettings) -> None:
        self._settings = settings
        calculator = settings.latency_calculator
        constant_given = settings.time_to_first_token > 0.0 or settings.time_to_first_token_std_dev > 0.0
        self._per_token = calculator == "per-token" or (not calculator and not constant_given)
        constant_given = (
            settings.kv_cache_transfer_latency > 0.0 or settings.kv_cache_transfer_latency_std_dev > 0.0
        )
        self._transfer_per_token = calculator == "per-token" or (not calculator and not constant_given)
        slots = settings.max_num_seqs
        self._load_step = (settings.time_factor_under_load - 1.0) / (slots - 1) if slots > 1 else 0.0
        loaded = self._load_step != 0.0
        gap = settings.inter_token_latency
        gap_varies = loaded or settings.inter_token_latency_std_dev != 0.0
        #: The gap between tokens when nothing makes it vary, else None.
        self.constant_gap: float | None = None if gap and gap_varies else gap / settings.speed
        #: The prefill when nothing makes it vary, else None.
        self.constant_prefill: float | None
        if self._per_token:
            by_prompt = settings.prefill_overhead or settings.prefill_time_per_token
            self.constant_prefill = None if by_prompt else 0.0
        else:
            first = settings.time_to_first_token
            varies = loaded or settings.time_to_first_token_std_dev != 0.0
            self.constant_prefill = None if first and varies else first / settings.speed

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
            return self._varied(mean, settings.prefill_time_std_dev)
        return self._varied(settings.time_to_first_token * load, settings.time_to_first_token_std_dev)

    def transfer(self, prompt_tokens: int) -> float:
        """Seconds from being scheduled to the first token where another server did the prefill.

        It is the network's time: whatever the load.
        """
        settings = self._settings
        if self._transfer_per_token:
            mean = prompt_tokens * settings.kv_cache_transfer_time_per_token
            return self._varied(mean, settings.kv_cache_transfer_time_std_dev)
        return self._varied(settings.kv_cache_transfer_latency, settings.kv_cache_transfer_latency_std_dev)

    def load_back(self, tokens: int) -> float:
        """Seconds to have so many tokens' blocks back from the host's memory, whatever the load."""
        return tokens * self._settings.kv_offloading_time_per_token / self._settings.speed

    def gap(self, running: int) -> float:
        """Seconds between one token and the next."""
        if self.constant_gap is not None:
            return self.constant_gap
        settings = self._settings
        mean = settings.inter_token_latency * self.load(running)
        return self._varied(mean, settings.inter_token_latency_std_dev)

    def image(self) -> float:
        """Seconds from the last token to the image behind it, whatever the load."""
        settings = self._settings
        return self._varied(settings.time_to_generate_image, settings.time_to_generate_image_std_dev)

    def _varied(self, mean: float, std_dev: float) -> float:
        return varied(mean, std_dev, self._random) / self._settings.speed
