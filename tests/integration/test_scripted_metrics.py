"""Scripted metrics of a real daemon: from a file, moving, and changed while it runs."""

from pathlib import Path

import pytest

from tests.integration.client import eventually
from tests.integration.daemon import Daemon, run

pytestmark = pytest.mark.integration

EXAMPLE = Path(__file__).parents[2] / "etc" / "fake-metrics.yaml"


def test_a_file_moves_and_changes_and_requests_are_served_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "script.yaml"
    path.write_text(EXAMPLE.read_text().replace("ramp:0:40:2m", "ramp:0:40:400ms"))
    # The refresh of a microsecond is what took a whole core, and llm-d-inference-sim down.
    with Daemon("--fake-metrics", str(path), "--fake-metrics-refresh-interval", "1us") as daemon:
        client = daemon.client
        first = client.metrics()
        names = {name for name in first.families if not name.endswith("_created")}
        assert len(names) == 23 + 2
        assert all(name.startswith("vllm:") for name in names)
        assert first.value("vllm:prompt_tokens_total") == 12500
        assert first.value("vllm:kv_cache_usage_perc") in (0.2, 0.9)
        waiting = []

        def at_the_end() -> bool:
            waiting.append(client.metrics().value("vllm:num_requests_waiting"))
            return waiting[-1] == 40

        eventually(at_the_end)
        assert waiting == sorted(waiting)
        still = {"running-requests": 1, "waiting-requests": "squarewave:2:2:1s", "kv-cache-usage": 0.5}
        assert client.post("/admin/config", {"fake-metrics": still}).status == 200
        before = client.get("/metrics").body
        for _ in range(20):
            assert client.chat(max_tokens=3).status == 200
            assert client.post("/fake_metrics", still).status == 204
        assert client.get("/metrics").body == before
        assert client.post("/fake_metrics", {"total-prompt-tokens": -1}).status == 400
        assert client.post("/fake_metrics", {"total-prompt-tokens": 1}).status == 204
        assert client.metrics().value("vllm:prompt_tokens_total") == 1
        assert client.get("/admin/config").json["fake-metrics"]["total-prompt-tokens"] == 1


@pytest.mark.parametrize("value", ["nowhere.yaml", '{"total-prompt-tokens": -1}', "@"])
def test_a_wrong_script_is_one_line(value: str) -> None:
    child = run("--model", "m", "--fake-metrics", value)
    assert child.returncode != 0
    assert child.stdout == ""
    (line,) = child.stderr.splitlines()
    assert line.startswith("llmdsim: --fake-metrics: ")
