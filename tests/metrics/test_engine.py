"""What the `vllm:` families say of the numbers, read back with prometheus_client's parsers."""

from __future__ import annotations

import pytest

from llmdsim.engine.kvcache.pool import Pool
from llmdsim.engine.stats import FINISH_REASONS, KV_BYTES_PER_TOKEN, SLEEP_STATES, Stats
from llmdsim.metrics import Collector, engine_blocks, transfer_blocks
from tests.metrics.pages import FORMATS, collector, families, samples, value

#: Where each number shows.
NUMBERS = {
    "running": {"vllm:num_requests_running": {}},
    "waiting": {
        "vllm:num_requests_waiting": {},
        "vllm:num_requests_waiting_by_reason": {"reason": "capacity"},
    },
    "prefix_cache_queries": {"vllm:prefix_cache_queries_total": {}},
    "prefix_cache_hits": {
        "vllm:prefix_cache_hits_total": {},
        "vllm:prompt_tokens_cached_by_source_total": {"source": "device"},
    },
    "preemptions": {"vllm:num_preemptions_total": {}},
    "prompt_tokens": {
        "vllm:prompt_tokens_total": {},
        "vllm:prompt_tokens_by_source_total": {"source": "local_compute"},
    },
    "generation_tokens": {"vllm:generation_tokens_total": {}},
}

HISTOGRAMS = {
    "vllm:time_to_first_token_seconds": "time_to_first_token",
    "vllm:inter_token_latency_seconds": "inter_token_latency",
    "vllm:time_per_output_token_seconds": "inter_token_latency",
    "vllm:request_time_per_output_token_seconds": "time_per_output_token",
    "vllm:e2e_request_latency_seconds": "e2e_latency",
    "vllm:request_queue_time_seconds": "queue_time",
    "vllm:request_inference_time_seconds": "inference_time",
    "vllm:request_prefill_time_seconds": "prefill_time",
    "vllm:request_decode_time_seconds": "decode_time",
    "vllm:request_prompt_tokens": "request_prompt_tokens",
    "vllm:request_generation_tokens": "request_generation_tokens",
    "vllm:iteration_tokens_total": "pass_tokens",
    "vllm:request_max_num_generation_tokens": "max_num_generation_tokens",
    "vllm:max_num_generation_tokens": "max_num_generation_tokens",
    "vllm:request_params_max_tokens": "params_max_tokens",
    "vllm:request_params_n": "params_n",
    "vllm:request_num_preemptions": "request_preemptions",
    "vllm:request_prefill_kv_computed_tokens": "prefill_computed_tokens",
}


def numbers(page: Collector) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample's value."""
    return {(each.name, frozenset(each.labels.items())): each.value for each in samples(page)}


def moved(page: Collector, before: object) -> list[tuple[str, float]]:
    """What changed since `before`, and what it is now."""
    assert isinstance(before, dict)
    return [(name, now) for (name, labels), now in numbers(page).items() if before[name, labels] != now]


def test_the_usage_of_the_kv_cache_is_that_of_its_blocks() -> None:
    stats = Stats(4096)
    page = collector(stats)
    assert value(page, "vllm:kv_cache_usage_perc") == 0
    stats.pool = Pool(8)
    stats.pool.reserve(2)
    assert value(page, "vllm:kv_cache_usage_perc") == 0.25


@pytest.mark.parametrize("attribute", NUMBERS)
def test_gauges_and_counters_read_their_own_number(attribute: str) -> None:
    stats = Stats(4096)
    page = collector(stats)
    before = numbers(page)
    for number in (3, 2_500_000, 0):
        setattr(stats, attribute, number)
        expected = [(name, number) for name in NUMBERS[attribute]] if number else []
        assert moved(page, before) == expected
        for name, labels in NUMBERS[attribute].items():
            assert value(page, name, **labels) == number


def test_deferred_requests_are_told_apart_from_those_that_want_a_slot() -> None:
    stats = Stats(4096)
    page = collector(stats)
    stats.waiting, stats.deferred = 5, 2
    assert value(page, "vllm:num_requests_waiting") == 5
    assert value(page, "vllm:num_requests_waiting_by_reason", reason="capacity") == 3
    assert value(page, "vllm:num_requests_waiting_by_reason", reason="deferred") == 2


