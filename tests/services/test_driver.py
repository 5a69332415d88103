"""The driver: one deadline on the clock for the whole engine, and faults in the log."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from twisted.internet.task import Clock
from twisted.logger import LogEvent, LogLevel

from llmdsim.engine.admission import QueueFull
from llmdsim.engine.sequence import Sequence
from llmdsim.services.driver import MOST_SPACING, SPACING_PER_SEQUENCE, EngineDriver
from tests.engine.rig import TICK, Rig, Settings, log
from tests.services.clock_rig import ClockRig


class CountingClock(Clock):
    """Notes for when it was armed; `rig.now` follows it."""

    def __init__(self) -> None:
        super().__init__()
        self.armed: list[float] = []
        self.rightNow = 4096.0

    def callLater(self, when: float, what: Any, *args: Any, **kw: Any) -> Any:
        assert when >= 0.0
        call = super().callLater(when, what, *args, **kw)
        self.armed.append(call.getTime())
        return call

    def call_at(self, deadline: float, what: Any, *args: Any, **kw: Any) -> Any:
        return self.callLater(max(0.0, deadline - self.seconds()), what, *args, **kw)


class DriverRig(Rig):
    """The engine's rig, driven by a clock; `driver` is to be told, `pass_time` moves the time."""

    def __init__(self, slots: int = 2, waiting: int = 100, **latency: object) -> None:
        self.clock = CountingClock()
        super().__init__(slots, waiting, **latency)
        self.driver = EngineDriver(self.engine, self.clock)

    @property
    def now(self) -> float:
        return float(self.clock.rightNow)

    @now.setter
    def now(self, now: float) -> None:
        self.clock.rightNow = now

    def start(self, *sequences: Sequence) -> None:
        """What a request does."""
        self.driver.submit(sequences)
        self.driver.run()

    def pass_time(self, ticks: float) -> None:
        self.clock.advance(ticks * TICK)

    @property
    def pending(self) -> list[float]:
        """What the clock is armed for."""
        return [call.getTime() for call in self.clock.getDelayedCalls()]


def test_tokens_come_at_their_deadlines() -> None:
    rig = DriverRig(time_to_first_token=8 * TICK, inter_token_latency=2 * TICK)
    start = rig.now
    sequence = rig.make(total=3)
    rig.start(sequence)
    for _ in range(40):
        rig.pass_time(0.5)
    assert log(sequence).token_times() == [start + 8 * TICK, start + 10 * TICK, start + 12 * TICK]
    assert rig.pending == []


def test_submit_reveals_nothing_and_run_reveals_what_is_due() -> None:
    rig = DriverRig()
    sequence = rig.make(total=3)
    rig.driver.submit([sequence])
    assert log(sequence).calls == []
    rig.driver.run()
    assert log(sequence).tokens == [3]
    assert rig.pending == []


def test_a_full_queue_is_passed_on() -> None:
    rig = DriverRig(slots=1, waiting=0, time_to_first_token=TICK)
    rig.start(rig.make())
    with pytest.raises(QueueFull):
        rig.driver.submit([rig.make()])


def test_the_clock_is_armed_once_for_the_earliest_deadline() -> None:
    rig = DriverRig(slots=9, latency_calculator="per-token", prefill_time_per_token=TICK)
    start = rig.now
    for prompt in (8, 9, 8, 20):
        rig.start(rig.make(prompt=range(prompt)))
    assert rig.clock.armed == rig.pending == [start + 8 * TICK]


def test_an_earlier_deadline_arms_anew() -> None:
    rig = DriverRig(slots=9, latency_calculator="per-token", prefill_time_per_token=TICK)
    start = rig.now
    sequences = [rig.make(prompt=range(prompt)) for prompt in (8, 5, 3)]
    for sequence in sequences:
        rig.start(sequence)
    assert rig.clock.armed == [start + 8 * TICK, start + 5 * TICK, start + 3 * TICK]
    assert rig.pending == [start + 3 * TICK]
    rig.pass_time(3)
    assert rig.pending == [start + 5 * TICK]
    rig.pass_time(2)
    rig.pass_time(3)
    assert [log(each).token_times() for each in sequences] == [
        [start + 8 * TICK],
        [start + 5 * TICK],
        [start + 3 * TICK],
    ]


