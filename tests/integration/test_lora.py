"""Two adapters of a real daemon that has room for one at a time, by the OpenAI SDK."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread

import pytest
from openai import OpenAI

from tests.integration.client import Client, eventually
from tests.integration.daemon import Daemon, Pool
from tests.integration.sdk import sdk_for

pytestmark = pytest.mark.integration

FLAGS = (
    *("--max-loras", "1", "--max-cpu-loras", "2", "--max-num-seqs", "4", "--lora-load-time", "100ms"),
    *("--inter-token-latency", "20ms", "--lora-modules", "one=/adapters/one", "two=/adapters/two"),
)


@pytest.fixture(scope="module")
def adapted(daemon_with: Pool) -> Daemon:
    return daemon_with(*FLAGS)


@pytest.fixture(scope="module")
def sdk(adapted: Daemon) -> Iterator[OpenAI]:
    with sdk_for(adapted) as client:
        yield client


def series(client: Client) -> list[tuple[str, str]]:
    """Running and waiting adapters of every series, as Prometheus's own parser reads them."""
    family = client.metrics().families["vllm:lora_requests_info"]
    labels = [sample.labels for sample in family.samples]
    assert {label["max_lora"] for label in labels} == {"1"}
    return [(label["running_lora_adapters"], label["waiting_lora_adapters"]) for label in labels]


def loaded(client: Client) -> dict[str, str]:
    family = client.metrics().families["vllm:lora_adapter_loaded"]
    return {sample.labels["adapter_name"]: sample.labels["level"] for sample in family.samples}


def deferred(client: Client) -> float:
    return client.metrics().value("vllm:num_requests_waiting_by_reason", reason="deferred")


def test_one_runs_the_other_waits_and_an_unloaded_one_is_served_to_its_end(
    adapted: Daemon, sdk: OpenAI
) -> None:
    client = adapted.client
    assert series(client) == [("", "")]
    assert loaded(client) == {"one": "cpu", "two": "gpu"}
    texts: dict[str, int] = {}

    def ask(model: str, tokens: int) -> None:
        stream = sdk.completions.create(
            model=model, prompt="Hello", max_tokens=tokens, extra_body={"ignore_eos": True}, stream=True
        )
        for event in stream:
            assert event.model == model
            texts[model] = texts.get(model, 0) + 1

    threads = [Thread(target=ask, args=("one", 60))]
    threads[0].start()
    eventually(lambda: series(client) == [("one", "")])
    threads.append(Thread(target=ask, args=("two", 10)))
    threads[1].start()
    eventually(lambda: series(client) == [("one", "two")])
    assert (deferred(client), client.metrics().value("vllm:num_requests_running")) == (1, 1)
    sdk.post("/unload_lora_adapter", body={"lora_name": "one"}, cast_to=str)
    assert "one" not in [card.id for card in sdk.models.list()]
    assert series(client) == [("one", "two")], "it has its slot until it is done"
    eventually(lambda: series(client) == [("two", "")])
    assert loaded(client) == {"two": "gpu"}
    eventually(lambda: series(client) == [("", "")])
    for thread in threads:
        thread.join(15)
    assert {model: count >= 10 for model, count in texts.items()} == {"one": True, "two": True}
    metrics = client.metrics()
    assert metrics.finished() == {"length": 2}
    assert metrics.value("vllm:num_requests_waiting_by_reason", reason="deferred") == 0
    # A load takes its time, and then requests do not.
    sdk.post("/load_lora_adapter", body={"lora_name": "one", "lora_path": "/again"}, cast_to=str)
    assert loaded(client) == {"one": "gpu", "two": "cpu"}
    assert sdk.completions.create(model="one", prompt="Hello", max_tokens=1).model == "one"


def test_r61_the_page_is_openmetrics_too(adapted: Daemon) -> None:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families

    reply = adapted.client.get("/metrics", Accept="application/openmetrics-text")
    found = {family.name for family in text_string_to_metric_families(reply.body.decode())}
    assert found >= {
        "vllm:lora_requests_info",
        "vllm:num_gpu_loaded_lora_adapters",
        "vllm:max_gpu_lora_adapters",
    }
