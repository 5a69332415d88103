"""curl over HTTP/1.1 and HTTP/2, in clear and over TLS, against the same port."""

import json
import shutil
import subprocess
import time
from typing import NamedTuple

import pytest

from tests.integration.client import Json
from tests.integration.daemon import Daemon, Pool

pytestmark = pytest.mark.integration

GAP = 0.03
FLAGS = ("--inter-token-latency", "30ms", "--max-num-seqs", "256")
MEGABYTES = 64  # that a body may have by default

TEXT = "/v1/completions"
OFFERS, PRIOR, OLD = "--http2", "--http2-prior-knowledge", "--http1.1"


class Said(NamedTuple):
    """What curl got: the version of HTTP, the status, and the body."""

    version: str
    status: int
    body: bytes

    @property
    def json(self) -> Json:
        return json.loads(self.body)


@pytest.fixture(autouse=True)
def _needs_http2() -> None:
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    told = subprocess.run(["curl", "--version"], capture_output=True, text=True, timeout=10, check=True)
    if "HTTP2" not in told.stdout.partition("Features:")[2].split():
        pytest.skip("this curl is built without HTTP/2")


@pytest.fixture(params=["clear", "TLS"])
def base(request: pytest.FixtureRequest, daemon_with: Pool) -> str:
    """The URL of a daemon, with the scheme that it speaks."""
    if request.param == "clear":
        return daemon_with(*FLAGS).base_url
    return daemon_with(*FLAGS, "--self-signed-certs").base_url.replace("http:", "https:")


def command(*arguments: str) -> list[str]:
    return ["curl", "-sS", "--insecure", "--noproxy", "*", "--max-time", "60", *arguments]


def curl(*arguments: str, data: bytes = b"") -> Said:
    """One request; what `-d @-` and `-T -` send is `data`."""
    told = "\n%{http_version} %{response_code}"
    done = subprocess.run(
        command("-w", told, *arguments), input=data, capture_output=True, timeout=70, check=False
    )
    assert done.returncode == 0, done.stderr
    body, _, last = done.stdout.rpartition(b"\n")
    version, status = last.decode().split()
    return Said(version, int(status), body)


def expected(way: str, base: str) -> str:
    """The version that a way to ask leads to: in clear, an offer to upgrade is not taken."""
    if way == OLD or (way == OFFERS and base.startswith("http:")):
        return "1.1"
    return "2"


@pytest.mark.parametrize("way", [OLD, OFFERS, PRIOR])
def test_every_version_is_served_on_the_same_port(base: str, way: str) -> None:
    models = curl(way, f"{base}/v1/models")
    assert (models.version, models.status) == (expected(way, base), 200)
    assert models.json["data"][0]["id"] == "m"
    body = b'{"prompt": "a b c", "max_tokens": 3, "seed": 1}'
    text = curl(way, f"{base}{TEXT}", "-d", "@-", data=body)
    assert (text.version, text.status) == (expected(way, base), 200)
    assert text.json["usage"]["prompt_tokens"] == 3
    assert text.json["choices"] == curl(OLD, f"{base}{TEXT}", "-d", "@-", data=body).json["choices"]


@pytest.mark.parametrize("way", [OLD, OFFERS, PRIOR])
def test_errors_and_heads_have_the_version_that_was_asked_for(base: str, way: str) -> None:
    version = expected(way, base)
    missing = curl(way, f"{base}/nowhere")
    assert (missing.version, missing.status, missing.json["error"]["code"]) == (version, 404, 404)
    wrong = curl(way, f"{base}{TEXT}", "-d", "{")
    assert (wrong.version, wrong.status, wrong.json["error"]["code"]) == (version, 400, 400)
    head = curl(way, "-I", f"{base}/health")
    assert head.version == version
    assert head.body.startswith(f"HTTP/{version} {head.status}".encode())


@pytest.mark.parametrize("way", [OLD, OFFERS, PRIOR])
def test_streams_come_as_they_are_made(base: str, way: str) -> None:
    body = '{"prompt": "a", "max_tokens": 10, "ignore_eos": true, "stream": true}'
    with subprocess.Popen(
        command(way, "--no-buffer", f"{base}{TEXT}", "-d", body), stdout=subprocess.PIPE
    ) as client:
        assert client.stdout is not None
        came = [(line, time.monotonic()) for line in client.stdout if line != b"\n"]
    assert client.returncode == 0
    assert len(came) == 11
    assert all(line.startswith(b'data: {"id":') for line, _ in came[:-1])
    assert came[-1][0] == b"data: [DONE]\n"
    assert came[9][1] - came[0][1] > 5 * GAP, "all came at once"


@pytest.mark.parametrize(
    ("base", "way"), [("clear", OLD), ("clear", PRIOR), ("TLS", OFFERS)], indirect=["base"]
)
def test_large_bodies_are_taken_up_to_the_limit(base: str, way: str) -> None:
    version = expected(way, base)
    body = json.dumps({"prompt": "word " * (10 << 20)}).encode()  # 50 MB
    taken = curl(way, f"{base}{TEXT}", "-d", "@-", data=body)
    assert (taken.version, taken.status) == (version, 400)
    assert "maximum context length" in taken.json["error"]["message"]
    body += b" " * (20 << 20)
    for announced in (True, False):
        length = () if announced else ("-X", "POST", "-T", "-")
        refused = curl(way, f"{base}{TEXT}", *(length or ("-d", "@-")), data=body)
        assert (refused.version, refused.status) == (version, 413), announced
        assert f"larger than {MEGABYTES << 20} bytes" in refused.json["error"]["message"]
    assert curl(way, f"{base}/health").status == 200


@pytest.mark.parametrize("base", ["TLS"], indirect=True)
def test_many_requests_at_once_share_a_connection(base: str) -> None:
    """100 streamed completions, each with a number of its own in its URL.

    Not in clear: curl 7.88 fails there with any server, before it has sent the second request.
    """
    body = '{"prompt": "a", "max_tokens": 10, "ignore_eos": true, "stream": true}'
    done = subprocess.run(
        command(
            *("--parallel", "--parallel-max", "100", OFFERS, f"{base}{TEXT}?number=[1-100]", "-d", body),
            *("-o", "/dev/null", "-w", "%{http_version} %{response_code} %{num_connects} %{size_download}\n"),
        ),
        capture_output=True,
        text=True,
        timeout=70,
        check=True,
    )
    told = [line.split() for line in done.stdout.splitlines()]
    assert len(told) == 100
    assert {(version, status) for version, status, _, _ in told} == {("2", "200")}
    assert sum(int(connects) for _, _, connects, _ in told) < 10
    assert all(int(size) > 1000 for _, _, _, size in told)


def test_a_client_that_gives_up_is_noticed(daemon_with: Pool) -> None:
    daemon: Daemon = daemon_with(*FLAGS)
    before = daemon.client.metrics().value("vllm:request_success_total", finished_reason="abort")
    body = '{"prompt": "a", "max_tokens": 900, "ignore_eos": true, "stream": true}'
    done = subprocess.run(
        command(PRIOR, "--max-time", "0.5", f"{daemon.base_url}{TEXT}", "-d", body),
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 28, done.stderr  # timed out
    deadline = time.monotonic() + 2
    while daemon.client.metrics().value("vllm:num_requests_running"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    after = daemon.client.metrics().value("vllm:request_success_total", finished_reason="abort")
    assert after - before == 1