def test_one_pass_serves_all_that_is_due() -> None:
    rig = DriverRig(slots=50, time_to_first_token=TICK, inter_token_latency=TICK)
    for _ in range(50):
        rig.start(rig.make(total=4))
    for _ in range(10):
        rig.pass_time(1)
    assert len(rig.clock.armed) == 4
    assert rig.engine.idle


def test_a_late_pass_does_not_shift_the_deadlines() -> None:
    rig = DriverRig(inter_token_latency=8 * TICK)
    start = rig.now
    sequence = rig.make(total=4)
    rig.start(sequence)
    rig.pass_time(11)
    assert rig.pending == [start + 16 * TICK]
    rig.pass_time(5)
    assert rig.pending == [start + 24 * TICK]


def test_a_burst_goes_on_at_once_but_in_another_pass() -> None:
    rig = DriverRig()
    sequence = rig.make(total=600)
    rig.start(sequence)
    assert log(sequence).tokens == [256]
    assert rig.pending == [rig.now + SPACING_PER_SEQUENCE]
    rig.pass_time(1)
    rig.pass_time(1)
    assert log(sequence).tokens == [256, 512, 600]


def test_r79_the_lateness_of_passes_is_counted() -> None:
    rig = DriverRig(time_to_first_token=4 * TICK, inter_token_latency=2 * TICK)
    lateness = rig.engine.stats.pass_lateness
    rig.start(rig.make(total=3))
    rig.pass_time(4)
    assert (lateness.count, lateness.sum) == (1, 0.0)
    rig.pass_time(3)
    rig.pass_time(3)
    assert lateness.count == 3
    assert lateness.sum == pytest.approx(3 * TICK)


@pytest.mark.parametrize(("streams", "spacing"), [(1, 1e-5), (40, 4e-4), (1000, 2e-3)])
def test_passes_keep_apart_by_a_little_for_each_sequence(streams: int, spacing: float) -> None:
    assert spacing == pytest.approx(min(MOST_SPACING, streams * SPACING_PER_SEQUENCE))
    rig = DriverRig(slots=streams, inter_token_latency=spacing * 0.75)
    for _ in range(streams):
        rig.driver.submit([rig.make(total=10_000)])
    rig.driver.run()
    first = rig.now
    assert rig.pending == [pytest.approx(first + spacing, abs=1e-9)]
    rig.clock.advance(rig.pending[0] - first)
    assert rig.pending == [pytest.approx(rig.now + spacing, abs=1e-9)]
    (calls,) = {len(log(each).calls) for each in rig.started}
    assert calls == 2


def test_a_new_request_does_not_wait_for_the_spacing() -> None:
    rig = DriverRig(slots=200, inter_token_latency=TICK)
    for _ in range(100):
        rig.start(rig.make(total=9))
    assert [log(each).tokens for each in rig.started] == [[1]] * 100
    assert rig.now == rig.started[0].arrival


def test_spacing_delays_but_never_shifts_the_deadlines() -> None:
    rig = DriverRig(slots=300, time_to_first_token=TICK, inter_token_latency=8 * TICK)
    start: dict[Sequence, float] = {}
    for _ in range(100):  # their deadlines lie closer together than passes may
        sequence = rig.make(total=20)
        start[sequence] = rig.now
        rig.start(sequence)
        rig.clock.advance(TICK / 256)
    while rig.pending:
        rig.clock.advance(max(0.0, rig.pending[0] - rig.now))
    for sequence, began in start.items():
        times = log(sequence).token_times()
        late = [now - began - (1 + 8 * token) * TICK for token, now in enumerate(times)]
        assert len(late) == 20
        assert min(late) >= -1e-9
        assert max(late) <= MOST_SPACING + 1e-9


def test_run_inside_a_pass_does_nothing() -> None:
    rig = DriverRig(slots=3)
    other = rig.make(total=1)
    found: list[tuple[int, int]] = []

    def reenter(_: Sequence) -> None:
        rig.driver.submit([other])
        before = len(rig.clock.armed)
        rig.driver.run()
        found.append((len(log(other).calls), len(rig.clock.armed) - before))

    first = rig.make(total=1, then=reenter)
    rig.start(first)
    assert found == [(0, 0)]
    # The pass armed the clock as it ended.
    assert rig.pending == [rig.now + SPACING_PER_SEQUENCE]
    rig.pass_time(1)
    assert log(other).reasons == ["stop"]
    assert log(first).reasons == ["stop"]
    assert rig.driver.engine.faults == []