def test_cached_tokens_are_part_of_the_prompts() -> None:
    stats = Stats(4096)
    page = collector(stats)
    stats.prompt_tokens, stats.cached_tokens = 50, 32
    assert value(page, "vllm:prompt_tokens_total") == 50
    assert value(page, "vllm:prompt_tokens_cached_total") == 32
    for source, tokens in (("local_compute", 18), ("local_cache_hit", 32), ("external_kv_transfer", 0)):
        assert value(page, "vllm:prompt_tokens_by_source_total", source=source) == tokens


@pytest.mark.parametrize("state", SLEEP_STATES)
def test_one_sleep_state_is_on(state: str) -> None:
    stats = Stats(4096)
    page = collector(stats)
    page.text()
    stats.sleep_state = state
    for each in SLEEP_STATES:
        assert value(page, "vllm:engine_sleep_state", sleep_state=each) == (each == state)


@pytest.mark.parametrize("reason", FINISH_REASONS)
def test_finished_requests_by_reason(reason: str) -> None:
    stats = Stats(4096)
    page = collector(stats)
    before = numbers(page)
    stats.finished[reason] += 2
    assert moved(page, before) == [("vllm:request_success_total", 2)]
    assert value(page, "vllm:request_success_total", finished_reason=reason) == 2


@pytest.mark.parametrize(("name", "attribute"), HISTOGRAMS.items())
def test_histograms_are_cumulative_and_read_their_own_observations(name: str, attribute: str) -> None:
    stats = Stats(4096)
    page = collector(stats)
    page.text()
    histogram = getattr(stats, attribute)
    first, second = histogram.bounds[:2]
    histogram.observe(first)  # a bound belongs to its own bucket
    histogram.observe_times(second, 3)
    histogram.observe(1e9)
    buckets = [each.value for each in samples(page) if each.name == f"{name}_bucket"]
    assert buckets == [1] + [4] * (len(histogram.bounds) - 1) + [5]
    assert value(page, f"{name}_count") == 5
    assert value(page, f"{name}_sum") == first + second * 3 + 1e9
    counted = {each.name for each in samples(page) if each.value == 5 and "le" in each.labels}
    assert counted == {f"{each}_bucket" for each, source in HISTOGRAMS.items() if source == attribute}


def test_a_histogram_with_millions_of_observations() -> None:
    stats = Stats(4096)
    page = collector(stats)
    stats.inter_token_latency.observe_times(0.02, 999_999)
    assert b'vllm:inter_token_latency_seconds_count{engine="0",model_name="m"} 999999.0\n' in page.text()
    stats.inter_token_latency.observe(0.06)
    text = page.text()
    assert b'vllm:inter_token_latency_seconds_bucket{engine="0",le="0.05",model_name="m"} 999999.0\n' in text
    assert b'vllm:inter_token_latency_seconds_bucket{engine="0",le="+Inf",model_name="m"} 1e+06\n' in text


def test_a_sample_of_zero_moves_its_bucket_though_not_the_sum() -> None:
    stats = Stats(4096)
    page = collector(stats)
    page.text()
    stats.queue_time.observe(0.0)
    assert value(page, "vllm:request_queue_time_seconds_count") == 1
    assert value(page, "vllm:request_queue_time_seconds_sum") == 0


@pytest.mark.parametrize("form", FORMATS)
def test_ranks_are_children_of_one_family(form: str) -> None:
    ranks = [("0", Stats(4096)), ("1", Stats(4096))]
    page = Collector(engine_blocks("m", ranks, {}))
    ranks[1][1].running = 4
    ranks[1][1].time_to_first_token.observe(0.1)
    assert value(page, "vllm:num_requests_running", form, engine="0") == 0
    assert value(page, "vllm:num_requests_running", form, engine="1") == 4
    assert value(page, "vllm:time_to_first_token_seconds_count", form, engine="0") == 0
    assert value(page, "vllm:time_to_first_token_seconds_count", form, engine="1") == 1
    assert value(page, "vllm:cache_config_info", form, engine="1") == 1


def test_refusals_are_summed_over_ranks() -> None:
    ranks = [("0", Stats(4096)), ("1", Stats(4096))]
    page = Collector(engine_blocks("m", ranks, {}))
    for number, reason in enumerate(ranks[0][1].rejected, start=1):
        ranks[0][1].rejected[reason], ranks[1][1].rejected[reason] = 2 * number, 3 * number
        assert value(page, "vllm:admission_rejections_total", reason=reason) == 5 * number


