"""Keys, pages of other origins, a root path and a port for administration, by the clients that meet them."""

import json
from collections.abc import Iterator
from pathlib import Path

import anthropic
import openai
import pytest

from tests.integration.client import Client, Connection, chat_of
from tests.integration.daemon import Daemon, free_port, run

pytestmark = pytest.mark.integration

PAGE = "http://page.example"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Client, str]]:
    """A daemon with everything on, a client of its port for administration, the path of its other one."""
    path = str(tmp_path_factory.mktemp("admin") / "admin.sock")
    port = free_port()
    flags = (
        *("--root-path", "/llm", "--allowed-origins", json.dumps([PAGE]), "--allow-credentials"),
        *("--admin-listen", f"tcp:{port}:interface=127.0.0.1", "--admin-listen", f"unix:{path}:mode=600"),
    )
    # Of the environment, as in a pod; it must be in no log.
    with Daemon(*flags, "--log-http", "--access-log", environ={"VLLM_API_KEY": "sk-hush"}) as daemon:
        yield daemon, Client(port), path
        assert f"administration at http://127.0.0.1:{port}" in daemon.stderr
        assert f"administration at unix:{path}" in daemon.stderr
        assert "sk-hush" not in daemon.stderr
        assert "sk-hush" not in daemon.stdout
    assert not Path(path).exists()


