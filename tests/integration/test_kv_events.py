"""What consumers of KV events get from a real daemon, by pyzmq."""

from __future__ import annotations

import json
import re
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.client import Client, eventually
from tests.integration.daemon import Daemon, free_port, free_ports, run
from tests.integration.subscriber import Batch, Replayer, Subscriber, joined

pytestmark = pytest.mark.integration

POD = {"POD_IP": "10.0.0.1"}
CACHE = ("--enable-kvcache", "--block-size", "8", "--kv-cache-size", "10000", "--event-batch-size", "1")

_prompts = iter(range(1, 1_000_000))


def fresh(tokens: int = 16) -> list[int]:
    """A prompt that nobody has sent before."""
    return [next(_prompts), *range(7, 6 + tokens)]


def complete(client: Client, prompt: list[int] | None = None, **fields: Any) -> list[int]:
    """Have `prompt` prefilled, and one token generated."""
    prompt = prompt or fresh()
    assert client.text(prompt, **{"max_tokens": 1, "ignore_eos": True, **fields}).status == 200
    return prompt


def join(subscriber: Subscriber, client: Client, model: str = "m") -> Batch:
    """The last batch before from now on all come."""

    def provoke() -> Callable[[Batch], bool]:
        prompt = complete(client, model=model)
        return lambda batch: any(prompt in _members(event) for event in batch.events)

    return joined(subscriber, provoke)[-1]


def _members(event: Any) -> list[Any]:
    return list(event.values()) if isinstance(event, dict) else event


class Addresses:
    """Ports of a daemon to be, for publishing and replay, and how to reach them."""

    def __init__(self, ranks: int = 1) -> None:
        self.publish, self.replay = free_ports(2 * ranks), 0
        self.replay = self.publish + ranks
        self.flags = (
            *("--zmq-endpoint", f"tcp://*:{self.publish}"),
            *("--kv-events-replay-endpoint", f"tcp://*:{self.replay}"),
        )

    def subscriber(self, rank: int = 0) -> Subscriber:
        return Subscriber(f"tcp://127.0.0.1:{self.publish + rank}")

    def replayer(self, rank: int = 0) -> Replayer:
        return Replayer(f"tcp://127.0.0.1:{self.replay + rank}")


@pytest.fixture(scope="module")
def addresses() -> Addresses:
    return Addresses()


@pytest.fixture(scope="module")
def publishing(addresses: Addresses) -> Iterator[Daemon]:
    """A daemon with an alias and an adapter, whose events have vLLM's form."""
    flags = ("--served-model-name", "alias", "other", "--lora-modules", "one=/one", "--seed", "3")
    with Daemon(*CACHE, *addresses.flags, *flags, "--vllm-server-dev-mode", environ=POD) as daemon:
        daemon.model = "alias"
        yield daemon


@pytest.fixture
def client(publishing: Daemon) -> Client:
    return publishing.client


@pytest.fixture
def subscriber(publishing: Daemon, addresses: Addresses) -> Iterator[Subscriber]:
    """One that has joined."""
    with addresses.subscriber() as subscriber:
        join(subscriber, publishing.client, "alias")
        yield subscriber


def test_r4_r64_a_prompt_is_told_once_in_vllms_form(
    subscriber: Subscriber, client: Client, publishing: Daemon
) -> None:
    prompt = complete(client, fresh(20), model="other")
    batch = subscriber.next()
    assert batch.topic == f"kv@10.0.0.1:{publishing.port}@alias".encode()
    moment, (event,), rank = batch.document
    assert abs(moment - time.time()) < 60
    assert rank == 0
    hashes = event.pop("block_hashes")
    assert len(hashes) == 2
    assert event == {
        "type": "BlockStored",
        "parent_block_hash": None,
        "token_ids": prompt[:16],
        "block_size": 8,
        "lora_id": None,
        "medium": "GPU",
        "lora_name": None,
        "extra_keys": [None, None],
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }
    complete(client, prompt, model="alias")
    assert subscriber.rest() == []


def test_r6_what_follows_names_its_parent(subscriber: Subscriber, client: Client) -> None:
    prompt = complete(client, model="alias")
    first = subscriber.next()
    complete(client, [*prompt, *range(50, 62)], model="alias")
    second = subscriber.next()
    assert second.number == first.number + 1
    assert second.events[0]["parent_block_hash"] == first.events[0]["block_hashes"][-1]
    assert second.events[0]["token_ids"] == list(range(50, 58))


def test_r68_an_adapters_blocks_tell_its_name(subscriber: Subscriber, client: Client) -> None:
    prompt = complete(client, model="alias")
    base = subscriber.next().events[0]
    complete(client, prompt, model="one")
    event = subscriber.next().events[0]
    assert (event["lora_name"], event["lora_id"]) == ("one", 1)
    assert event["token_ids"] == prompt
    assert event["block_hashes"] != base["block_hashes"]


