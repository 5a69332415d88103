"""Inputs that once cost the daemon seconds, gigabytes or its good manners."""

import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.client import Client
from tests.integration.daemon import Daemon, run

pytestmark = pytest.mark.integration

CHAT = "/v1/chat/completions"


def user(content: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": content}]


def test_many_pipelined_scrapes_hold_nobody_up(daemon: Daemon) -> None:
    with daemon.client.connect() as flood:
        flood.send(b"GET /metrics HTTP/1.1\r\nHost: sim\r\n\r\n" * 1500)
        started = time.monotonic()
        assert daemon.client.get("/health").status == 200
        assert time.monotonic() - started < 5


@pytest.mark.parametrize("host", [b"a..b", b".", b"x" * 70, b"xn--\xc3\xa9", b"\xff\xfe"])
def test_odd_hosts_find_paths_with_variables_all_the_same(daemon: Daemon, host: bytes) -> None:
    with daemon.client.connect() as connection:
        connection.send(b"GET /v1/models/nobody HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
        assert connection.read_until(b"\r\n").startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize("field", ["prompt_logprobs", "logprobs", "thinking_token_budget", "top_logprobs"])
@pytest.mark.parametrize("depth", [150, 900, 1200])
def test_deep_values_are_refused(daemon: Daemon, field: str, depth: int) -> None:
    body = f'{{"messages": [{{"role": "user", "content": "x"}}], "{field}": {"[" * depth}{"]" * depth}}}'
    with daemon.client.connect() as connection:
        connection.request("POST", CHAT, body.encode())
        assert connection.read_reply().status == 400


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": user("hi"), "request_id": "a" * 2000},
        {"messages": [{"role": "r" * 2000, "content": "x"}], "add_generation_prompt": False},
        {"messages": user("a" * 5_000_000)},
        {"messages": user("a" * 5_000_000), "return_token_ids": True, "max_tokens": 1},
    ],
    ids=["request id", "role", "long word", "ids of a long word"],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_would_be_repeated_without_bound_is_refused(
    daemon: Daemon, fields: dict[str, object], stream: bool
) -> None:
    started = time.monotonic()
    reply = daemon.client.post(CHAT, {**fields, "stream": stream})
    assert (reply.status, time.monotonic() - started < 5) == (400, True)


def test_a_port_that_is_none_is_one_line() -> None:
    done = run("--model", "m", "--listen", "stdio:")
    assert done.returncode != 0
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stderr.count("\n") == 1


def test_names_survive_a_locale_without_unicode() -> None:
    environ = {"SIM_MODEL": "mé😀", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    with Daemon(environ=environ, model=None) as daemon:
        daemon.wait_until_ready()
        assert json.loads(daemon.client.get("/v1/models").body)["data"][0]["id"] == "mé😀"


@pytest.mark.parametrize("name", ["/mnt/models/x", "a/b c", 'it\'s "1" 100%', "mé😀"])
def test_any_name_can_be_looked_up(name: str) -> None:
    from urllib.parse import quote

    with Daemon(model=name) as daemon:
        daemon.wait_until_ready()
        for path in {quote(name, safe=""), quote(name)}:
            reply = Client(daemon.port).get(f"/v1/models/{path}")
            assert (reply.status, reply.json["id"]) == (200, name)


def _json(schema: object, **more: object) -> dict[str, object]:
    wanted = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    return {"messages": user("hi"), "response_format": wanted, **more}


def _tool(name: str) -> dict[str, object]:
    return {"type": "function", "function": {"name": name}}


_FAILING = {f"p{number}": {"type": "string", "not": {"type": "string"}} for number in range(200)}
_TOOLS = [_tool(f"f{number}") for number in range(40_000)]
_MANY_ITEMS = {"type": "array", "minItems": 500}

#: What once took seconds of the reactor, by the status it gets.
HARD: dict[str, tuple[int, dict[str, object]]] = {
    "failing": (200, _json({"properties": _FAILING, "required": list(_FAILING)}, n=128)),
    "arrays": (200, _json({**_MANY_ITEMS, "items": {**_MANY_ITEMS, "items": _MANY_ITEMS}}, n=128)),
    "expression": (
        200,
        {
            "messages": user("hi"),
            "n": 128,
            "structured_outputs": {"regex": "(?=.*a.*b.*c)(?!.*f)[a-z]{100,200}"},
        },
    ),
    "choices": (
        400,
        {"messages": user("hi"), "n": 128, "structured_outputs": {"choice": ["x" * 10_000_000]}},
    ),
    "name": (400, {"messages": user("hi"), "tools": [_tool("x" * 30_000_000)], "tool_choice": "required"}),
    "allowed": (
        200,
        {
            "messages": user("hi"),
            "tools": _TOOLS,
            "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": _TOOLS}},
        },
    ),
}


@pytest.fixture(scope="module")
def roomy() -> Iterator[Daemon]:
    with Daemon("--max-num-seqs", "256") as daemon:
        daemon.wait_until_ready()
        yield daemon


def _longest_wait(client: Client, until: threading.Event) -> float:
    longest = 0.0
    while not until.wait(0.002):
        started = time.monotonic()
        assert client.get("/health").status == 200
        longest = max(longest, time.monotonic() - started)
    return longest


@pytest.mark.parametrize("kind", HARD)
def test_what_is_hard_to_answer_holds_nobody_up(roomy: Daemon, kind: str) -> None:
    status, body = HARD[kind]
    done = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        waited = pool.submit(_longest_wait, roomy.client, done)
        try:
            assert roomy.client.post(CHAT, body).status == status
        finally:
            done.set()
        # Some ten milliseconds of work, a large body, and a machine that does other things.
        assert waited.result() < 1.5