def test_abort_frees_the_slot_and_the_next_one_is_served() -> None:
    rig = DriverRig(slots=1, time_to_first_token=8 * TICK)
    start = rig.now
    first, second = rig.make(), rig.make()
    rig.start(first, second)
    rig.pass_time(3)
    rig.driver.abort(first)
    assert rig.stats.running == 1
    for _ in range(8):
        rig.pass_time(1)
    assert log(second).token_times() == [start + 11 * TICK]


def test_abort_arms_for_the_sequence_it_lets_in() -> None:
    # Nothing but the abort arms the clock: the sequence let in is due before the one that stays.
    rig = DriverRig(slots=2, latency_calculator="per-token", prefill_time_per_token=TICK)
    start = rig.now
    long, longer, short = (rig.make(prompt=range(prompt)) for prompt in (60, 90, 2))
    rig.start(long, longer, short)
    assert rig.pending == [start + 60 * TICK]
    rig.driver.abort(longer)
    assert rig.pending == [start + 2 * TICK]
    rig.pass_time(2)
    assert log(short).reasons == ["stop"]


def test_abort_of_all_there_is_disarms_the_clock() -> None:
    rig = DriverRig(time_to_first_token=TICK)
    sequence = rig.make()
    rig.start(sequence)
    rig.driver.abort(sequence)
    assert rig.pending == []
    assert rig.engine.idle


def test_a_sink_may_abort_through_the_driver() -> None:
    rig = DriverRig(slots=1, inter_token_latency=TICK)
    first = rig.make(total=5, then=rig.driver.abort)
    second = rig.make(total=2)
    rig.start(first, second)
    for _ in range(4):
        rig.pass_time(0.5)
    assert first.finish_reason == "abort"
    assert log(second).reasons == [None, "stop"]
    assert rig.pending == []


def test_cutting_short_ends_replies_as_they_stand() -> None:
    rig = DriverRig(slots=1, time_to_first_token=TICK)
    sequences = [rig.make() for _ in range(3)]
    rig.start(*sequences)
    rig.driver.cut_short(rig.engine.sequences)
    assert [log(each).reasons for each in sequences] == [["abort"]] * 3
    rig.pass_time(5)
    assert rig.pending == []
    assert rig.engine.idle


def test_giving_up_fails_everything_and_starts_nothing_more() -> None:
    rig = DriverRig(slots=1, time_to_first_token=TICK)
    sequences = [rig.make() for _ in range(3)]
    rig.start(*sequences)
    rig.driver.give_up()
    assert [(log(each).failed, log(each).calls) for each in sequences] == [([each], []) for each in sequences]
    assert rig.started == sequences[:1]
    assert rig.pending == []
    assert rig.engine.idle
    assert rig.engine.stats.finished["abort"] == 3


def test_who_cannot_be_told_hinders_nobody(logged: list[LogEvent]) -> None:
    rig = DriverRig(slots=1, time_to_first_token=TICK)
    sequences = [rig.make() for _ in range(3)]
    log(sequences[1]).fail = fail  # type: ignore[method-assign]
    rig.start(*sequences)
    rig.driver.give_up()
    assert [log(each).failed for each in sequences[::2]] == [[sequences[0]], [sequences[2]]]
    assert len(logged) == 1


def test_time_stands_still_while_frozen() -> None:
    rig = DriverRig(slots=1, inter_token_latency=2 * TICK)
    running, waiting = rig.make(total=4), rig.make()
    rig.start(running)
    rig.pass_time(1)
    rig.driver.freeze()
    assert rig.pending == []
    rig.start(waiting)
    rig.pass_time(1000)
    assert (running.revealed, waiting.running) == (1, False)
    rig.driver.resume()
    start = log(running).calls[0][0]
    for _ in range(8):
        rig.pass_time(1)
    # A tick of the gap had passed.
    assert log(running).token_times() == [start + TICK * ticks for ticks in (0, 1002, 1004, 1006)]
    assert log(waiting).reasons == ["stop"]