def test_r66_who_was_away_gets_everything_and_who_missed_some_the_rest(
    subscriber: Subscriber, client: Client, addresses: Addresses
) -> None:
    for _ in range(3):
        complete(client, model="alias")
    live = subscriber.take(3)
    last = live[-1].number
    with addresses.replayer() as replayer:
        whole = replayer.replay(0)
        assert [batch.number for batch in whole] == list(range(last + 1))
        assert whole[-3:] == live
        assert replayer.replay(last - 1) == live[-2:]
        assert replayer.replay(last + 1) == []


def test_clearing_is_told(subscriber: Subscriber, client: Client) -> None:
    assert client.post("/reset_prefix_cache", {}).status == 200
    assert subscriber.next().events == [{"type": "AllBlocksCleared"}]


def test_faults_of_the_publisher_by_admin_config(
    subscriber: Subscriber, client: Client, addresses: Addresses
) -> None:
    def meet(*faults: str) -> None:
        changes = {"kv-event-fault-rate": 100, "kv-event-faults": list(faults)}
        assert client.post("/admin/config", changes).status == 200

    complete(client, model="alias")
    before = subscriber.next().number
    meet("drop; times=1")
    for _ in range(2):
        complete(client, model="alias")
    assert subscriber.next().number == before + 2
    meet("duplicate; times=1")
    complete(client, model="alias")
    assert [batch.number for batch in subscriber.take(2)] == [before + 3] * 2
    meet("gap; skip=10; times=1")
    complete(client, model="alias")
    assert subscriber.next().number == before + 14
    with addresses.replayer() as replayer:
        expected = [before + 1, before + 2, before + 3, before + 14]
        assert [batch.number for batch in replayer.replay(before + 1)] == expected
        meet("restart; times=1")
        complete(client, model="alias")
        assert subscriber.next().number == 0
        assert [batch.number for batch in replayer.replay(0)] == [0]
    meet()
    metrics = client.metrics()
    assert metrics.value("llmdsim:kv_event_faults_injected_total", kind="restart") == 1
    assert metrics.value("llmdsim:kv_event_subscriber_overflows_total") == 0
    assert metrics.value("llmdsim:kv_events_total") >= 10


def test_r67_events_come_with_the_pass_and_not_a_second_after_the_reply(
    subscriber: Subscriber, client: Client
) -> None:
    for _ in range(5):
        complete(client, model="alias")
        answered = time.monotonic()
        subscriber.next()
        assert time.monotonic() - answered < 0.5


def test_kv_event_sources_has_vllms_words(client: Client, publishing: Daemon, addresses: Addresses) -> None:
    assert client.get("/kv_event_sources").json == {
        "0": {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{addresses.publish}",
            "replay_endpoint": f"tcp://*:{addresses.replay}",
            "buffer_steps": 1024,
            "hwm": 100_000,
            "max_queue_size": 100_000,
            "topic": f"kv@10.0.0.1:{publishing.port}@alias",
        }
    }


def test_the_older_form_with_bytes_to_a_subscriber_that_comes_later() -> None:
    """And all of llm-d-inference-sim's ways: it connects, and is there first."""
    address = f"tcp://127.0.0.1:{free_port()}"
    form = ("--use-vllm-map-event-format=false", "--kv-event-hashes", "bytes")
    with Daemon(*CACHE, *form, "--zmq-endpoint", address, environ=POD) as daemon:
        complete(daemon.client)
        with Subscriber(address, bind=True) as subscriber:
            join(subscriber, daemon.client)
            prompt = complete(daemon.client)
            (event,) = subscriber.next().events
            assert event[0] == "BlockStored"
            assert [len(each) for each in event[1]] == [32, 32]
            assert event[2:] == [None, prompt, 8, None, "GPU", None, None]
        assert "connected to" in daemon.stderr


@pytest.mark.parametrize("mode", ["inline", "process"])
def test_r5_each_rank_publishes_for_itself(mode: str) -> None:
    addresses = Addresses(ranks=2)
    flags = (*CACHE, *addresses.flags, "--data-parallel-mode", mode)
    with Daemon(*flags, environ=POD, ranks=2) as daemon:
        for rank, client in enumerate(daemon.clients):
            with addresses.subscriber(rank) as subscriber, addresses.replayer(rank) as replayer:
                join(subscriber, client)
                complete(client)
                batch = subscriber.next()
                assert batch.topic == f"kv@10.0.0.1:{daemon.port + rank}@m".encode()
                assert batch.document[2] == rank
                assert [each.number for each in replayer.replay(0)] == list(range(batch.number + 1))
            assert list(client.get("/kv_event_sources").json) == [str(rank)]
            assert client.metrics().value("llmdsim:kv_events_total", engine=str(rank)) == batch.number + 1


