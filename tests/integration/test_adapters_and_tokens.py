"""LoRA adapters, tokens and rendered requests of a real daemon, by the OpenAI SDK and treq."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from threading import Thread
from typing import Any

import openai
import pytest
import pytest_twisted
from openai import OpenAI

from tests.integration.client import eventually
from tests.integration.daemon import Daemon, Pool
from tests.integration.sdk import sdk_for

pytestmark = pytest.mark.integration

FLAGS = (
    *(
        "--served-model-name",
        "base",
        "alias",
        "--lora-modules",
        "start=/adapters/start",
        "--max-model-len",
        "64",
    ),
    *("--time-to-first-token", "300ms", "--max-num-seqs", "1"),
)
HELLO = [{"role": "user", "content": "Hello there"}]


@pytest.fixture(scope="module")
def adapted(daemon_with: Pool) -> Daemon:
    return daemon_with(*FLAGS)


@pytest.fixture(scope="module")
def sdk(adapted: Daemon) -> Iterator[OpenAI]:
    with sdk_for(adapted) as client:
        yield client


def load(sdk: OpenAI, name: str, **more: Any) -> str:
    body = {"lora_name": name, "lora_path": f"/adapters/{name}", **more}
    return sdk.post("/load_lora_adapter", body=body, cast_to=str)


def unload(sdk: OpenAI, name: str) -> str:
    return sdk.post("/unload_lora_adapter", body={"lora_name": name}, cast_to=str)


def test_the_sdk_lists_and_finds_adapters(sdk: OpenAI) -> None:
    load(sdk, "org/listed")
    try:
        cards = {card.id: card.model_dump() for card in sdk.models.list()}
        assert [*cards][:3] == ["base", "alias", "start"]
        assert cards["org/listed"]["root"] == "/adapters/org/listed"
        assert cards["org/listed"]["parent"] == "base"
        assert cards["org/listed"]["max_model_len"] is None
        assert cards["base"]["max_model_len"] == 64
        assert sdk.models.retrieve("org/listed").id == "org/listed"
    finally:
        unload(sdk, "org/listed")
    with pytest.raises(openai.NotFoundError):
        sdk.models.retrieve("org/listed")


def test_r59_the_sdk_is_told_what_is_wrong(sdk: OpenAI) -> None:
    assert load(sdk, "twice") == "Success: LoRA adapter 'twice' added successfully."
    with pytest.raises(openai.BadRequestError, match="already been loaded"):
        load(sdk, "twice")
    assert load(sdk, "twice", load_inplace=True) == "Success: LoRA adapter 'twice' added successfully."
    assert unload(sdk, "twice") == "Success: LoRA adapter 'twice' removed successfully."
    with pytest.raises(openai.NotFoundError, match="cannot be found"):
        unload(sdk, "twice")
    for name in ("base", "alias", ""):
        with pytest.raises(openai.BadRequestError):
            load(sdk, name)


def test_an_adapter_is_unloaded_under_running_and_waiting_requests(adapted: Daemon, sdk: OpenAI) -> None:
    load(sdk, "busy")
    models: list[str] = []

    def chat() -> None:
        reply = sdk.chat.completions.create(model="busy", messages=HELLO, max_tokens=3)  # type: ignore[arg-type]
        models.append(reply.model)

    threads = [Thread(target=chat) for _ in range(2)]
    for thread in threads:
        thread.start()
    eventually(lambda: adapted.client.get("/load").json["server_load"] == 2)
    unload(sdk, "busy")
    with pytest.raises(openai.NotFoundError, match="base, alias"):
        sdk.chat.completions.create(model="busy", messages=HELLO)  # type: ignore[arg-type]
    for thread in threads:
        thread.join(15)
    assert models == ["busy", "busy"]


@pytest_twisted.inlineCallbacks
def test_treq_tokenizes_renders_and_comes_back(adapted: Daemon) -> Generator[Any, Any, None]:
    import treq
    from twisted.internet import reactor
    from twisted.web.client import Agent, HTTPConnectionPool

    pool = HTTPConnectionPool(reactor)
    agent = Agent(reactor, connectTimeout=10, pool=pool)

    def ask(path: str, body: dict[str, Any]) -> Any:
        return treq.post(f"{adapted.base_url}{path}", json=body, agent=agent, timeout=10)

    try:
        reply = yield ask("/tokenize", {"model": "start", "messages": HELLO, "return_token_strs": True})
        tokens = yield reply.json()
        assert (reply.code, list(tokens)) == (200, ["count", "max_model_len", "tokens", "token_strs"])
        reply = yield ask("/detokenize", {"tokens": tokens["tokens"]})
        text = yield reply.json()
        assert text == {"prompt": "".join(tokens["token_strs"])}
        reply = yield ask("/v1/chat/completions/render", {"messages": HELLO, "model": "start"})
        rendered = yield reply.json()
        assert rendered["token_ids"] == tokens["tokens"]
        assert rendered["sampling_params"]["max_tokens"] == 64 - tokens["count"]
        reply = yield ask("/v1/completions/render", {"prompt": ["a", "b c"]})
        several = yield reply.json()
        assert [len(one["token_ids"]) for one in several] == [1, 2]
    finally:
        yield pool.closeCachedConnections()
