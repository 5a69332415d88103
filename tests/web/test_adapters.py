"""Loading and unloading LoRA adapters, and requests that name them, over connections in memory."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from llmdsim.web.adapters import LONGEST_NAME, LONGEST_PATH, MOST_ADAPTERS
from tests.web.clients import CHAT, TEXT, events, reply_of
from tests.web.clients import post as ask_for
from tests.web.rig import PassRig, RankRig
from tests.wire.channel import Reply, get, post, read_replies

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"


def ask(rig: RankRig, raw: bytes) -> Reply:
    client = rig.connect().send(raw)
    for _ in range(100):
        if client.received:
            break
        rig.settle()
    (reply,) = read_replies(client.received, [raw.partition(b" ")[0]], client.fate != "open")
    return reply


def load(rig: RankRig, name: str = "l1", path: str = "/p/l1", **more: Any) -> Reply:
    body = {"lora_name": name, "lora_path": path, **more}
    return ask(rig, post(json.dumps(body).encode(), path=LOAD.encode()))


def unload(rig: RankRig, name: str = "l1", **more: Any) -> Reply:
    return ask(rig, post(json.dumps({"lora_name": name, **more}).encode(), path=UNLOAD.encode()))


def rows(rig: RankRig) -> list[Any]:
    listed: list[Any] = json.loads(ask(rig, get(b"/v1/models")).body)["data"]
    return listed


def error(reply: Reply) -> tuple[int, str, str]:
    told = reply.error["error"]
    assert told["code"] == reply.status
    return reply.status, told["type"], told["message"]


# --- loading and unloading


def test_r59_loading_and_unloading_say_so_in_plain_text() -> None:
    rig = RankRig()
    loaded = load(rig)
    assert (loaded.status, loaded.body) == (200, b"Success: LoRA adapter 'l1' added successfully.")
    assert loaded.headers[b"content-type"].startswith(b"text/plain")
    gone = unload(rig)
    assert (gone.status, gone.body) == (200, b"Success: LoRA adapter 'l1' removed successfully.")
    assert [row["id"] for row in rows(rig)] == ["m"]


def test_r59_loading_twice_is_refused() -> None:
    rig = RankRig()
    load(rig)
    status, kind, message = error(load(rig, path="/p/other"))
    assert (status, kind) == (400, "InvalidUserInput")
    assert "has already been loaded" in message
    assert rows(rig)[1]["root"] == "/p/l1"


@pytest.mark.parametrize("missing", ["lora_name", "lora_path"])
def test_r59_a_field_that_is_missing_is_refused(missing: str) -> None:
    body = {"lora_name": "a", "lora_path": "/a"}
    del body[missing]
    reply = ask(RankRig(), post(json.dumps(body).encode(), path=LOAD.encode()))
    told = reply.error["error"]
    assert (reply.status, told["type"], told["param"]) == (400, "Bad Request", f"body.{missing}")


def test_r59_unloading_what_is_not_loaded_is_404() -> None:
    status, kind, message = error(unload(RankRig(), "nobody"))
    assert (status, kind) == (404, "NotFoundError")
    assert message == "The lora adapter 'nobody' cannot be found."


@pytest.mark.parametrize(("name", "path"), [("", "/p"), ("a", ""), ("", "")])
def test_neither_name_nor_path_may_be_empty(name: str, path: str) -> None:
    rig = RankRig()
    assert error(load(rig, name, path))[:2] == (400, "InvalidUserInput")
    assert len(rows(rig)) == 1


def test_nothing_can_be_unloaded_without_a_name() -> None:
    assert error(unload(RankRig(), ""))[:2] == (400, "InvalidUserInput")


@pytest.mark.parametrize("name", ["first", "second"])
@pytest.mark.parametrize("in_place", [False, True])
def test_no_adapter_takes_a_name_of_the_base_model(name: str, in_place: bool) -> None:
    rig = RankRig("--served-model-name", "first", "second")
    assert error(load(rig, name, load_inplace=in_place))[:2] == (400, "InvalidUserInput")
    assert error(unload(rig, name))[:2] == (404, "NotFoundError")
    assert [(row["id"], row["parent"]) for row in rows(rig)] == [("first", None), ("second", None)]


def test_the_models_own_name_is_free_when_another_is_served() -> None:
    rig = RankRig("--served-model-name", "served")
    assert load(rig, "m").status == 200
    assert [row["id"] for row in rows(rig)] == ["served", "m"]


def test_loading_in_place_replaces_the_path() -> None:
    rig = RankRig()
    load(rig)
    load(rig, "l2")
    first = rig.rank.context.adapters.get("l1")
    assert load(rig, path="/p/new", load_inplace=True).status == 200
    second = rig.rank.context.adapters.get("l1")
    assert first is not None
    assert second is not None
    assert first.id == second.id
    assert [(row["id"], row["root"]) for row in rows(rig)[1:]] == [("l1", "/p/new"), ("l2", "/p/l1")]


def test_loading_is_answered_when_it_is_done() -> None:
    rig = RankRig("--lora-load-time", "2s", "--speed", "2")
    client = rig.post(LOAD, {"lora_name": "l1", "lora_path": "/p/l1"})
    rig.clock.advance(0.99)
    assert not client.received
    assert len(rows(rig)) == 1
    rig.clock.advance(0.01)
    assert reply_of(client).body == b"Success: LoRA adapter 'l1' added successfully."
    assert [row["id"] for row in rows(rig)] == ["m", "l1"]
    # It is in memory: a request has nothing to wait for.
    assert reply_of(ask_for(rig, CHAT, model="l1")).status == 200


def test_what_is_wrong_with_a_load_is_told_at_once_or_when_it_is_done() -> None:
    rig = RankRig("--lora-load-time", "1s")
    assert error(load(rig, "m"))[:2] == (400, "InvalidUserInput")
    first, second = (rig.post(LOAD, {"lora_name": "l1", "lora_path": f"/{number}"}) for number in (1, 2))
    rig.clock.advance(1)
    assert reply_of(first).status == 200
    status, kind, message = error(reply_of(second))
    assert (status, kind) == (400, "InvalidUserInput")
    assert "has already been loaded" in message
    assert rows(rig)[1]["root"] == "/1"


def test_loads_under_way_are_bounded() -> None:
    rig = RankRig("--lora-load-time", "1s")
    for _ in range(MOST_ADAPTERS):
        rig.post(LOAD, {"lora_name": "l1", "lora_path": "/p"}).fin()
    rig.settle()
    status, kind, message = error(load(rig))
    assert (status, kind) == (400, "InvalidUserInput")
    assert "being loaded" in message
    rig.clock.advance(1)
    assert len(rows(rig)) == 2
    assert reply_of(rig.post(LOAD, {"lora_name": "l1", "lora_path": "/p"})).status == 400
    client = rig.post(LOAD, {"lora_name": "l2", "lora_path": "/p"})
    rig.clock.advance(1)
    assert reply_of(client).status == 200


def test_a_client_that_leaves_does_not_stop_the_load() -> None:
    rig = RankRig("--lora-load-time", "1s")
    for name in ("l1", "l1"):
        rig.post(LOAD, {"lora_name": name, "lora_path": "/p"}).fin()
    rig.settle()
    rig.clock.pump([1, 0])
    assert [row["id"] for row in rows(rig)] == ["m", "l1"]


def test_loading_in_place_loads_what_was_not_loaded() -> None:
    assert load(RankRig(), load_inplace=True).status == 200


def test_values_are_read_leniently_and_other_keys_are_ignored() -> None:
    rig = RankRig()
    assert load(rig, load_inplace="yes", is_3d_lora_weight=1, base_model_name="x", more=[1]).status == 200
    assert unload(rig, lora_int_id="7", more={}).status == 200


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b'{"lora_name":1,"lora_path":[]}', b"\xff"])
@pytest.mark.parametrize("path", [LOAD, UNLOAD])
def test_other_bodies_are_refused(path: str, body: bytes) -> None:
    assert error(ask(RankRig(), post(body, path=path.encode())))[:2] == (400, "Bad Request")


@pytest.mark.parametrize("name", ["a/b", "/mnt/lora", "é", "a b", "x" * LONGEST_NAME, "'quoted'", "a\nb"])
def test_names_may_hold_anything(name: str) -> None:
    rig = RankRig()
    assert load(rig, name).body == f"Success: LoRA adapter '{name}' added successfully.".encode()
    card = json.loads(ask(rig, get(f"/v1/models/{quote(name, safe='')}".encode())).body)
    assert (card["id"], card["root"], card["parent"]) == (name, "/p/l1", "m")
    assert unload(rig, name).status == 200
    assert ask(rig, get(f"/v1/models/{quote(name, safe='')}".encode())).status == 404


def test_names_paths_and_their_number_are_bounded() -> None:
    rig = RankRig()
    assert error(load(rig, "x" * (LONGEST_NAME + 1)))[:2] == (400, "InvalidUserInput")
    assert error(load(rig, "x", "/" * (LONGEST_PATH + 1)))[:2] == (400, "InvalidUserInput")
    for number in range(MOST_ADAPTERS):
        rig.rank.context.adapters.load(f"a{number}", "/a", "m")
    assert error(load(rig, "one-more"))[:2] == (400, "InvalidUserInput")
    assert load(rig, "a0", load_inplace=True).status == 200
    unload(rig, "a1")
    assert load(rig, "one-more").status == 200


def test_a_refusal_does_not_repeat_a_long_name() -> None:
    reply = unload(RankRig(), "x" * 100_000)
    assert reply.status == 404
    assert len(reply.body) < 500


def test_without_runtime_lora_there_is_nothing_to_load_with() -> None:
    rig = RankRig("--no-runtime-lora", "--lora-modules", "l1=/p/l1")
    assert load(rig, "l2").status == 404
    assert unload(rig).status == 404
    assert [row["id"] for row in rows(rig)] == ["m", "l1"]


# --- the list of models


def test_r7_an_adapters_row_has_its_path_as_root_and_the_base_model_as_parent() -> None:
    rig = RankRig("--max-model-len", "64", "--lora-modules", '{"name":"l1","path":"/p/l1"}')
    base, adapter = rows(rig)
    assert (base["id"], base["root"], base["parent"], base["max_model_len"]) == ("m", "m", None, 64)
    assert (adapter["id"], adapter["root"], adapter["parent"]) == ("l1", "/p/l1", "m")
    assert list(adapter) == list(base)
    # As vLLM, which does not know an adapter's length.
    assert adapter["max_model_len"] is None
    assert adapter["permission"][0]["object"] == "model_permission"


def test_adapters_from_the_start_name_their_base_model() -> None:
    modules = (
        *(
            '{"name":"a","path":"/a","base_model_name":"two"}',
            '{"name":"b","path":"/b","base_model_name":"m"}',
        ),
        *('{"name":"c","base_model_name":""}', "d=/d"),
    )
    rig = RankRig("--served-model-name", "one", "two", "--lora-modules", *modules)
    assert [(row["id"], row["root"], row["parent"]) for row in rows(rig)[2:]] == [
        ("a", "/a", "two"),
        # Not a name that is served.
        ("b", "/b", "one"),
        ("c", "c", "one"),
        ("d", "/d", "one"),
    ]


def test_a_long_list_is_made_in_turns() -> None:
    rig = PassRig()
    for number in range(MOST_ADAPTERS):
        rig.rank.context.adapters.load(f"a{number}", "/a", "m")
    client = rig.connect().send(get(b"/v1/models"))
    assert not client.received
    # What changes meanwhile is no trouble.
    rig.rank.context.adapters.unload("a7")
    assert rig.finish() > 2
    (reply,) = read_replies(client.received, [b"GET"], client.fate != "open")
    assert len(json.loads(reply.body)["data"]) == 1 + MOST_ADAPTERS


# --- requests to adapters

PACED = ("--time-to-first-token", "1s", "--max-num-seqs", "1", "--lora-modules", "l1=/p/l1")


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("name", ["l1", "org/é"])
def test_replies_to_an_adapters_requests_show_its_name(path: str, name: str) -> None:
    rig = RankRig("--served-model-name", "one", "two")
    load(rig, name)
    whole = json.loads(reply_of(ask_for(rig, path, model=name)).body)
    frames = events(reply_of(ask_for(rig, path, model=name, stream=True)).body)
    assert whole["model"] == name
    assert {frame["model"] for frame in frames[:-1]} == {name}
    # Any other request shows the base model's first name.
    for other in ("two", None, ""):
        assert json.loads(reply_of(ask_for(rig, path, model=other)).body)["model"] == "one"


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_a_name_that_is_no_adapter_any_more_is_404_and_told_the_base_models(path: str) -> None:
    rig = RankRig("--lora-modules", "l1=/p/l1", "l2=/p/l2")
    unload(rig)
    reply = reply_of(ask_for(rig, path, model="l1"))
    assert error(reply)[:2] == (404, "NotFoundError")
    assert error(reply)[2].endswith("This server knows: m.")
    assert reply.error["error"]["param"] == "model"


def test_metrics_count_an_adapters_requests_under_the_base_model() -> None:
    rig = RankRig("--lora-modules", "l1=/p/l1")
    reply_of(ask_for(rig, CHAT, model="l1"))
    page = ask(rig, get(b"/metrics")).body.decode()
    assert 'vllm:generation_tokens_total{engine="0",model_name="m"} 5.0' in page
    assert 'model_name="l1"' not in page


@pytest.mark.parametrize("stream", [False, True])
def test_unloading_leaves_what_runs_and_what_waits_alone(stream: bool) -> None:
    rig = RankRig(*PACED)
    running, waiting = (ask_for(rig, CHAT, model="l1", stream=stream) for _ in range(2))
    stats = rig.rank.stats
    assert (stats.running, stats.waiting) == (1, 1)
    assert unload(rig).status == 200
    assert reply_of(ask_for(rig, CHAT, model="l1")).status == 404
    # It comes again, as another one, while the first still has requests.
    assert load(rig, path="/p/new").status == 200
    rig.clock.pump([1.0] * 3)
    for client in (running, waiting):
        reply = reply_of(client)
        assert (reply.status, reply.complete) == (200, True)
        assert b'"model":"l1"' in reply.body
    assert rig.rank.engine.idle
    assert (stats.running, stats.waiting) == (0, 0)


def test_a_client_of_an_unloaded_adapter_may_leave() -> None:
    rig = RankRig(*PACED)
    running, waiting = (ask_for(rig, CHAT, model="l1") for _ in range(2))
    unload(rig)
    running.fin()
    waiting.fin()
    rig.clock.pump([0, 0, 0])
    assert rig.rank.engine.idle


def test_sequences_carry_the_adapter_they_came_for() -> None:
    rig = RankRig(*PACED)
    taken: list[Any] = []
    submit = rig.rank.driver.submit

    def noting(sequences: Any) -> None:
        taken.extend(sequences)
        submit(sequences)

    rig.rank.driver.submit = noting  # type: ignore[method-assign]
    ask_for(rig, CHAT, model="l1", n=2)
    ask_for(rig, TEXT)
    old = rig.rank.context.adapters.get("l1")
    load(rig, path="/p/new", load_inplace=True)
    ask_for(rig, TEXT, model="l1")
    first, second, base, replaced = (sequence.adapter for sequence in taken)
    assert first is second is old
    assert base is None
    assert (replaced.id, replaced.path) == (old.id, "/p/new") if old else False


def test_access_lines_tell_the_adapter() -> None:
    rig = RankRig("--lora-modules", "l1=/p/l1")
    rig.rank.context.accounted = True
    accounts: list[Any] = []
    rig.site.on_ended.append(lambda request: accounts.append(request.account))
    ask_for(rig, CHAT, model="l1")
    assert [account.model for account in accounts] == ["l1"]


def test_a_request_waits_for_its_adapter_to_be_loaded() -> None:
    rig = RankRig(*("--lora-load-time", "2s", "--max-loras", "1", "--lora-modules", "l1=/1", "l2=/2"))
    assert reply_of(ask_for(rig, CHAT, model="l2")).status == 200, "the last module is in memory"
    evicted, base = ask_for(rig, CHAT, model="l1"), ask_for(rig, CHAT)
    assert reply_of(base).status == 200
    rig.clock.advance(1.9)
    assert not evicted.received
    rig.clock.advance(0.1)
    assert reply_of(evicted).status == 200
    assert reply_of(ask_for(rig, CHAT, model="l1")).status == 200


def test_the_load_time_may_change_at_run_time() -> None:
    rig = RankRig("--lora-load-time", "9s", "--lora-modules", "l1=/1", "l2=/2")
    assert ask(rig, post(b'{"lora-load-time": "250ms"}', path=b"/admin/config")).status == 200
    client = ask_for(rig, CHAT, model="l1")
    rig.clock.advance(0.25)
    assert reply_of(client).status == 200


# --- metrics

INFO = b"vllm:lora_requests_info"
MEMORY = (b"vllm:num_gpu_loaded_lora_adapters", b"vllm:lora_adapter_loaded{")
RUNNING = b'vllm:lora_requests_info{max_lora="1",running_lora_adapters="l1",waiting_lora_adapters=""} '


def page(rig: RankRig) -> bytes:
    return ask(rig, get(b"/metrics")).body


@pytest.mark.parametrize(
    ("flags", "shown"),
    [
        ((), False),
        (("--enable-lora",), True),
        (("--lora-modules", "l1=/1"), True),
        (("--lora-info", "always"), True),
        (("--lora-info", "vllm"), False),
        (("--lora-info", "vllm", "--lora-modules", "l1=/1"), True),
        (("--lora-info", "off", "--lora-modules", "l1=/1"), False),
        (("--lora-modules", "l1=/1", "--disable-log-stats"), False),
    ],
)
def test_r14_lora_metrics_are_there_with_lora(flags: tuple[str, ...], shown: bool) -> None:
    assert (INFO in page(RankRig(*flags))) == shown


def test_r14_the_first_adapter_brings_the_metrics_and_they_stay() -> None:
    rig = RankRig()
    load(rig)
    assert all(name in page(rig) for name in (INFO, *MEMORY))
    unload(rig)
    assert INFO in page(rig)


def test_lora_metrics_follow_requests_and_memory() -> None:
    rig = RankRig(*PACED)
    page_before = page(rig)
    assert b'adapter_name="l1",engine="0",level="gpu",model_name="m",pinned="false"} 1.0' in page_before
    assert RUNNING not in page_before
    client = ask_for(rig, CHAT, model="l1")
    assert RUNNING in page(rig)
    rig.clock.advance(1)
    assert reply_of(client).status == 200
    assert page(rig).count(INFO + b"{") == 1
    assert RUNNING not in page(rig)


def test_as_vllm_there_are_old_series_and_nothing_of_memory() -> None:
    rig = RankRig(*PACED, "--inter-token-latency", "1s", "--lora-info", "vllm")
    page(rig)
    ask_for(rig, CHAT, model="l1", stream=True, max_tokens=5)
    assert page(rig).count(INFO + b"{") == 1
    rig.clock.advance(1)
    shown = page(rig)
    assert shown.count(INFO + b"{") == 2, "from the first token on"
    assert b'running_lora_adapters="l1",waiting_lora_adapters="l1"' in shown
    assert not any(name in shown for name in MEMORY)