def openai_sdk(daemon: Daemon, key: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{daemon.base_url}/llm/v1", api_key=key, max_retries=0, timeout=15)


def test_the_openai_sdk_and_its_exception(guarded: tuple[Daemon, Client, str]) -> None:
    daemon, _, _ = guarded
    hello = [{"role": "user", "content": "Hello"}]
    with openai_sdk(daemon, "sk-hush") as sdk:
        assert [model.id for model in sdk.models.list()] == ["m"]
        whole = sdk.chat.completions.create(model="m", messages=hello, max_tokens=5)
        assert whole.choices[0].message.content
        chunks = list(sdk.completions.create(model="m", prompt="a", max_tokens=5, stream=True))
        assert chunks[-1].choices[0].finish_reason
    with openai_sdk(daemon, "sk-wrong") as sdk:
        for stream in (False, True):
            with pytest.raises(openai.AuthenticationError) as refused:
                sdk.chat.completions.create(model="m", messages=hello, stream=stream)
            assert refused.value.type == "AuthenticationError"
            assert "not valid" in refused.value.message
        with pytest.raises(openai.AuthenticationError):
            sdk.models.list()


def test_the_anthropic_sdk_and_its_exception(guarded: tuple[Daemon, Client, str]) -> None:
    daemon, _, _ = guarded
    for credentials in ({"api_key": "sk-wrong"}, {"auth_token": "sk-wrong"}):
        with (
            anthropic.Anthropic(
                base_url=f"{daemon.base_url}/llm", max_retries=0, timeout=15, **credentials
            ) as sdk,
            pytest.raises(anthropic.AuthenticationError) as refused,
        ):
            sdk.messages.create(model="m", max_tokens=5, messages=[{"role": "user", "content": "Hello"}])
        assert refused.value.body == {
            "type": "error",
            "error": {"type": "authentication_error", "message": "The API key is not valid."},
        }
    # Its header is taken on every route.
    assert daemon.client.get("/v1/models", x_api_key="sk-hush").status == 200


def test_a_page_in_a_browser(guarded: tuple[Daemon, Client, str]) -> None:
    """What fetch() sends: a preflight, then the request, over the same connection."""
    daemon, _, _ = guarded
    asked = {
        "Origin": PAGE,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    with daemon.client.connect() as connection:
        connection.request("OPTIONS", "/llm/v1/chat/completions", None, asked)
        preflight = connection.read_reply()
        assert (preflight.status, preflight.body) == (200, b"OK")
        assert preflight.headers["access-control-allow-origin"] == PAGE
        assert preflight.headers["access-control-allow-headers"] == "authorization,content-type"
        body = json.dumps(chat_of("Hello", stream=True, max_tokens=3)).encode()
        headers = {"Origin": PAGE, "Content-Type": "application/json", "Authorization": "Bearer sk-hush"}
        connection.request("POST", "/llm/v1/chat/completions", body, headers)
        status, sent, _ = connection.read_head()
        assert (status, sent["access-control-allow-origin"]) == (200, PAGE)
        assert (sent["vary"], sent["access-control-allow-credentials"]) == ("Origin", "true")
        assert [event.data for event in connection.events()][-1] == "[DONE]"
    stranger = daemon.client.ask("OPTIONS", "/v1/models", None, {**asked, "Origin": "http://x"})
    assert (stranger.status, stranger.body) == (400, b"Disallowed CORS origin")
    unread = daemon.client.ask("GET", "/v1/models", None, {"Origin": PAGE})
    assert (unread.status, unread.headers["access-control-allow-origin"]) == (401, PAGE)


def test_administration_by_tcp_and_by_a_unix_socket(guarded: tuple[Daemon, Client, str]) -> None:
    daemon, admin, path = guarded
    assert daemon.client.get("/admin/config", x_api_key="sk-hush").status == 404
    assert admin.get("/admin/config").status == 401
    config = admin.get("/admin/config", x_api_key="sk-hush").json
    assert (config["root-path"], config["api-key"]) == ("/llm", ["********"])
    assert admin.get("/v1/models", x_api_key="sk-hush").status == 404
    assert Path(path).stat().st_mode & 0o777 == 0o600
    with Connection(path) as connection:
        connection.request("GET", "/ready")
        assert connection.read_reply().status == 200
        connection.request("GET", "/admin/config", None, {"x-api-key": "sk-hush"})
        assert connection.read_reply().json == config
    daemon.client.post("/v1/completions", {"prompt": "a", "max_tokens": 1}, x_api_key="sk-hush")
    assert admin.metrics().value("vllm:generation_tokens_total") >= 1


def test_documentation(guarded: tuple[Daemon, Client, str]) -> None:
    daemon, admin, _ = guarded
    # Both while it is being made and after.
    public = [daemon.client.get("/llm/openapi.json").json for _ in range(2)]
    assert public[0] == public[1]
    assert public[0]["servers"] == [{"url": "/llm"}]
    assert "/v1/chat/completions" in public[0]["paths"]
    assert "/admin/config" in admin.get("/openapi.json").json["paths"]
    assert daemon.client.get("/llm/docs").headers["content-type"] == "text/html; charset=utf-8"


def test_a_client_that_leaves_before_the_description_is_made_is_nothing() -> None:
    with Daemon() as daemon:
        connections = [daemon.client.connect() for _ in range(3)]
        for connection in connections:
            connection.request("GET", "/openapi.json")
        connections[0].close()
        connections[1].reset()
        assert connections[2].read_reply().status == 200


def test_a_key_in_a_file_of_options(tmp_path: Path) -> None:
    file = tmp_path / "llmdsim.yaml"
    file.write_text("api-key: [sk-hush, sk-other]\nallowed-origins: ['*']\n")
    with Daemon("--config", str(file)) as daemon:
        for key in ("sk-hush", "sk-other"):
            reply = daemon.client.get("/v1/models", authorization=f"Bearer {key}", origin="null")
            assert (reply.status, reply.headers["access-control-allow-origin"]) == (200, "*")
        assert daemon.client.get("/v1/models").status == 401
        assert "sk-hush" not in daemon.stderr


def test_an_endpoint_that_is_none_is_one_line() -> None:
    ended = run("--model", "m", "--port", str(free_port()), "--admin-listen", "nowhere")
    assert ended.returncode == 1
    assert "llmdsim: --admin-listen nowhere: not an endpoint" in ended.stderr
    assert "Traceback" not in ended.stderr
