"""`/metrics` as Prometheus would read it, and whether its numbers are true."""

import json
import time

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics

from tests.integration.client import Client, Metrics, chat_of, eventually
from tests.integration.daemon import Daemon, Pool
from tests.metrics.vllm import CACHE_CONFIG, DASHBOARDS, FAMILIES

pytestmark = pytest.mark.integration

HISTOGRAMS = [name for name, known in FAMILIES.items() if known.kind == "histogram"]


def grown(before: Metrics, after: Metrics, name: str, **labels: str) -> float:
    return after.value(name, **labels) - before.value(name, **labels)


@pytest.fixture(scope="module")
def fresh() -> Metrics:
    """What a daemon says that has not served a request."""
    with Daemon("--served-model-name", "org/name", "alias", "--max-model-len", "4096") as daemon:
        return daemon.client.metrics()


@pytest.mark.parametrize("name", FAMILIES)
def test_r13_every_family_is_there_with_zeros_before_the_first_request(fresh: Metrics, name: str) -> None:
    known = FAMILIES[name]
    family = fresh.families[name]
    assert family.type == known.kind
    assert family.documentation
    labels = {*known.common, *([known.label] if known.label else [])}
    for sample in family.samples:
        assert set(sample.labels) - {"le"} == labels
        assert sample.labels["model_name"] == "org/name", "the first served name"
        assert sample.labels.get("engine", "0") == "0"
        assert sample.value == (1 if sample.labels.get("sleep_state") == "awake" else 0)
    for value in known.values:
        end = "_total" if known.kind == "counter" else ""
        fresh.value(f"{name}{end}", **{known.label: value})
    if known.buckets:
        bounds = [float(each.labels["le"]) for each in family.samples if "le" in each.labels]
        assert bounds == [*known.buckets, float("inf")]


def test_r14_r54_there_is_nothing_else_but_what_a_vllm_server_shows(fresh: Metrics) -> None:
    ours = {name for name in fresh.families if name.startswith("vllm:") and not name.endswith("_created")}
    assert ours == {*FAMILIES, "vllm:cache_config_info"}
    (info,) = fresh.families["vllm:cache_config_info"].samples
    assert info.labels == {**CACHE_CONFIG, "engine": "0", "kv_cache_max_concurrency": "4.0"}
    for name in ("python_info", "process_open_fds", "http_requests", "http_request_duration_highr_seconds"):
        assert name in fresh.families
    names = {name for name, _ in fresh.samples}
    assert set(DASHBOARDS) <= names


def test_r87_the_content_type_is_prometheus_own(client: Client) -> None:
    for path in ("/metrics", "/metrics/"):
        for method in ("GET", "HEAD"):
            for accept in ({}, {"Accept": "*/*"}, {"Accept": "text/plain"}):
                reply = client.ask(method, path, headers=accept)
                assert reply.status == 200
                assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
                assert bool(reply.body) == (method == "GET")


def test_openmetrics_for_who_prefers_it(client: Client) -> None:
    client.chat(max_tokens=2)
    prometheus_3 = (
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
        "application/openmetrics-text;version=0.0.1;q=0.4,"
        "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
    )
    reply = client.get("/metrics", Accept=prometheus_3)
    assert reply.headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    families = {family.name: family for family in read_openmetrics(reply.body.decode())}
    text = client.metrics()
    assert set(families) == {name for name in text.families if not name.endswith("_created")}
    for name, family in families.items():
        assert family.type == text.families[name].type
        assert [
            (each.name, each.labels) for each in family.samples if not each.name.endswith("_created")
        ] == [(each.name, each.labels) for each in text.families[name].samples]


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
            ("vllm:request_prefill_kv_computed_tokens_sum", 8),
            ("vllm:request_num_preemptions_count", 1),
            ("vllm:iteration_tokens_total_sum", 13),
            ("http_request_duration_highr_seconds_count", 1),
        ):
            labels = {"finished_reason": "length"} if "success" in name else {}
            assert grown(before, after, name, **labels) == each * done, name
        assert after.value("vllm:num_requests_running") == 0


def test_reasons_are_told_apart(daemon_with: Pool) -> None:
    client = daemon_with("--mode", "echo").client
    before = client.metrics()
    client.chat("one two three")
    client.chat("one two three", max_tokens=2)
    client.chat("one two three", stop=["two"])
    after = client.metrics()
    for reason, by in (("stop", 2), ("length", 1), ("abort", 0)):
        assert grown(before, after, "vllm:request_success_total", finished_reason=reason) == by


def test_parameters_are_counted(client: Client) -> None:
    before = client.metrics()
    client.chat(n=3, max_tokens=7, ignore_eos=True)
    after = client.metrics()
    for name, labels, by in (
        ("vllm:request_params_n_count", {}, 1),
        ("vllm:request_params_n_sum", {}, 3),
        ("vllm:request_params_max_tokens_sum", {}, 21),
        ("vllm:request_max_num_generation_tokens_sum", {}, 7),
        ("vllm:request_generation_tokens_count", {}, 3),
        ("vllm:request_generation_tokens_bucket", {"le": "5.0"}, 0),
        ("vllm:request_generation_tokens_bucket", {"le": "10.0"}, 3),
    ):
        assert grown(before, after, name, **labels) == by, name