def test_what_runs_goes_on_while_admission_is_held() -> None:
    rig = DriverRig(slots=2, inter_token_latency=TICK)
    running, waiting = rig.make(total=3), rig.make()
    rig.start(running)
    rig.driver.hold()
    rig.start(waiting)
    for _ in range(4):
        rig.pass_time(1)
    assert (running.finish_reason, waiting.running) == ("stop", False)
    rig.driver.resume()
    rig.pass_time(0)
    assert log(waiting).reasons == ["stop"]


def test_a_sink_may_ask_again_when_all_are_cut_short() -> None:
    rig = DriverRig(slots=1, time_to_first_token=TICK)
    again: list[Sequence] = []

    def ask_again(_: Sequence) -> None:
        again.append(rig.make())
        rig.driver.submit(again)

    rig.start(rig.make(then=ask_again), rig.make())
    rig.driver.cut_short(rig.engine.sequences)
    rig.pass_time(1)
    rig.pass_time(1)
    assert log(again[0]).reasons == ["stop"]


def test_life_goes_on_after_giving_up() -> None:
    rig = DriverRig(slots=1, time_to_first_token=TICK)
    rig.start(rig.make())
    rig.driver.give_up()
    again = rig.make()
    rig.start(again)
    rig.pass_time(1)
    rig.pass_time(1)
    assert log(again).reasons == ["stop"]


# --- faults


def fail(_: Sequence) -> None:
    raise ValueError("a sink's fault")


def faults(logged: list[LogEvent]) -> list[object]:
    """What was logged as errors, each with its failure."""
    assert all(event["log_level"] is LogLevel.error for event in logged)
    for event in logged:
        failure = event["log_failure"]
        assert failure.value is event["fault"]
        assert failure.getTracebackObject() is not None
    return [event["fault"] for event in logged]


def test_a_sinks_fault_is_logged_once(logged: list[LogEvent]) -> None:
    rig = DriverRig(inter_token_latency=TICK)
    good = rig.make(total=3)
    rig.start(rig.make(total=3, then=fail), good)
    (fault,) = faults(logged)
    assert str(fault) == "a sink's fault"
    for _ in range(5):
        rig.pass_time(1)
    assert log(good).reasons[-1] == "stop"
    assert len(logged) == 1
    assert rig.engine.faults == []


def test_a_fault_in_a_timed_pass_is_logged(logged: list[LogEvent]) -> None:
    rig = DriverRig(time_to_first_token=TICK)
    rig.start(rig.make(then=fail))
    assert logged == []
    rig.pass_time(1)
    assert len(faults(logged)) == 1


def test_a_writers_fault_is_logged_by_submit(logged: list[LogEvent]) -> None:
    rig = DriverRig()
    fault = ValueError("a writer's fault")
    rig.driver.submit([rig.make(fault=fault)])
    assert faults(logged) == [fault]


def test_a_writers_fault_is_logged_by_the_abort_that_let_it_write(logged: list[LogEvent]) -> None:
    rig = DriverRig(slots=1, time_to_first_token=TICK)
    fault = ValueError("a writer's fault")
    first, second = rig.make(), rig.make(fault=fault)
    rig.start(first, second)
    rig.driver.abort(first)
    assert faults(logged) == [fault]


def test_a_sinks_fault_in_cutting_short_is_logged(logged: list[LogEvent]) -> None:
    rig = DriverRig(time_to_first_token=TICK)
    rig.start(rig.make(then=fail), rig.make(then=fail))
    rig.driver.cut_short(rig.engine.sequences)
    assert len(faults(logged)) == 2
    assert rig.engine.faults == []


def test_the_sink_of_what_failed_is_told_and_no_other() -> None:
    rig = DriverRig()
    bad, good = rig.make(then=fail), rig.make()
    rig.start(bad, good)
    assert (log(bad).failed, log(good).failed) == ([bad], [])


