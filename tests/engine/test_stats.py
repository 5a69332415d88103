"""What is counted, when, and that it was measured."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmdsim.engine.admission import QueueFull
from llmdsim.engine.pacing import BURST
from llmdsim.engine.sequence import Family, Sequence
from llmdsim.engine.stats import FEW, FINISH_REASONS, MANY, Histogram, Stats, token_bounds
from llmdsim.engine.transfers import RemotePrefill
from llmdsim.reply.plan import Plan
from tests.engine.rig import TICK, Rig, log

#: Histograms observed when a sequence ends well.
AT_THE_END = (
    *("decode_time", "e2e_latency", "inference_time", "max_num_generation_tokens", "params_max_tokens"),
    *("params_n", "prefill_computed_tokens", "prefill_time", "queue_time", "request_generation_tokens"),
    *("request_preemptions", "request_prompt_tokens", "time_per_output_token"),
)


def seen(histogram: Histogram) -> tuple[int, float]:
    """Observations and their sum."""
    return histogram.count, histogram.sum


def counts(stats: Stats) -> dict[str, int]:
    """Observations of every histogram that is observed at the end."""
    return {name: getattr(stats, name).count for name in AT_THE_END}


# --- histograms


@pytest.mark.parametrize(
    ("value", "bucket"), [(0.0, 0), (1.0, 0), (1.5, 1), (2.0, 1), (2.1, 2), (1e9, 2), (-1.0, 0)]
)
def test_a_bound_is_part_of_its_bucket(value: float, bucket: int) -> None:
    histogram = Histogram((1.0, 2.0))
    histogram.observe(value)
    assert histogram.counts == [1 if index == bucket else 0 for index in range(3)]
    assert histogram.sum == value


def test_several_observations_at_once() -> None:
    histogram = Histogram((1.0, 2.0))
    histogram.observe_times(1.5, 4)
    assert (histogram.counts, histogram.sum, histogram.count) == ([0, 4, 0], 6.0, 4)


@given(
    values=st.lists(st.integers(-5, 30)) | st.lists(st.integers(-5, 30), min_size=FEW, max_size=3 * FEW),
    zeros=st.integers(0, 3),
)
def test_buckets_are_what_prometheus_would_count(values: list[int], zeros: int) -> None:
    bounds = (0.0, 1.0, 2.0, 5.0, 10.0)
    histogram = Histogram(bounds)
    for value in values:
        histogram.observe(value)
    histogram.zeros += zeros
    values += [0] * zeros
    for index, bound in enumerate(bounds):
        assert sum(histogram.counts[: index + 1]) == sum(value <= bound for value in values)
    assert histogram.count == len(values)
    assert histogram.sum == sum(values)


@pytest.mark.parametrize(
    ("most", "bounds"),
    [
        (1024, (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)),
        (1000, (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)),
        (999, (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        (1, (1,)),
        (0, ()),
        (-7, ()),
    ],
)
def test_token_bounds(most: int, bounds: tuple[int, ...]) -> None:
    assert token_bounds(most) == bounds


def test_everything_is_zero_before_the_first_request() -> None:
    stats = Stats(1024)
    assert (stats.running, stats.waiting, stats.prompt_tokens, stats.generation_tokens) == (0, 0, 0, 0)
    assert stats.finished == dict.fromkeys(FINISH_REASONS, 0)
    assert set(counts(stats).values()) == {0}
    assert stats.time_to_first_token.count == stats.inter_token_latency.count == 0


# --- times


def test_the_times_of_a_sequence_that_had_to_wait() -> None:
    rig = Rig(slots=1, time_to_first_token=8 * TICK, inter_token_latency=2 * TICK)
    blocker = rig.add(total=1)
    rig.go(3 * TICK)
    rig.add(total=4, prompt=range(7), max_tokens=9)
    rig.go(5 * TICK)  # the blocker ends
    assert blocker.finish_reason == "stop"
    stats = rig.stats
    before = {name: getattr(stats, name).sum for name in (*AT_THE_END, "time_to_first_token")}
    rig.drain()

    def gained(name: str) -> float:
        return float(getattr(stats, name).sum - before[name])

    assert gained("queue_time") == 5 * TICK
    assert gained("prefill_time") == 8 * TICK
    assert gained("time_to_first_token") == 13 * TICK  # from its arrival, the wait included
    assert gained("decode_time") == 6 * TICK
    assert gained("inference_time") == 14 * TICK
    assert gained("e2e_latency") == 19 * TICK
    assert gained("time_per_output_token") == 2 * TICK
    assert gained("request_prompt_tokens") == 7
    assert gained("request_generation_tokens") == 4
    assert gained("max_num_generation_tokens") == 4
    assert gained("params_max_tokens") == 9
    assert gained("params_n") == 1
    assert counts(stats) == dict.fromkeys(AT_THE_END, 2)
    assert seen(stats.inter_token_latency) == (3, 6 * TICK)


def test_queue_time_is_zero_for_who_need_not_wait() -> None:
    rig = Rig(slots=2, time_to_first_token=TICK)
    rig.add()
    rig.drain()
    assert seen(rig.stats.queue_time) == (1, 0.0)


def test_times_are_measured_not_planned() -> None:
    rig = Rig(time_to_first_token=8 * TICK, inter_token_latency=2 * TICK)
    rig.add(total=3)
    rig.go(9 * TICK)  # one late
    rig.go(3 * TICK)  # two late: at 12 instead of 10, when the third is due too
    assert seen(rig.stats.time_to_first_token) == (1, 9 * TICK)
    assert seen(rig.stats.inter_token_latency) == (2, 3 * TICK)
    assert seen(rig.stats.e2e_latency) == (1, 12 * TICK)
    assert seen(rig.stats.prefill_time) == (1, 9 * TICK)
    assert seen(rig.stats.decode_time) == (1, 3 * TICK)
    assert seen(rig.stats.inference_time) == (1, 12 * TICK)
    assert seen(rig.stats.time_per_output_token) == (1, 1.5 * TICK)


@pytest.mark.parametrize("lateness", [0.0, 10.5 * TICK])
@pytest.mark.parametrize("total", [1, 2, 7, BURST + 5])
def test_one_gap_fewer_than_tokens(total: int, lateness: float) -> None:
    rig = Rig(time_to_first_token=TICK, inter_token_latency=TICK)
    rig.add(total=total)
    while (deadline := rig.pacing.next_deadline()) is not None:
        rig.now = max(rig.now, deadline + lateness)
        rig.engine.advance(rig.now)
    assert rig.stats.inter_token_latency.count == total - 1
    assert rig.stats.inter_token_latency.sum == rig.stats.decode_time.sum
    assert rig.stats.time_to_first_token.count == 1
    assert rig.stats.generation_tokens == total


def test_one_token_has_no_time_per_output_token() -> None:
    rig = Rig(time_to_first_token=TICK)
    rig.add(total=1)
    rig.drain()
    assert seen(rig.stats.time_per_output_token) == (1, 0.0)
    assert seen(rig.stats.decode_time) == (1, 0.0)
    assert rig.stats.inter_token_latency.count == 0


def test_an_empty_reply() -> None:
    rig = Rig(time_to_first_token=TICK)
    rig.add(total=0)
    rig.drain()
    assert rig.stats.generation_tokens == 0
    assert rig.stats.prompt_tokens == 5
    assert rig.stats.finished["stop"] == 1
    assert seen(rig.stats.request_generation_tokens) == (1, 0.0)
    assert seen(rig.stats.e2e_latency) == (1, TICK)
    assert rig.stats.inter_token_latency.count == 0


def unsettled(stats: Stats) -> int:
    """The most values that a histogram, or what is known of finished sequences, keeps unsorted."""
    histograms = (getattr(stats, name) for name in Stats.__slots__)
    kept = [len(each.unsettled) for each in histograms if isinstance(each, Histogram)]
    return max(len(stats.records), *kept)


@pytest.mark.parametrize("n", [1, 2])
def test_memory_is_bounded_without_a_scrape_as_sequences_end(n: int) -> None:
    rig = Rig(slots=n)
    for _ in range(MANY + 1):
        family = Family(n) if n > 1 else None
        rig.submit(*(rig.make(total=3, index=index, family=family) for index in range(n)))
        rig.go()
    assert unsettled(rig.stats) <= MANY
    assert counts(rig.stats)["e2e_latency"] == n * (MANY + 1)
    assert seen(rig.stats.params_n) == (MANY + 1, n * (MANY + 1))
    assert seen(rig.stats.max_num_generation_tokens) == (MANY + 1, 3 * (MANY + 1))
    assert seen(rig.stats.inter_token_latency) == (2 * n * (MANY + 1), 0.0)


def test_memory_is_bounded_without_a_scrape_as_clients_leave() -> None:
    rig = Rig(slots=1, inter_token_latency=TICK)
    for _ in range(MANY + 1):
        sequence = rig.add(total=2)
        rig.go()
        rig.abort(sequence)
    assert unsettled(rig.stats) <= MANY
    assert rig.stats.time_to_first_token.count == MANY + 1


def test_memory_is_bounded_without_a_scrape_while_nothing_ends() -> None:
    rig = Rig(slots=1, inter_token_latency=TICK)
    rig.add(total=MANY + 9)
    for _ in range(MANY + 5):
        rig.go(TICK)
    assert rig.stats.running == 1
    assert unsettled(rig.stats) <= MANY
    assert rig.stats.inter_token_latency.count == MANY + 5


# --- counters


def test_tokens_are_counted_as_they_are_revealed() -> None:
    rig = Rig(time_to_first_token=TICK, inter_token_latency=TICK)
    rig.add(total=3, prompt=range(11))
    assert (rig.stats.prompt_tokens, rig.stats.generation_tokens) == (0, 0)
    found = []
    for _ in range(3):
        rig.go(TICK)
        found.append((rig.stats.prompt_tokens, rig.stats.generation_tokens))
    assert found == [(11, 1), (11, 2), (11, 3)]


def test_the_time_to_first_token_is_counted_with_the_first_token() -> None:
    rig = Rig(time_to_first_token=TICK, inter_token_latency=TICK)
    rig.add(total=3)
    rig.go(TICK)
    assert seen(rig.stats.time_to_first_token) == (1, TICK)
    assert rig.stats.e2e_latency.count == 0


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_a_reply_counts_under_its_own_reason(reason: str) -> None:
    rig = Rig()
    rig.add(finish_reason=reason)
    rig.drain()
    assert rig.stats.finished == {**dict.fromkeys(FINISH_REASONS, 0), reason: 1}


def test_an_abort_is_counted_as_one_and_measured_by_nothing() -> None:
    rig = Rig(slots=1, time_to_first_token=TICK, inter_token_latency=TICK)
    running, queued = rig.add(total=9), rig.add(total=9)
    rig.go(2 * TICK)
    rig.abort(queued)
    rig.abort(running)
    stats = rig.stats
    assert stats.finished == {**dict.fromkeys(FINISH_REASONS, 0), "abort": 2}
    assert set(counts(stats).values()) == {0}
    # What was revealed before had been counted then, and stays.
    assert stats.generation_tokens == 2
    assert stats.prompt_tokens == 5
    assert stats.time_to_first_token.count == 1
    assert stats.inter_token_latency.count == 1


def test_an_error_is_counted_as_one_and_measured_by_nothing() -> None:
    rig = Rig(inter_token_latency=TICK)
    rig.add(fault=ValueError())

    def fail(_: Sequence) -> None:
        raise ValueError

    rig.add(total=2, then=fail)
    rig.drain()
    assert rig.stats.finished == {**dict.fromkeys(FINISH_REASONS, 0), "error": 2}
    assert set(counts(rig.stats).values()) == {0}
    assert rig.stats.running == 0


def test_cached_tokens_are_counted_but_not_computed() -> None:
    rig = Rig(inter_token_latency=TICK)
    sequence = rig.make(total=2, prompt=range(40))
    sequence.cached_tokens = 32
    rig.submit(sequence)
    rig.drain()
    stats = rig.stats
    assert (stats.prompt_tokens, stats.cached_tokens) == (40, 32)
    assert seen(stats.request_prompt_tokens) == (1, 40.0)
    assert seen(stats.prefill_computed_tokens) == (1, 8.0)
    assert seen(stats.pass_tokens) == (2, 10.0)


def test_a_pass_is_measured_by_the_prompts_and_tokens_in_it() -> None:
    rig = Rig(slots=3, inter_token_latency=TICK)
    rig.go()
    assert rig.stats.pass_tokens.count == 0
    rig.add(total=3, prompt=range(7))
    rig.add(total=2, prompt=range(20))
    rig.go()  # both prompts, and two tokens
    assert seen(rig.stats.pass_tokens) == (1, 29.0)
    rig.go(TICK / 2)  # nothing
    assert seen(rig.stats.pass_tokens) == (1, 29.0)
    rig.go(TICK / 2)
    assert seen(rig.stats.pass_tokens) == (2, 31.0)
    rig.go(TICK)
    assert seen(rig.stats.pass_tokens) == (3, 32.0)


def test_no_request_was_ever_preempted() -> None:
    rig = Rig()
    rig.add()
    rig.drain()
    assert seen(rig.stats.request_preemptions) == (1, 0.0)
    assert rig.stats.preemptions == 0


def test_a_refused_request_counts_once_whatever_its_choices() -> None:
    rig = Rig(slots=1, waiting=1, time_to_first_token=TICK)
    rig.submit(rig.make(), rig.make())
    for choices in (1, 3):
        with pytest.raises(QueueFull):
            rig.submit(*[rig.make() for _ in range(choices)])
    assert rig.stats.refused == 2
    assert sum(rig.stats.finished.values()) == 0


# --- families


def test_what_a_family_counts_once() -> None:
    rig = Rig(slots=2, inter_token_latency=TICK)
    family = Family(3)
    choices = [rig.make(total=total, family=family) for total in (5, 3, 4)]
    rig.submit(*choices)
    rig.drain()
    assert choices[2].last_token_at > choices[0].last_token_at  # the longest is not the last to end
    assert seen(rig.stats.params_n) == (1, 3.0)
    assert seen(rig.stats.max_num_generation_tokens) == (1, 5.0)
    # and what each choice counts for itself
    for name in ("e2e_latency", "queue_time", "prefill_time", "decode_time", "inference_time"):
        assert getattr(rig.stats, name).count == 3
    assert seen(rig.stats.request_prompt_tokens) == (3, 15.0)
    assert seen(rig.stats.request_generation_tokens) == (3, 12.0)
    assert rig.stats.params_max_tokens.count == 3
    assert rig.stats.prompt_tokens == 15
    assert rig.stats.finished["stop"] == 3


def test_a_family_is_counted_when_its_last_choice_ends() -> None:
    rig = Rig(slots=2, inter_token_latency=TICK)
    family = Family(2)
    rig.submit(rig.make(total=1, family=family), rig.make(total=2, family=family))
    rig.go()
    assert rig.stats.params_n.count == 0
    rig.go(TICK)
    assert rig.stats.params_n.count == 1


def test_a_family_aborted_as_a_whole_is_not_counted() -> None:
    rig = Rig(slots=1, inter_token_latency=TICK)
    family = Family(3)
    choices = [rig.make(total=total, family=family) for total in (1, 5, 5)]
    rig.submit(*choices)
    rig.go()
    for choice in choices:
        rig.abort(choice)
    assert rig.stats.finished == {**dict.fromkeys(FINISH_REASONS, 0), "stop": 1, "abort": 2}
    assert rig.stats.params_n.count == rig.stats.max_num_generation_tokens.count == 0
    assert rig.stats.e2e_latency.count == 1


def test_two_requests_are_two_families() -> None:
    rig = Rig(slots=4)
    for _ in range(2):
        family = Family(2)
        rig.submit(*[rig.make(total=3, family=family) for _ in range(2)])
    rig.drain()
    assert seen(rig.stats.params_n) == (2, 4.0)


# --- when


@pytest.mark.parametrize("total", [0, 1, 3])
def test_all_is_counted_before_the_last_call_of_the_sink(total: int) -> None:
    rig = Rig(slots=1)
    found: list[dict[str, int]] = []

    def look(sequence: Sequence) -> None:
        if sequence.finish_reason is not None:
            stats = rig.stats
            assert stats.running == 0
            assert stats.finished["stop"] == 1
            assert stats.generation_tokens == total
            assert stats.time_to_first_token.count == 1
            found.append(counts(stats))

    rig.add(total=total, then=look)
    rig.drain()
    assert found == [dict.fromkeys(AT_THE_END, 1)]
    assert rig.engine.faults == []


def test_the_gauges_follow_every_change() -> None:
    rig = Rig(slots=2, time_to_first_token=TICK)

    def gauges() -> tuple[int, int]:
        return rig.stats.running, rig.stats.waiting

    sequences = [rig.add() for _ in range(4)]
    assert gauges() == (2, 2)
    rig.abort(sequences[3])
    assert gauges() == (2, 1)
    rig.abort(sequences[0])
    assert gauges() == (2, 0)
    rig.abort(sequences[1])
    assert gauges() == (1, 0)
    rig.go(TICK)
    assert gauges() == (0, 0)
    assert log(sequences[2]).reasons == ["stop"]


def test_every_time_by_worked_numbers() -> None:
    # In ticks; one slot, TTFT 100, ITL 20, image 50. What is due at d is revealed by the pass after it.
    rig = Rig(
        slots=1,
        time_to_first_token=100 * TICK,
        inter_token_latency=20 * TICK,
        time_to_generate_image=50 * TICK,
    )
    first = rig.add(total=2)
    rig.go(10 * TICK)  # 10
    second = rig.add(total=3, plan=Plan(image=True))
    rig.go(95 * TICK)  # 105: the first token, due at 100
    rig.go(25 * TICK)  # 130: its last, due at 120; the second starts, due at 230
    rig.go(107 * TICK)  # 237: its first token
    rig.go(36 * TICK)  # 273: the other two, due at 250 and 270; the image is due at 320
    rig.go(50 * TICK)  # 323: the image
    assert (first.finish_reason, second.finish_reason) == ("stop", "stop")
    stats = rig.stats
    sums = {
        "time_to_first_token": [105, 237 - 10],
        "inter_token_latency": [130 - 105, 273 - 237, 0],
        "queue_time": [0, 130 - 10],
        "prefill_time": [105, 237 - 130],
        "decode_time": [130 - 105, 273 - 237],
        "inference_time": [130, 323 - 130],
        "e2e_latency": [130, 323 - 10],
        "time_per_output_token": [130 - 105, (273 - 237) / 2],
    }
    for name, values in sums.items():
        histogram = getattr(stats, name)
        assert (histogram.count, histogram.sum) == (len(values), sum(values) * TICK), name


def test_a_transfer_shows_in_every_time_as_a_prefill_would() -> None:
    rig = Rig(kv_cache_transfer_latency=8 * TICK, time_to_first_token=60.0)
    sequence = rig.make(total=1)
    sequence.remote_prefill = RemotePrefill()
    rig.submit(sequence)
    rig.go(11 * TICK)
    for histogram in (rig.stats.time_to_first_token, rig.stats.prefill_time, rig.stats.e2e_latency):
        assert (histogram.count, histogram.sum) == (1, 11 * TICK)
    assert rig.stats.queue_time.sum == 0.0