def test_r43_times_are_measured(daemon_with: Pool) -> None:
    client = daemon_with("--time-to-first-token", "300ms", "--inter-token-latency", "50ms").client
    before = client.metrics()
    began = time.monotonic()
    assert client.chat(max_tokens=6, ignore_eos=True).status == 200
    took = time.monotonic() - began
    after = client.metrics()

    def seconds(name: str) -> float:
        return grown(before, after, f"vllm:{name}_seconds_sum")

    ttft, gaps, whole = map(seconds, ("time_to_first_token", "inter_token_latency", "e2e_request_latency"))
    assert 0.3 <= ttft < took
    assert 0.24 < gaps < took
    assert ttft not in (0.3, 0.25), "measured, not configured"
    assert whole == pytest.approx(ttft + gaps, abs=0.01)
    assert whole <= took
    assert seconds("request_prefill_time") == pytest.approx(ttft, abs=0.01)
    assert seconds("request_decode_time") == pytest.approx(gaps, abs=0.001)
    assert seconds("request_inference_time") == pytest.approx(whole, abs=0.01)
    assert seconds("request_queue_time") == pytest.approx(0, abs=0.01)
    assert seconds("request_time_per_output_token") == pytest.approx(gaps / 5, abs=0.001)


def test_clients_that_left_and_refused_requests(daemon_with: Pool) -> None:
    flags = ("--max-num-seqs", "1", "--max-waiting-queue-length", "0", "--time-to-first-token", "30s")
    client = daemon_with(*flags).client
    with client.connect() as connection:
        connection.post("/v1/chat/completions", chat_of("hello", max_tokens=5))
        eventually(lambda: client.metrics().value("vllm:num_requests_running") == 1)
        assert client.chat(n=1, max_tokens=5).status == 429
    eventually(lambda: client.metrics().value("vllm:num_requests_running") == 0)
    metrics = client.metrics()
    assert metrics.value("llmdsim:queue_full_refusals_total", engine="0") == 1
    for reason in ("max_num_queued_reqs", "max_num_queued_tokens"):
        assert metrics.value("vllm:admission_rejections_total", reason=reason) == 0
    assert metrics.value("vllm:request_success_total", finished_reason="abort") == 1
    chats = {"handler": "/v1/chat/completions", "method": "POST", "status": "4xx"}
    # The refused one, and the one that left unanswered.
    assert metrics.value("http_requests_total", **chats) == 2


def test_http_requests_are_counted_by_route() -> None:
    with Daemon() as daemon:
        client = daemon.client
        body = json.dumps(chat_of("hello", max_tokens=2)).encode()
        replies = [client.ask("POST", "/v1/chat/completions", body) for _ in range(2)]
        streamed = json.dumps(chat_of("hello", max_tokens=2, stream=True)).encode()
        client.ask("POST", "/v1/chat/completions", streamed)
        client.get("/v1/models/m")
        client.get("/nowhere")
        client.get("/v1/chat/completions")
        for path in ("/health", "/health/ready", "/ready", "/ping", "/load", "/version", "/metrics"):
            client.get(path)
        metrics = client.metrics()
    counts = {
        (labels["handler"], labels["method"], labels["status"]): value
        for (name, items), value in metrics.samples.items()
        if name == "http_requests_total" and (labels := dict(items))
    }
    chat = "/v1/chat/completions"
    assert counts == {
        (chat, "POST", "2xx"): 3,
        ("/v1/models/{name}", "GET", "2xx"): 1,
        ("none", "GET", "4xx"): 2,
    }
    assert metrics.value("http_request_size_bytes_sum", handler=chat) == 2 * len(body) + len(streamed)
    sent = sum(len(reply.body) for reply in replies)
    assert metrics.value("http_response_size_bytes_sum", handler=chat) == sent, "streams have no length"
    assert metrics.value("http_request_duration_highr_seconds_count") == 6
    assert metrics.value("http_request_duration_seconds_count", handler=chat, method="POST") == 3


def test_disable_log_stats_takes_the_engines_families_away() -> None:
    with Daemon("--disable-log-stats") as daemon:
        assert daemon.client.chat(max_tokens=1).status == 200
        metrics = daemon.client.metrics()
        assert not [name for name in metrics.families if name.startswith("vllm:")]
        assert metrics.value("http_requests_total", status="2xx") == 1
        assert "process_open_fds" in metrics.families


def test_created_series_can_be_switched_off() -> None:
    with Daemon(environ={"PROMETHEUS_DISABLE_CREATED_SERIES": "True"}) as daemon:
        assert not [name for name in daemon.client.metrics().families if name.endswith("_created")]


def test_counters_only_grow(client: Client) -> None:
    last = client.metrics()
    for _ in range(5):
        client.chat(max_tokens=3, n=2)
        client.chat(max_tokens=-1)
        now = client.metrics()
        for name, family in last.families.items():
            if family.type != "gauge":
                for sample in family.samples:
                    key = sample.name, frozenset(sample.labels.items())
                    assert now.samples[key] >= sample.value, name
        assert sum(now.finished().values()) == sum(last.finished().values()) + 2
        last = now


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