def test_a_sink_that_fails_again_when_told_stops_nobody(logged: list[LogEvent]) -> None:
    rig = DriverRig(time_to_first_token=TICK)
    bad, good = rig.make(then=fail), rig.make()
    log(bad).failed = None  # type: ignore[assignment]
    rig.start(bad, good)
    rig.pass_time(1)
    assert log(good).reasons == ["stop"]
    assert len(logged) == 2


def test_what_is_logged_reads_well(logged: list[LogEvent]) -> None:
    from twisted.logger import formatEvent

    rig = DriverRig()
    rig.start(rig.make(then=fail))
    (event,) = logged
    assert "a sink's fault" in formatEvent(event)
    assert "in fail" in event["log_failure"].getTraceback()


# --- on the real clock


def test_on_a_deadline_clock_tokens_come_at_absolute_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    on = ClockRig(monkeypatch)
    on.clock.start()
    rig = Rig(time_to_first_token=8 * TICK, inter_token_latency=2 * TICK)
    driver = EngineDriver(rig.engine, on.clock)
    start = on.now
    times: list[float] = []
    driver.submit([rig.make(total=50, then=lambda _: times.append(on.now - start))])
    driver.run()
    while rig.stats.running:
        on.now = max(on.now, on.timer.deadline) + TICK / 2  # every pass is late
        on.passes()
    assert times == [(8 + 2 * token + 0.5) * TICK for token in range(50)]
    on.close()


def test_on_a_deadline_clock_aborted_requests_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    on = ClockRig(monkeypatch)
    on.clock.start()
    on.clock.callLater(1.0, lambda: None)  # as the daemon's periodic work
    rig = Rig(time_to_first_token=60.0)
    driver = EngineDriver(rig.engine, on.clock)
    for _ in range(5000):
        sequence = rig.make()
        driver.submit([sequence])
        driver.run()
        driver.abort(sequence)
    assert len(on.clock._heap) < 500
    on.close()


def test_times_that_change_arm_anew() -> None:
    rig = DriverRig(time_to_first_token=60.0)
    start = rig.now
    sequence = rig.make()
    rig.start(sequence)
    assert rig.pending == [start + 60.0]
    rig.latency.configure(Settings(time_to_first_token=8 * TICK))
    rig.driver.retime()
    assert rig.pending == [start + 8 * TICK]
    rig.pass_time(8)
    assert log(sequence).token_times() == [start + 8 * TICK]
    assert rig.pending == []


def test_times_that_become_longer_cost_a_pass_that_finds_nothing() -> None:
    rig = DriverRig(time_to_first_token=8 * TICK)
    start = rig.now
    sequence = rig.make()
    rig.start(sequence)
    rig.latency.configure(Settings(time_to_first_token=60.0))
    rig.driver.retime()
    rig.pass_time(8)
    assert log(sequence).calls == []
    assert rig.pending == [start + 60.0]


def test_a_hundred_thousand_tokens_of_late_passes_add_no_drift() -> None:
    first, gap, streams, tokens = 96 * TICK, 20 * TICK, 20, 5000
    rig = DriverRig(slots=streams, time_to_first_token=first, inter_token_latency=gap)
    random = Random(5)
    start = rig.now
    sequences = [rig.make(total=tokens) for _ in range(streams)]
    for sequence in sequences:
        rig.driver.submit([sequence])
    rig.driver.run()
    while rig.pending:
        # Every pass is late by up to 15 ms, on gaps of 20.
        late = random.uniform(0.0, 15 * TICK)
        rig.clock.advance(rig.pending[0] - rig.now + late)
    for sequence in sequences:
        times = log(sequence).token_times()
        assert len(times) == tokens
        late_by = [time - (start + first + gap * index) for index, time in enumerate(times)]
        assert min(late_by) > -1e-9
        # No later at the end than one pass is late: what each was late by has gone into none that followed.
        assert max(late_by) < 15 * TICK + 1e-6
        assert sum(late_by[-1000:]) / 1000 == pytest.approx(sum(late_by[:1000]) / 1000, abs=TICK)
    stats = rig.engine.stats
    assert stats.generation_tokens == streams * tokens == 100_000
    assert stats.inter_token_latency.sum == pytest.approx(
        streams * (tokens - 1) * gap, abs=streams * 15 * TICK
    )
    assert stats.pass_lateness.sum > 1.0  # the passes were late