TRANSFER_BUCKETS = {
    "vllm:nixl_xfer_time_seconds": (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 5),
    "vllm:nixl_post_time_seconds": (0.001, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 5),
    "vllm:nixl_bytes_transferred": tuple(
        2**power for power in (11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31, 33)
    ),
    "vllm:nixl_num_descriptors": (
        *(10, 20, 30, 50, 75, 100, 200, 400, 1000, 2000, 4000, 10000, 20000, 50000),
    ),
}
TRANSFER_COUNTERS = (
    "vllm:nixl_num_failed_transfers",
    "vllm:nixl_num_failed_notifications",
    "vllm:nixl_num_kv_expired_reqs",
    "vllm:nixl_num_notifications_after_expiry",
)


@pytest.mark.parametrize("form", FORMATS)
def test_transfers_have_vllms_families_labels_and_buckets(form: str) -> None:
    stats = Stats(4096)
    page = Collector(transfer_blocks("m", [("0", stats)], early=True))
    found = families(page, form)
    shown = {name: family.type for name, family in found.items() if not name.endswith("_created")}
    assert shown == dict.fromkeys(TRANSFER_BUCKETS, "histogram") | dict.fromkeys(TRANSFER_COUNTERS, "counter")
    for each in samples(page, form):
        assert (each.labels["engine"], each.labels["model_name"], each.value) == ("0", "m", 0)
    for name, bounds in TRANSFER_BUCKETS.items():
        les = [float(each.labels["le"]) for each in found[name].samples if each.name.endswith("_bucket")]
        assert les == [*bounds, float("inf")]


@pytest.mark.parametrize("form", FORMATS)
def test_without_a_word_of_transfers_their_families_come_with_the_first(form: str) -> None:
    stats = Stats(4096)
    page = Collector(transfer_blocks("m", [("0", stats)], early=False))
    assert families(page, form) == {}
    stats.transfers.look_up(40)
    assert value(page, "vllm:nixl_xfer_time_seconds_count", form) == 0


def test_what_a_transfer_moves() -> None:
    stats = Stats(4096, block_size=32)
    page = Collector(
        [*engine_blocks("m", [("0", stats)], {}), *transfer_blocks("m", [("0", stats)], early=True)]
    )
    before = numbers(page)
    stats.transfers.look_up(40)
    stats.transfers.failed += 1
    assert dict(moved(page, before)) == {
        "vllm:external_prefix_cache_queries_total": 40,
        "vllm:external_prefix_cache_hits_total": 40,
        "vllm:prompt_tokens_cached_by_source_total": 40,
        "vllm:nixl_num_failed_transfers_total": 1,
    }
    stats.prompt_tokens = stats.cached_tokens = 50
    stats.transfers.succeed(0.25, 40)
    by_source = "vllm:prompt_tokens_by_source_total"
    assert value(page, by_source, source="external_kv_transfer") == 40
    assert value(page, by_source, source="local_cache_hit") == 10
    assert value(page, by_source, source="local_compute") == 0
    assert value(page, "vllm:prompt_tokens_cached_by_source_total", source="p2p") == 40
    assert value(page, "vllm:nixl_xfer_time_seconds_sum") == 0.25
    assert value(page, "vllm:nixl_num_descriptors_sum") == 2
    assert value(page, "vllm:nixl_bytes_transferred_sum") == 64 * KV_BYTES_PER_TOKEN


# --- names


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    "model", ['a"b', "a\\b", "a\\", "a\nb", "100%d.0 %b %s", "模型/🦊", "{x},y=1", "", " # "]
)
def test_r53_odd_model_names(model: str, form: str) -> None:
    stats = Stats(16)
    page = collector(stats, model)
    stats.time_to_first_token.observe_times(3, 2_000_000)
    assert value(page, "vllm:time_to_first_token_seconds_count", form, model_name=model) == 2_000_000
    named = [each.labels["model_name"] for each in samples(page, form) if "model_name" in each.labels]
    assert set(named) == {model}


def test_a_name_that_is_no_unicode_does_not_stop_the_page() -> None:
    assert collector(Stats(16), "caf\udce9").text().decode()
