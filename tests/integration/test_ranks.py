"""Data-parallel ranks of the real daemon, in one process and in one each, and how these end."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmdsim.config import parse, rank_config
from tests.integration.client import Client, Connection, Event, eventually
from tests.integration.daemon import TWISTD, Daemon, clean_environment, free_ports, run
from tests.integration.systemd import handing_over
from tests.web.clients import reply_of
from tests.web.rig import RankRig

pytestmark = pytest.mark.integration

STREAM = {"prompt": "a", "max_tokens": 30, "ignore_eos": True, "stream": True}
#: A stream takes about a second and a half.
PACE = ("--inter-token-latency", "50ms", "--max-num-seqs", "200", "--data-parallel-mode", "process")
KEY = {"authorization": "Bearer only-here"}


def children_of(pid: int) -> list[int]:
    """The processes that a process has started and that are there still."""
    found = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [int(child) for child in tasks.read_text().split()]
    return found


def gone(pid: int) -> bool:
    """Whether a process is no more, or is only to be buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def stream_from(client: Client) -> Connection:
    connection = client.connect()
    connection.post("/v1/completions", STREAM)
    connection.read_head()
    return connection


@pytest.fixture(scope="module", params=["process", "inline"])
def server(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """Two ranks, in either mode."""
    flags = ("--data-parallel-mode", request.param, "--seed", "5", "--pod-name", "p", "--access-log")
    with Daemon(*flags, "--log-format", "json", environ={"VLLM_API_KEY": "only-here"}, ranks=2) as daemon:
        daemon.mode = request.param  # type: ignore[attr-defined]
        yield daemon


def test_each_rank_has_a_seed_of_its_own(server: Daemon) -> None:
    """Nothing may have been asked of them before. That rank 0 is as if it were alone, unit tests know."""
    fields = {"prompt": "a", "max_tokens": 30, "ignore_eos": True}
    config = parse(["--model", "m", "--seed", "5", "--data-parallel-size", "2"], {})
    for rank, client in enumerate(server.clients):
        rig = RankRig(config=rank_config(config, rank))
        for _ in range(3):
            expected = json.loads(reply_of(rig.post("/v1/completions", fields)).body)
            assert client.post("/v1/completions", fields, **KEY).text == expected["choices"][0]["text"]


def test_each_mode_has_the_processes_it_says(server: Daemon) -> None:
    children = children_of(server.process.pid)
    assert len(children) == (server.mode == "process")  # type: ignore[attr-defined]
    for child in children:
        # Nothing that everybody may see says more than the command line did.
        shown = Path(f"/proc/{child}/cmdline").read_bytes()
        assert b"only-here" not in shown
        assert shown.endswith(b"llmdsim.services.rank_process\x001\x00")


def test_r5_each_rank_has_a_port_and_an_identity_of_its_own(server: Daemon) -> None:
    """The HTTP part of it."""
    told = []
    for rank, client in enumerate(server.clients):
        before = client.metrics().value("vllm:generation_tokens_total", engine=str(rank))
        reply = client.post("/v1/completions", {"prompt": "a", "max_tokens": 3, "ignore_eos": True}, **KEY)
        assert reply.headers["x-inference-port"] == str(server.port + rank)
        metrics = client.metrics()
        assert metrics.value("vllm:generation_tokens_total", engine=str(rank)) == before + 3
        engines = {dict(labels).get("engine") for _, labels in metrics.samples}
        assert engines - {None} == {str(rank)}, "a page shows its own rank"
        told.append((reply.json["id"], client.get("/query").json))
    (first_id, first), (second_id, second) = told
    assert first_id != second_id
    assert first == second
    assert list(first) == ["0", "1"]
    assert first["0"]["engine_id"].removesuffix("0") == first["1"]["engine_id"].removesuffix("1")
    assert first["0"]["engine_id"].endswith("_dp0")


def test_all_of_them_were_announced_together(server: Daemon) -> None:
    for rank in range(2):
        assert f"localhost:{server.port + rank} - try" in server.stderr
        assert server.clients[rank].get("/health/ready").status == 200


@pytest.mark.parametrize("asked", [0, 1])
def test_an_operation_reaches_all_ranks_or_the_one_asked(server: Daemon, asked: int) -> None:
    client, other = server.clients[asked], server.clients[1 - asked]

    def ttft(of: Client) -> str:
        told: str = of.get("/admin/config", **KEY).json["time-to-first-token"]
        return told

    reply = client.post("/admin/config?all_ranks=1", {"time-to-first-token": "70ms"}, **KEY)
    assert (reply.status, reply.json["port"]) == (200, server.port + asked)
    assert (ttft(client), ttft(other)) == ("70ms", "70ms")
    client.post("/admin/config", {"time-to-first-token": "0ms"}, **KEY)
    assert (ttft(client), ttft(other)) == ("0s", "70ms")
    reply = client.post("/admin/config?all_ranks=1", {"time-to-first-token": "x"}, **KEY)
    assert (reply.status, ttft(client), ttft(other)) == (400, "0s", "70ms")
    assert client.post("/admin/config?all_ranks=maybe", {}, **KEY).status == 400
    assert client.post("/pause?all_ranks=1", {}).status == 401
    assert client.post("/pause?all_ranks=1&mode=keep", {}, **KEY).status == 200
    assert other.get("/is_paused", **KEY).json == {"is_paused": True}
    assert other.post("/resume?all_ranks=true", {}, **KEY).status == 200
    assert client.get("/is_paused", **KEY).json == {"is_paused": False}


def test_an_operation_that_one_rank_refuses_is_told(server: Daemon) -> None:
    first, second = server.clients
    adapter = {"lora_name": "l1", "lora_path": "/l1"}
    assert second.post("/v1/load_lora_adapter", adapter, **KEY).status == 200
    reply = first.post("/v1/load_lora_adapter?all_ranks=1", adapter, **KEY)
    assert reply.status == 502
    assert "rank 1 answered 400" in reply.error["message"]
    assert "done on rank 0" in reply.error["message"]
    assert first.post("/v1/unload_lora_adapter?all_ranks=1", adapter, **KEY).status == 200
    assert "l1" not in str(second.get("/v1/models", **KEY).json)


def test_access_lines_tell_the_rank(server: Daemon) -> None:
    for rank, client in enumerate(server.clients):
        client.get(f"/v1/models/of-rank-{rank}", **KEY)
    for rank in range(2):
        lines = lambda rank=rank: re.findall(rf'.*"path":"/v1/models/of-rank-{rank}".*', server.stderr)  # noqa: E731
        eventually(lambda lines=lines: len(lines()) == 1)  # type: ignore[misc]
        assert f'"rank":{rank},' in lines()[0]


@pytest.mark.parametrize("mode", ["process", "inline"])
def test_a_taken_port_of_any_rank_fails_the_start_at_once(mode: str) -> None:
    first = free_ports(2)
    with socket.create_server(("127.0.0.1", first + 1)):
        began = time.monotonic()
        flags = ("--model", "m", "--host", "127.0.0.1", "--port", str(first))
        ended = run(*flags, "-dp", "2", "--data-parallel-mode", mode)
    assert ended.returncode == 1
    assert f"llmdsim: cannot listen on 127.0.0.1 port {first + 1}: Address already in use" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert time.monotonic() - began < 5


def test_nobody_is_refused_while_a_rank_boots() -> None:
    first = free_ports(2)
    process = subprocess.Popen(
        [*TWISTD, "--model", "m", "--port", str(first), "-dp", "2", "--data-parallel-mode", "process"],
        env=clean_environment(),
        cwd=tempfile.gettempdir(),
        stderr=subprocess.DEVNULL,
    )
    try:
        clients = [Client(first), Client(first + 1)]

        def accepts() -> bool:
            with contextlib.suppress(ConnectionError), clients[0].connect():
                return True
            return False

        eventually(accepts, 20)
        # From here on both ports are open: whoever asks is answered, if only when the rank is there.
        assert clients[0].get("/health/ready").status == 503
        assert clients[1].get("/health").status == 200
        eventually(lambda: clients[0].get("/health/ready").status == 200)
    finally:
        process.terminate()
        assert process.wait(20) == 0


def test_a_signal_to_all_in_the_middle_of_streams_lets_each_finish() -> None:
    """Under load, on both ranks, by the signal that a terminal or a supervisor sends to the whole group."""
    with Daemon(*PACE, ranks=2) as daemon:
        (child,) = children_of(daemon.process.pid)
        streams: list[list[Event]] = []
        late: list[int] = []

        def consume(client: Client) -> None:
            with stream_from(client) as connection:
                streams.append(list(connection.events()))

        readers = [
            threading.Thread(target=consume, args=(client,)) for client in daemon.clients for _ in range(20)
        ]
        for reader in readers:
            reader.start()
        for rank, client in enumerate(daemon.clients):
            running = lambda c=client, r=rank: c.metrics().value("vllm:num_requests_running", engine=str(r))  # noqa: E731
            eventually(lambda running=running: running() == 20)  # type: ignore[misc]
        began = time.monotonic()
        os.killpg(daemon.process.pid, signal.SIGTERM)
        for client in daemon.clients:
            eventually(lambda client=client: client.get("/health/ready").status == 503)  # type: ignore[misc]
            late.append(client.text().status)
        for reader in readers:
            reader.join(20)
        assert late == [503, 503]
        assert len(streams) == 40
        assert {(len(events), events[-1].data) for events in streams} == {(31, "[DONE]")}
        assert daemon.wait() == 0
        assert time.monotonic() - began < 5
        assert gone(child)
        assert "(rank 1) drain: end of input: draining 20 running" in daemon.stderr
        assert "(rank 1) drain: drained" in daemon.stderr


def test_a_second_signal_ends_all_at_once() -> None:
    with Daemon(*PACE, ranks=2) as daemon, stream_from(daemon.clients[1]) as running:
        (child,) = children_of(daemon.process.pid)
        daemon.signal(signal.SIGTERM)
        eventually(lambda: daemon.client.get("/health/ready").status == 503)
        began = time.monotonic()
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0
        assert time.monotonic() - began < 0.8
        assert gone(child)
        with pytest.raises((EOFError, ConnectionError)):
            list(running.events())


def test_a_hangup_has_every_rank_read_the_file_again(tmp_path: Path) -> None:
    file = tmp_path / "llmdsim.yaml"
    file.write_text("time-to-first-token: 10ms\n")
    with Daemon("--config", str(file), "--data-parallel-mode", "process", "--seed", "1", ranks=2) as daemon:
        file.write_text("time-to-first-token: 20ms\n")
        os.killpg(daemon.process.pid, signal.SIGHUP)
        for rank, client in enumerate(daemon.clients):
            config = lambda c=client: c.get("/admin/config").json  # noqa: E731
            eventually(lambda config=config: config()["time-to-first-token"] == "20ms")  # type: ignore[misc]
            assert config()["port"] == daemon.port + rank
        assert "need a restart" not in daemon.stderr


def test_an_engine_that_dies_on_any_rank_ends_the_server() -> None:
    with (
        Daemon(*PACE, "--vllm-server-dev-mode", ranks=2) as daemon,
        stream_from(daemon.clients[0]) as running,
    ):
        (child,) = children_of(daemon.process.pid)
        assert daemon.clients[1].post("/admin/crash", {}).status == 200
        assert daemon.clients[1].text().status == 500
        assert daemon.wait() == 1
        assert gone(child)
        assert "ERROR crew: rank 1" in daemon.stderr
        assert list(running.events())[-1].data == "[DONE]", "its client is told"
        daemon.kill()


def test_a_rank_that_dies_takes_the_server_down() -> None:
    with Daemon(*PACE, ranks=3) as daemon:
        children = children_of(daemon.process.pid)
        assert len(children) == 2
        os.kill(children[0], signal.SIGKILL)
        assert daemon.wait() == 1
        rank = 1 if f"rank 1 (process {children[0]})" in daemon.stderr else 2
        told = f"ERROR crew: rank {rank} (process {children[0]}) ended by itself, killed by SIGKILL"
        assert told in daemon.stderr
        assert all(map(gone, children))
        daemon.kill()


def test_ranks_finish_and_leave_when_the_main_process_is_killed() -> None:
    with Daemon(*PACE, ranks=2) as daemon, stream_from(daemon.clients[1]) as running:
        (child,) = children_of(daemon.process.pid)
        running.read_until(b"data: ")
        daemon.signal(signal.SIGKILL)
        daemon.wait()
        assert b"[DONE]" in running.read_to_end()
        eventually(lambda: gone(child))
        assert "(rank 1) drain: drained" in daemon.stderr, "its lines go to stderr now"
        daemon.kill()


def test_in_the_background_all_write_to_one_log(tmp_path: Path) -> None:
    first, log, pid = free_ports(2), tmp_path / "log", tmp_path / "pid"
    flags = ("--model", "m", "--port", str(first), "-dp", "2", "--data-parallel-mode", "process")
    ended = run(
        *flags, "--log-file", str(log), "--access-log", command=(*TWISTD[:1], f"--pidfile={pid}", "llmdsim")
    )
    assert ended.returncode == 0, ended.stderr
    clients = [Client(first), Client(first + 1)]
    eventually(lambda: log.exists() and "ready at" in log.read_text(), 20)
    main = int(pid.read_text())
    (child,) = children_of(main)
    try:
        clients[1].get("/v1/models")
        eventually(lambda: "(rank 1) access: 127.0.0.1" in log.read_text())
        os.kill(main, signal.SIGUSR1)
        os.kill(child, signal.SIGUSR1)
        eventually((tmp_path / "log.1").exists)
        clients[1].get("/v1/models/after")
        eventually(lambda: "(rank 1) access" in log.read_text() and "/after" in log.read_text())
    finally:
        os.kill(main, signal.SIGTERM)
    eventually(lambda: gone(main) and gone(child))
    assert not pid.exists()
    assert "ERROR" not in log.read_text()


def test_endpoints_go_to_the_ranks_in_order(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b")]
    endpoints = [flag for path in paths for flag in ("--listen", f"unix:{path}:mode=600")]
    flags = ("--data-parallel-size", "2", "--data-parallel-mode", "process", "--admin-listen", "tcp:0")
    assert run("--model", "m", *endpoints, *flags).returncode == 1, "one for two"
    with Daemon(*endpoints, *flags[:4], port=1) as daemon:
        for rank, path in enumerate(paths):
            assert path.stat().st_mode & 0o777 == 0o600
            with Connection(str(path)) as connection:
                connection.request("GET", "/metrics")
                assert f'engine="{rank}"'.encode() in connection.read_reply().body
        daemon.end()
    assert list(tmp_path.iterdir()) == []


def test_ranks_that_outlive_the_main_process_leave_the_next_server_its_sockets(tmp_path: Path) -> None:
    endpoints = ("--listen", f"unix:{tmp_path / 'a'}", f"unix:{tmp_path / 'b'}", "--data-parallel-size", "2")
    with Daemon(*PACE, *endpoints, port=1) as first, Connection(str(tmp_path / "b")) as running:
        (child,) = children_of(first.process.pid)
        running.post("/v1/completions", STREAM)
        running.read_head()
        first.signal(signal.SIGKILL)
        first.wait()
        with Daemon(*PACE, *endpoints, port=1):
            assert list(running.events())[-1].data == "[DONE]"
            eventually(lambda: gone(child))
            with Connection(str(tmp_path / "b")) as connection:
                connection.request("GET", "/health")
                assert connection.read_reply().status == 200
        first.kill()
    assert list(tmp_path.iterdir()) == []


def test_sockets_of_systemd_go_to_the_ranks_in_order() -> None:
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        command, inherit = handing_over((one, two), TWISTD), [one.fileno(), two.fileno()]
        with Daemon("--data-parallel-mode", "process", command=command, inherit=inherit, ranks=2):
            for rank, each in enumerate((one, two)):
                client = Client(each.getsockname()[1])
                assert client.metrics().value("vllm:num_requests_running", engine=str(rank)) == 0
