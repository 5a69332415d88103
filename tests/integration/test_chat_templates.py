"""Chat templates and a render service, with real daemons."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
from openai import BadRequestError
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from tests.integration.client import chat_of, eventually
from tests.integration.daemon import Daemon, Pool, run
from tests.integration.sdk import sdk_for
from tests.tokenization.qwen3 import qwen3

__all__ = ["qwen3"]

pytestmark = pytest.mark.integration

TEMPLATE = """\
{%- if tools %}<tools>{{ tools | tojson }}</tools>{% endif %}
{%- for m in messages %}
    {%- if m.role == 'nobody' %}{{ raise_exception('Who is ' + m.role) }}{% endif %}
    {{- '<' + m.role + '>' + m.content }}
    {%- for call in m.tool_calls or [] %}
        {{- call.function.name }}:{{ call.function.arguments.city }}
    {%- endfor %}
{%- endfor %}
{%- if add_generation_prompt %}<assistant>{% endif %}
"""
TOOL: ChatCompletionToolParam = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}
MESSAGES: list[ChatCompletionMessageParam] = [
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Rain?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "c", "content": "dry"},
]


@pytest.fixture(scope="module")
def templated(daemon_with: Pool, tmp_path_factory: pytest.TempPathFactory) -> Daemon:
    file = tmp_path_factory.mktemp("template") / "chat.jinja"
    file.write_text(TEMPLATE, encoding="utf-8")
    return daemon_with(
        "--chat-template", str(file), "--max-model-len", "100000", "--trust-request-chat-template"
    )


def test_openais_client_with_tools(templated: Daemon) -> None:
    client = sdk_for(templated)
    answer = client.chat.completions.create(
        model="m", messages=MESSAGES, tools=[TOOL], tool_choice="none", max_tokens=1
    )
    told = json.dumps([{**TOOL, "function": {"name": "weather", "description": None, **TOOL["function"]}}])
    text = f"<tools>{told}</tools><system>Be kind.<user>Rain?<assistant>weather:Oslo<tool>dry<assistant>"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == templated.client.post("/tokenize", {"prompt": text}).json["count"]
    with pytest.raises(BadRequestError, match="Who is nobody"):
        client.chat.completions.create(model="m", messages=[{"role": "nobody", "content": "a"}])  # type: ignore[list-item]


def test_a_long_conversation_and_a_hostile_template_hold_up_nobody(templated: Daemon) -> None:
    long = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "a " * 40}] * 1000}
    endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    hostile = {"model": "m", "messages": [{"role": "user", "content": "a"}], "chat_template": endless}
    with ThreadPoolExecutor(3) as pool:
        at_work = [
            pool.submit(templated.client.post, "/v1/chat/completions", body) for body in (long, hostile)
        ]
        longest = 0.0
        while not at_work[1].done():
            began = time.monotonic()
            assert templated.client.get("/health").status == 200
            longest = max(longest, time.monotonic() - began)
        assert at_work[0].result().status == 200
        assert at_work[1].result().error["message"] == "The chat template takes more than 5 seconds."
    assert longest < 2


def test_a_models_own_template(qwen3: Path) -> None:
    text = "<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
    with Daemon("--tokenizer", str(qwen3)) as daemon:
        asked = {**chat_of("Hi!"), "chat_template_kwargs": {"enable_thinking": False}}
        found = daemon.client.post("/tokenize", asked).json
        assert found["tokens"] == daemon.client.post("/tokenize", {"prompt": text}).json["tokens"]
        # What marks a turn is one token.
        assert found["tokens"][0] == found["tokens"][7] == 151644
        reply = daemon.client.post("/v1/chat/completions", {**asked, "max_tokens": 1})
        assert reply.json["usage"]["prompt_tokens"] == found["count"]


def test_ranks_in_processes_have_it_too() -> None:
    flags = ("--chat-template", "{{ 'a ' * 7 }}", "--data-parallel-mode", "process")
    with Daemon(*flags, ranks=2) as daemon:
        for client in daemon.clients:
            assert client.chat("x", max_tokens=1).json["usage"]["prompt_tokens"] == 7


@pytest.mark.parametrize(
    ("template", "line"),
    [
        ("/nowhere.jinja", "--chat-template: cannot read '/nowhere.jinja': No such file or directory"),
        ("{% if %}", "--chat-template: Expected an expression, got 'end of statement block'"),
    ],
)
def test_a_wrong_template_ends_the_start(template: str, line: str) -> None:
    ended = run("--model", "m", "--chat-template", template)
    assert ended.returncode == 1
    assert ended.stderr == f"llmdsim: {line}\n"


class Service(BaseHTTPRequestHandler):
    """A render service that does what the prompt tells it to."""

    protocol_version = "HTTP/1.1"
    connections: ClassVar[set[Any]] = set()
    #: What clients that left were waiting for.
    lost: ClassVar[list[str]] = []

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        self.connections.add(self.client_address)
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        assert self.path in ("/v1/chat/completions/render", "/v1/completions/render"), self.path
        assert asked["model"] == "m"
        text = asked["prompt"] if "prompt" in asked else asked["messages"][-1]["content"]
        answer: Any = {"request_id": "x", "token_ids": [11, 12, 13, 14], "features": None}
        match text:
            case "error":
                self._answer(500, b'{"error":"broken"}')
            case "junk":
                self._answer(200, b"<html>")
            case "no ids":
                self._answer(200, b'{"request_id":"x"}')
            case "none":
                self._answer(200, b"[]")
            case "close":
                self.close_connection = True
            case "cut":
                self.send_response(200)
                self.send_header("content-length", "100")
                self.end_headers()
                self.wfile.write(b'{"token_ids"')
                self.close_connection = True
            case "slow":
                self.connection.settimeout(10)
                with suppress(ConnectionResetError):
                    assert self.connection.recv(1, socket.MSG_PEEK) == b""
                self.lost.append(text)
                self.close_connection = True
            case _:
                self._answer(200, json.dumps([answer] if "prompt" in asked else answer).encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(scope="module")
def asking(service: str) -> Iterator[Daemon]:
    with Daemon("--render-url", service, "--render-timeout", "10s", "--mode", "echo") as daemon:
        yield daemon


def test_a_service_finds_the_tokens(asking: Daemon) -> None:
    reply = asking.client.chat("good one")
    assert (reply.text, reply.json["usage"]["prompt_tokens"]) == ("good one", 4)
    reply = asking.client.text("good one", max_tokens=9, echo=True)
    assert (reply.text, reply.json["usage"]["prompt_tokens"]) == ("good onegood one", 4)
    assert asking.client.post("/tokenize", {"prompt": "a"}).json["tokens"] == [11, 12, 13, 14]
    before = len(Service.connections)
    for _ in range(10):
        assert asking.client.chat("good").status == 200
    assert len(Service.connections) - before <= 1


@pytest.mark.parametrize(
    ("prompt", "status", "words"),
    [
        ("error", 502, 'answers 500: {"error":"broken"}.'),
        ("junk", 502, "gives an answer that cannot be read"),
        ("no ids", 502, "gives an answer that cannot be read"),
        ("none", 502, "gives an answer without a prompt"),
        ("close", 502, "ended the connection before it had answered"),
        ("cut", 502, "ended the connection before it had answered"),
    ],
)
def test_a_service_that_is_of_no_help(asking: Daemon, prompt: str, status: int, words: str) -> None:
    for reply in asking.client.chat(prompt), asking.client.text(prompt):
        assert reply.status == status
        assert words in reply.error["message"]
    assert asking.client.chat("good").status == 200


def test_a_service_is_not_waited_for_longer_than_is_said(service: str) -> None:
    with Daemon("--render-url", service, "--render-timeout", "300ms", "--mode", "echo") as daemon:
        for reply in daemon.client.chat("slow"), daemon.client.text("slow"):
            assert reply.status == 504
            assert "has not answered within 0.3 seconds" in reply.error["message"]


def test_a_client_that_leaves_ends_the_call(asking: Daemon) -> None:
    before = len(Service.lost)
    with asking.client.connect() as connection:
        connection.post("/v1/chat/completions", chat_of("slow"))
        time.sleep(0.2)
        began = time.monotonic()
    eventually(lambda: len(Service.lost) > before)
    assert time.monotonic() - began < 5
    assert asking.client.get("/load").json["server_load"] == 0


def test_a_service_that_is_not_there() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        with Daemon("--render-url", f"http://127.0.0.1:{closed.getsockname()[1]}/") as daemon:
            reply = daemon.client.chat("a")
            assert (reply.status, "Connection was refused" in reply.error["message"]) == (502, True)
            assert daemon.client.chat("a").status == 502
            assert daemon.stderr.count("told once") == 1
