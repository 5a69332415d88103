"""`/metrics` as Prometheus would read it, and whether its numbers are true."""

import time

import pytest

from tests.integration.client import Client, Metrics
from tests.integration.daemon import Daemon, Pool

pytestmark = pytest.mark.integration

GAUGES = ("vllm:num_requests_running", "vllm:num_requests_waiting")
COUNTERS = ("vllm:prompt_tokens", "vllm:generation_tokens", "vllm:request_success")
HISTOGRAMS = (
    *("vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds"),
    *("vllm:request_time_per_output_token_seconds", "vllm:e2e_request_latency_seconds"),
    *("vllm:request_queue_time_seconds", "vllm:request_inference_time_seconds"),
    *("vllm:request_prefill_time_seconds", "vllm:request_decode_time_seconds"),
    *("vllm:request_prompt_tokens", "vllm:request_generation_tokens", "vllm:request_params_n"),
    *("vllm:request_params_max_tokens", "vllm:request_max_num_generation_tokens"),
)


@pytest.fixture(scope="module")
def fresh() -> Metrics:
    """What a daemon says that has not served a request."""
    with Daemon("--served-model-name", "org/name", "alias") as daemon:
        return daemon.client.metrics()


def test_r13_every_family_is_there_with_zeros_before_the_first_request(fresh: Metrics) -> None:
    for name in GAUGES:
        assert fresh.families[name].type == "gauge"
        assert fresh.value(name) == 0
    for name in COUNTERS:
        assert fresh.families[name].type == "counter"
    for name in COUNTERS[:2]:
        assert fresh.value(f"{name}_total") == 0
    for name in HISTOGRAMS:
        assert fresh.families[name].type == "histogram"
        assert fresh.value(f"{name}_count") == 0
        assert fresh.value(f"{name}_sum") == 0
        assert fresh.value(f"{name}_bucket", le="+Inf") == 0
    for reason in ("stop", "length", "abort"):
        assert fresh.value("vllm:request_success_total", finished_reason=reason) == 0


def test_r54_every_sample_has_vllms_labels(fresh: Metrics) -> None:
    ours = [family for name, family in fresh.families.items() if name.startswith("vllm:")]
    for family in ours:
        assert family.documentation
        for sample in family.samples:
            assert sample.labels["model_name"] == "org/name", "the first served name"
            assert sample.labels["engine"] == "0"
    assert any(name.startswith("process_") for name in fresh.families)


def test_r87_the_content_type_is_prometheus_own(client: Client) -> None:
    for method in ("GET", "HEAD"):
        reply = client.ask(method, "/metrics")
        assert reply.status == 200
        assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")


def test_r53_names_that_need_escaping_are_parsed_back() -> None:
    name = 'a "quoted" \\ name with é and blanks'
    with Daemon("--served-model-name", name) as daemon:
        assert daemon.client.chat(model=name, max_tokens=1).status == 200
        assert daemon.client.metrics().value("vllm:generation_tokens_total", model_name=name) == 1


def test_r24_numbers_are_right_when_the_last_byte_has_come(client: Client) -> None:
    before = client.metrics()
    for done in range(1, 31):
        if done % 2:
            client.chat("a b c", max_tokens=5, ignore_eos=True)
        else:
            client.chat_stream("a b c", max_tokens=5, ignore_eos=True)
        after = client.metrics()
        for name, each in (
            ("vllm:request_success_total", 1),
            ("vllm:generation_tokens_total", 5),
            ("vllm:prompt_tokens_total", 8),
            ("vllm:e2e_request_latency_seconds_count", 1),
            ("vllm:time_to_first_token_seconds_count", 1),
            ("vllm:inter_token_latency_seconds_count", 4),
            ("vllm:request_generation_tokens_sum", 5),
        ):
            labels = {"finished_reason": "length"} if "success" in name else {}
            assert after.value(name, **labels) - before.value(name, **labels) == each * done, name
        assert after.value("vllm:num_requests_running") == 0


def test_reasons_are_told_apart(daemon_with: Pool) -> None:
    client = daemon_with("--mode", "echo").client
    before = client.metrics()
    client.chat("one two three")
    client.chat("one two three", max_tokens=2)
    client.chat("one two three", stop=["two"])
    after = client.metrics()
    for reason, grown in (("stop", 2), ("length", 1), ("abort", 0)):
        name = "vllm:request_success_total"
        assert after.value(name, finished_reason=reason) - before.value(name, finished_reason=reason) == grown


def test_parameters_are_counted(client: Client) -> None:
    before = client.metrics()
    client.chat(n=3, max_tokens=7, ignore_eos=True)
    after = client.metrics()

    def grown(name: str, **labels: str) -> float:
        return after.value(name, **labels) - before.value(name, **labels)

    assert grown("vllm:request_params_n_count") == 1
    assert grown("vllm:request_params_n_sum") == 3
    assert grown("vllm:request_params_max_tokens_sum") == 21
    assert grown("vllm:request_max_num_generation_tokens_sum") == 7
    assert grown("vllm:request_generation_tokens_count") == 3
    assert grown("vllm:request_generation_tokens_bucket", le="5.0") == 0
    assert grown("vllm:request_generation_tokens_bucket", le="10.0") == 3


def test_r43_times_are_measured(daemon_with: Pool) -> None:
    client = daemon_with("--time-to-first-token", "300ms", "--inter-token-latency", "50ms").client
    before = client.metrics()
    began = time.monotonic()
    assert client.chat(max_tokens=6, ignore_eos=True).status == 200
    took = time.monotonic() - began
    after = client.metrics()

    def grown(name: str) -> float:
        return after.value(f"vllm:{name}_seconds_sum") - before.value(f"vllm:{name}_seconds_sum")

    ttft, gaps, whole = (
        grown(n) for n in ("time_to_first_token", "inter_token_latency", "e2e_request_latency")
    )
    assert 0.3 <= ttft < took
    assert 0.24 < gaps < took
    assert ttft not in (0.3, 0.25), "measured, not configured"
    assert whole == pytest.approx(ttft + gaps, abs=0.01)
    assert whole <= took
    assert grown("request_prefill_time") == pytest.approx(ttft, abs=0.01)
    assert grown("request_decode_time") == pytest.approx(gaps, abs=0.001)
    assert grown("request_inference_time") == pytest.approx(whole, abs=0.01)
    assert grown("request_queue_time") == pytest.approx(0, abs=0.01)
    assert grown("request_time_per_output_token") == pytest.approx(gaps / 5, abs=0.001)


def test_buckets_rise_to_the_count(daemon: Daemon) -> None:
    daemon.client.chat(max_tokens=3)
    metrics = daemon.client.metrics()
    for name in HISTOGRAMS:
        samples = metrics.families[name].samples
        buckets = [(float(s.labels["le"]), s.value) for s in samples if s.name.endswith("_bucket")]
        assert buckets == sorted(buckets), name
        assert [value for _, value in buckets] == sorted(value for _, value in buckets)
        assert buckets[-1] == (float("inf"), metrics.value(f"{name}_count"))


def test_a_refused_request_is_counted_nowhere(client: Client) -> None:
    before = client.metrics()
    assert client.chat(temperature=3).status == 400
    assert client.chat(model="nobody").status == 404
    after = client.metrics()
    changed = {
        key
        for key, value in after.samples.items()
        if key[0].startswith("vllm:") and before.samples[key] != value
    }
    assert changed == set()
