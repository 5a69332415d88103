"""Where it listens: addresses, endpoints, and sockets handed over as systemd does."""

import contextlib
import os
import socket
from pathlib import Path

import pytest

from tests.integration.client import Client, Connection
from tests.integration.daemon import TWISTD, Daemon, free_port
from tests.integration.systemd import handing_over

pytestmark = pytest.mark.integration


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def answers(host: str, port: int) -> bool:
    try:
        return Client(port, host).get("/health").status == 200
    except ConnectionRefusedError:
        return False


def test_by_default_it_is_reached_on_ipv4(daemon: Daemon) -> None:
    assert answers("127.0.0.1", daemon.port)


@needs_ipv6
def test_by_default_it_is_reached_on_ipv6(daemon: Daemon) -> None:
    assert answers("::1", daemon.port)
    assert Client(daemon.port, "::1").chat_stream(max_tokens=2)[-1].data == "[DONE]"


@needs_ipv6
@pytest.mark.parametrize(("host", "other"), [("127.0.0.1", "::1"), ("::1", "127.0.0.1")])
def test_a_host_is_the_only_address(host: str, other: str) -> None:
    with Daemon("--host", host, host=host) as daemon:
        assert answers(host, daemon.port)
        assert not answers(other, daemon.port)
        assert (f"[{host}]" if ":" in host else host) + f":{daemon.port}" in daemon.stderr


@needs_ipv6
def test_endpoints_replace_the_port(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    six = free_port()
    flags = ("--listen", f"unix:{path}", f"tcp6:{six}:interface=\\:\\:1")
    # 8000, the default, may be anybody's; what matters is that nothing but these two is announced.
    with Daemon(*flags, port=six, host="::1") as daemon:
        assert daemon.stderr.count("llmdsim serves") == 2
        assert answers("::1", six)
        with Connection(str(path)) as connection:
            connection.post("/v1/completions", {"prompt": "a", "max_tokens": 3, "stream": True})
            connection.read_head()
            assert list(connection.events())[-1].data == "[DONE]"
            connection.post("/v1/completions", {"prompt": "a", "max_tokens": 3})
            assert connection.read_reply().status == 200
        assert f"--unix-socket {path}" in daemon.stderr


def test_an_end_leaves_no_unix_socket_behind(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    with Daemon("--listen", f"unix:{path}"):
        assert path.exists()
    assert list(tmp_path.iterdir()) == []


def test_endpoints_and_a_port(tmp_path: Path) -> None:
    second = free_port()
    with Daemon("--listen", f"tcp:{second}:interface=127.0.0.1") as daemon:
        assert answers("127.0.0.1", daemon.port)
        assert answers("127.0.0.1", second)
        # One engine behind both.
        daemon.client.chat(max_tokens=1)
        assert Client(second).metrics().value("vllm:generation_tokens_total") == 1


def activated(*sockets: socket.socket) -> Daemon:
    """A daemon that was handed these listening sockets, and has a port in its configuration as well."""
    unused = free_port()
    first = sockets[0]
    host = "::1" if first.family == socket.AF_INET6 else "127.0.0.1"
    return Daemon(
        *("--host", "127.0.0.1", "--port", str(unused)),
        command=handing_over(sockets, TWISTD),
        port=first.getsockname()[1],
        host=host,
        inherit=[one.fileno() for one in sockets],
    )


@needs_ipv6
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_sockets_of_systemd_are_used(family: socket.AddressFamily) -> None:
    host = "::1" if family == socket.AF_INET6 else "127.0.0.1"
    with (
        contextlib.closing(socket.create_server((host, 0), family=family)) as listener,
        activated(listener) as daemon,
    ):
        assert daemon.stderr.count("llmdsim serves") == 1, "and not the configured port"
        assert f":{daemon.port}" in daemon.stderr
        assert answers(host, daemon.port)
        assert daemon.client.chat_stream(max_tokens=3)[-1].data == "[DONE]"
        assert daemon.client.chat(max_tokens=3).status == 200


@needs_ipv6
def test_the_sockets_of_systemds_default_and_a_unix_one(tmp_path: Path) -> None:
    path = str(tmp_path / "s.sock")
    with (
        contextlib.closing(socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True)) as tcp,
        contextlib.closing(socket.socket(socket.AF_UNIX)) as unix,
    ):
        unix.bind(path)
        os.chmod(path, 0o600)
        unix.listen()
        with activated(tcp, unix) as daemon:
            assert answers("127.0.0.1", daemon.port)
            assert answers("::1", daemon.port)
            with Connection(path) as connection:
                connection.request("GET", "/health")
                assert connection.read_reply().status == 200
            assert os.stat(path).st_mode & 0o777 == 0o600
        assert os.path.exists(path), "systemd goes on listening there"


def test_requests_that_came_before_the_start_are_answered() -> None:
    """The point of socket activation: the socket is there before the daemon is."""
    with (
        contextlib.closing(socket.create_server(("127.0.0.1", 0))) as listener,
        Connection(listener.getsockname()) as early,
    ):
        early.post("/v1/completions", {"prompt": "a", "max_tokens": 1})
        with activated(listener):
            assert early.read_reply().status == 200


def test_many_connections_at_once(daemon: Daemon) -> None:
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(daemon.client.connect()) for _ in range(300)]
        for connection in connections:
            connection.request("GET", "/health")
        for connection in connections:
            assert connection.read_reply().status == 200


def test_open_files_are_raised_to_the_hard_limit(daemon: Daemon) -> None:
    limits = Path(f"/proc/{daemon.process.pid}/limits")
    if not limits.exists():
        pytest.skip("no /proc here")
    (line,) = [line for line in limits.read_text().splitlines() if line.startswith("Max open files")]
    soft, hard = line.split()[3:5]
    assert soft == hard


def test_no_descriptor_leaks(daemon: Daemon) -> None:
    folder = f"/proc/{daemon.process.pid}/fd"
    if not os.path.isdir(folder):
        pytest.skip("no /proc here")
    daemon.client.get("/health")
    before = len(os.listdir(folder))
    for _ in range(30):
        daemon.client.chat_stream(max_tokens=2)
        with daemon.client.connect() as connection:
            connection.send(b"nonsense\r\n\r\n")
            connection.read_to_end()
    daemon.client.get("/health")
    assert len(os.listdir(folder)) <= before + 2


def test_a_unix_socket_of_a_daemon_that_was_killed_is_no_hindrance(tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    flags = ("--listen", f"unix:{path}")
    killed = Daemon(*flags)
    try:
        killed.wait_until_ready()
    finally:
        killed.kill()
    assert path.exists()
    with Daemon(*flags), Connection(str(path)) as connection:
        connection.request("GET", "/health")
        assert connection.read_reply().status == 200
