"""Where options come from, over what, and where they are shown."""

import json
from pathlib import Path

import pytest

from tests.integration.daemon import Daemon, Pool

pytestmark = pytest.mark.integration


def config_of(daemon: Daemon) -> dict[str, object]:
    reply = daemon.client.get("/admin/config")
    assert reply.status == 200
    shown: dict[str, object] = reply.json
    return shown


def test_flags_beat_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "llmdsim.yaml"
    file.write_text(
        "model: from-file\nhash-seed: from-file\npod-name: from-file\nmax-num-seqs: 7\nmax-model-len: 512\n"
        "served-model-name: alone\ntime-to-first-token: 5\ninter-token-latency: 2ms\nfailure_types: []\n"
    )
    with Daemon(
        "--config",
        str(file),
        "--pod-name=from-flag",
        "--max_model_len",
        "256",
        environ={"SIM_MODEL": "from-env", "PYTHONHASHSEED": "123", "POD_NAME": "from-env"},
        model=None,
    ) as daemon:
        shown = config_of(daemon)
        assert shown["model"] == "from-env"
        assert shown["hash-seed"] == "123"
        assert shown["pod-name"] == "from-flag"
        assert shown["max-num-seqs"] == 7
        assert shown["max-model-len"] == 256
        assert shown["served-model-name"] == ["alone"]
        assert (shown["time-to-first-token"], shown["inter-token-latency"]) == ("5ms", "2ms")
        assert daemon.client.get("/v1/models").json["data"][0]["id"] == "alone"


def test_r16_a_model_of_the_real_world_needs_nothing_from_the_network() -> None:
    """Neither its files nor a tokenizer beside us; whoever looks for them meets a proxy that is not there."""
    name = "Qwen/Qwen2.5-0.5B-Instruct"
    with Daemon(model=name, environ={"HTTPS_PROXY": "http://127.0.0.1:9"}) as daemon:
        reply = daemon.client.post("/v1/completions", {"model": name, "prompt": "hello", "max_tokens": 2})
        assert (reply.status, reply.json["model"]) == (200, name)
        assert daemon.client.post("/tokenize", {"prompt": "hello world"}).json["count"] == 2


def test_secrets_are_masked_wherever_the_configuration_is_shown() -> None:
    secrets = ["s3cr3t-one", "s3cr3t-two"]
    for flags, environ in (
        (("--api-key", *secrets), {}),
        ((), {"VLLM_API_KEY": secrets[0]}),
    ):
        with Daemon(*flags, environ=environ) as daemon:
            body = daemon.client.ask("GET", "/admin/config", None, {"Authorization": f"Bearer {secrets[0]}"})
            assert body.status == 200
            assert body.json["api-key"], "that there are keys is no secret"
            assert "configuration: " in daemon.stderr
            for text in (body.body.decode(), daemon.stdout, daemon.stderr):
                assert "s3cr3t" not in text


def test_the_configuration_is_logged_once(daemon: Daemon) -> None:
    (line,) = [line for line in daemon.stderr.splitlines() if "configuration: " in line]
    assert json.loads(line.partition("configuration: ")[2]) == config_of(daemon)


def test_flags_of_vllm_are_taken_with_one_warning() -> None:
    flags = (
        *("--gpu-memory-utilization", "0.9", "--tensor-parallel-size", "2", "--enforce-eager"),
        *("--max-num-batched-tokens", "8192", "-O3", "--hf-overrides.architectures", "A"),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes", "--no-enable-prefix-caching"),
        *("--quantization", "fp8", "--dtype", "auto", "--trust-remote-code"),
    )
    with Daemon(*flags) as daemon:
        assert daemon.client.chat(max_tokens=1).status == 200
        (line,) = [line for line in daemon.stderr.splitlines() if "gpu-memory-utilization" in line]
        assert "configuration: " not in line
        for name in ("max-num-batched-tokens", "quantization", "dtype", "trust-remote-code"):
            assert name in line
        assert daemon.stderr.count("trust-remote-code") == 1


def test_a_model_may_be_named_as_vllm_serve_does() -> None:
    with Daemon("org/positional", "--max-num-seqs", "2", model=None) as daemon:
        assert config_of(daemon)["model"] == "org/positional"


def test_list_flags_end_at_a_short_one() -> None:
    with Daemon("--served-model-name", "a", "b", "-v", "5", "--served-model-name=c") as daemon:
        shown = config_of(daemon)
        assert shown["served-model-name"] == ["a", "b", "c"]
        assert shown["v"] == 5


def test_pod_names_are_told_in_the_headers_of_replies() -> None:
    environ = {"POD_NAME": "pod-7", "POD_NAMESPACE": "ns"}
    with Daemon(environ=environ) as daemon:
        expected = {
            "x-inference-pod": "pod-7",
            "x-inference-namespace": "ns",
            "x-inference-port": str(daemon.port),
        }
        client = daemon.client
        for reply in (client.chat(max_tokens=1), client.text(max_tokens=1)):
            assert {name: reply.headers.get(name) for name in expected} == expected
        with client.connect() as connection:
            connection.post("/v1/completions", {"prompt": "a", "stream": True})
            _, headers, _ = connection.read_head()
            assert {name: headers.get(name) for name in expected} == expected


def test_without_pod_names_there_are_no_such_headers(daemon: Daemon) -> None:
    assert not [name for name in daemon.client.chat(max_tokens=1).headers if name.startswith("x-")]


def test_r46_ids_are_the_callers(daemon: Daemon) -> None:
    client = daemon.client
    assert client.post("/v1/completions", {"prompt": "a"}, X_Request_Id="abc-1").json["id"] == "cmpl-abc-1"
    body = {"messages": [{"role": "user", "content": "a"}], "request_id": "mine", "max_tokens": 1}
    assert client.post("/v1/chat/completions", body).json["id"] == "chatcmpl-mine"
    reply = client.post("/v1/chat/completions", body, X_Request_Id="abc-1")
    assert reply.json["id"] == "chatcmpl-abc-1", "the header wins"
    assert "x-request-id" not in reply.headers, "not without the flag"
    events = client.stream("/v1/chat/completions", body)
    assert {event.json["id"] for event in events[:-1]} == {"chatcmpl-mine"}


def test_r47_the_id_comes_back_in_the_header_with_the_flag(daemon_with: Pool) -> None:
    client = daemon_with("--enable-request-id-headers").client
    body = {"prompt": "a", "max_tokens": 1}
    assert client.post("/v1/completions", body, X_Request_Id="abc-1").headers["x-request-id"] == "abc-1"
    fresh = {client.post("/v1/completions", body).headers["x-request-id"] for _ in range(5)}
    assert len(fresh) == 5
    assert all(len(one) == 32 for one in fresh)
    with client.connect() as connection:
        connection.post("/v1/completions", {**body, "stream": True}, X_Request_Id="abc-2")
        assert connection.read_head()[1]["x-request-id"] == "abc-2"


def test_r47_errors_and_other_paths_carry_the_id_too(daemon_with: Pool) -> None:
    """vLLM's middleware stamps every response."""
    client = daemon_with("--enable-request-id-headers").client
    assert client.get("/health", X_Request_Id="abc-1").headers["x-request-id"] == "abc-1"
    for reply in (
        client.post("/v1/completions", {"prompt": ""}, X_Request_Id="abc-1"),
        client.post("/v1/completions", {"prompt": "a", "model": "nobody"}, X_Request_Id="abc-1"),
        client.get("/nowhere", X_Request_Id="abc-1"),
    ):
        assert reply.headers["x-request-id"] == "abc-1", reply.status