def test_after_a_restart_of_the_daemon_numbers_begin_with_0() -> None:
    addresses, port = Addresses(), free_port()
    flags = (*CACHE, *addresses.flags, "--port", str(port))
    with addresses.subscriber() as subscriber:
        with Daemon(*flags, environ=POD, port=port) as daemon:
            before = join(subscriber, daemon.client)
        with Daemon(*flags, environ=POD, port=port) as daemon, addresses.replayer() as replayer:
            assert replayer.replay(0) == []
            prompt = complete(daemon.client)
            (first,) = replayer.replay(0)
            assert first.number == 0
            assert first.topic == before.topic
            assert first.events[0]["token_ids"] == prompt
            after = join(subscriber, daemon.client)
            assert after.number >= 1


def test_vllms_flags_alone_publish_and_the_end_leaves_nothing_behind(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/events"
    document = {"enable_kv_cache_events": True, "endpoint": address, "topic": "kv@pod@m"}
    flags = ("--kv-events-config", json.dumps(document), "--block-size", "8")
    with Daemon(*flags) as daemon, Subscriber(address) as subscriber:
        join(subscriber, daemon.client)
        prompt = complete(daemon.client)
        batch = subscriber.next()
        assert batch.topic == b"kv@pod@m"
        assert batch.events[0]["token_ids"] == prompt
        assert "POD_IP" not in daemon.stderr
    waits = ("--event-flush-interval", "60s", "--event-batch-size", "100")
    with Daemon(*flags, *waits) as daemon, Subscriber(address) as subscriber:
        time.sleep(0.5)
        prompts = [complete(daemon.client) for _ in range(3)]
        assert subscriber.rest() == []
        daemon.end()
        (batch,) = subscriber.rest()
        assert [event["token_ids"] for event in batch.events] == prompts


@pytest.mark.parametrize("rank", [0, 1])
def test_a_taken_port_ends_the_start_with_one_line(rank: int) -> None:
    addresses = Addresses(ranks=2)
    port = addresses.replay + rank
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", port))
        taken.listen()
        ended = run(
            *(*CACHE, *addresses.flags, "--model", "m", "--port", str(free_ports(2))),
            *("--data-parallel-size", "2", "--data-parallel-mode", "process" if rank else "inline"),
            environ=POD,
        )
    assert ended.returncode == 1
    line = f"llmdsim: KV events: tcp://*:{port}: Address already in use"
    assert line in ended.stderr.splitlines()
    assert "Traceback" not in ended.stderr


def test_the_documents_example_runs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "kv-events.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert example.count("5557") == 1
    port = free_port()
    with Daemon(*CACHE, "--zmq-endpoint", f"tcp://*:{port}", environ=POD) as daemon:
        reader = subprocess.Popen(
            [sys.executable, "-c", example.replace("5557", str(port))],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert reader.stdout is not None

            def told() -> bool:
                complete(daemon.client)
                return bool(select.select([reader.stdout], [], [], 0.1)[0])

            eventually(told, 10)
            assert re.fullmatch(
                rf"kv@10\.0\.0\.1:{daemon.port}@m \d+ 0 BlockStored\n", reader.stdout.readline()
            )
        finally:
            reader.kill()
            reader.communicate()


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
def test_connecting_to_nobody_delays_nothing_and_is_told(host: str) -> None:
    with Daemon(*CACHE, "--zmq-endpoint", f"tcp://{host}:{free_port()}", environ=POD) as daemon:
        complete(daemon.client)
        eventually(lambda: "nobody listens at" in daemon.stderr)
        # For nobody nothing is made.
        assert daemon.client.metrics().value("llmdsim:kv_event_batches_total") == 0


def test_whoever_was_away_without_replay_sees_it_by_the_numbers() -> None:
    port = free_port()
    address = f"tcp://127.0.0.1:{port}"
    with Daemon(*CACHE, "--zmq-endpoint", f"tcp://*:{port}", environ=POD) as daemon:
        before = complete(daemon.client)
        with Subscriber(address) as subscriber:
            last = join(subscriber, daemon.client)
            # What was there before is told when something is built on it.
            complete(daemon.client, [*before, *range(9000, 9009)])
            batch = subscriber.next()
            assert batch.number == last.number + 1
            assert batch.events[0]["token_ids"][: len(before)] == before
        counted = daemon.client.metrics().value("llmdsim:kv_event_batches_total")
        for _ in range(3):
            complete(daemon.client)
        with Subscriber(address) as subscriber:
            again = join(subscriber, daemon.client)
            assert again.number > batch.number + 1
        # Nothing was made for nobody.
        assert daemon.client.metrics().value("llmdsim:kv_event_batches_total") <= counted + 6
