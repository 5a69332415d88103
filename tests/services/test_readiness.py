"""The end of start-up: when the rank is ready, and the lines that tell a person what to try."""

from __future__ import annotations

import gc
import io
import json
import shlex
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import capturedLogs

from llmdsim.config import parse
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.services import readiness
from llmdsim.services.rank import Rank
from llmdsim.services.readiness import YOUNG, Readiness
from llmdsim.tokenization.builtin import BuiltinTokenizer
from llmdsim.wire.grpc import Code
from tests.rpc.client import RpcClient
from tests.web.access.rig import ask
from tests.web.rig import RankRig


class Listeners:
    def __init__(self) -> None:
        self.addresses: list[Any] = []
        self.admin_addresses: list[Any] = []
        self.encrypted: set[Any] = set()


class Reactor:
    def __init__(self) -> None:
        self.hooks: list[Callable[[], None]] = []

    def callWhenRunning(self, hook: Callable[[], None]) -> None:
        self.hooks.append(hook)


@pytest.fixture(autouse=True)
def collections(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Notes each collection, which among all that these tests have left would take half a second."""
    noted: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: noted.append(f"{gc.get_freeze_count()} frozen"))
    threshold = gc.get_threshold()
    yield noted
    gc.unfreeze()
    gc.set_threshold(*threshold)


class ReadinessRig:
    """A rank that becomes ready on `addresses` when `run` is called."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *addresses: Any,
        flags: tuple[str, ...] = (),
        others: Deferred[None] | None = None,
    ) -> None:
        self.stderr = io.StringIO()
        monkeypatch.setattr(sys, "__stderr__", self.stderr)
        self.web = RankRig(*flags)
        self.rank, self.clock = self.web.rank, self.web.clock
        self.listeners = Listeners()
        self.addresses = self.listeners.addresses
        self.addresses += addresses
        self.reactor = Reactor()
        self.readiness = Readiness(
            self.rank.config, [self.rank], [self.listeners], self.clock, self.reactor, others=others
        )

    def start(self) -> list[dict[str, Any]]:
        with capturedLogs() as logged:
            self.readiness.startService()
        return logged

    def run(self) -> list[str]:
        self.start()
        for hook in self.reactor.hooks:
            hook()
        return self.stderr.getvalue().splitlines()


def tcp(host: str, port: int = 8000) -> IPv4Address | IPv6Address:
    return IPv6Address("TCP", host, port) if ":" in host else IPv4Address("TCP", host, port)


def test_ports_for_administration_are_told_to_the_log_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = ReadinessRig(monkeypatch, tcp("::"))
    rig.listeners.admin_addresses += [tcp("127.0.0.1", 9), UNIXAddress(b"/a")]
    with capturedLogs() as logged:
        (line,) = rig.run()
    assert ":9" not in line
    told = [event["log_format"].format(**event) for event in logged]
    assert "administration at http://127.0.0.1:9" in told
    assert "administration at unix:/a" in told


def test_it_is_ready_when_the_reactor_runs_and_not_before(
    monkeypatch: pytest.MonkeyPatch, collections: list[str]
) -> None:
    rig = ReadinessRig(monkeypatch, tcp("::"))
    rig.start()
    assert (rig.rank.context.ready, rig.stderr.getvalue()) == (False, "")
    for hook in rig.reactor.hooks:
        hook()
    assert rig.rank.context.ready
    assert collections == ["0 frozen"]
    assert gc.get_freeze_count() > 0
    assert gc.get_threshold()[0] == YOUNG


@pytest.mark.parametrize(("speed", "told"), [("1", False), ("2.5", True)])
def test_a_speed_that_is_not_real_is_told(monkeypatch: pytest.MonkeyPatch, speed: str, told: bool) -> None:
    logged = ReadinessRig(monkeypatch, tcp("::"), flags=("--speed", speed)).start()
    lines = [event["log_format"].format(**event) for event in logged]
    assert ("all latencies run 2.5 times faster than configured" in lines) is told


def test_it_is_not_before_the_ranks_of_other_processes_are(monkeypatch: pytest.MonkeyPatch) -> None:
    others: Deferred[None] = Deferred()
    rig = ReadinessRig(monkeypatch, tcp("::"), others=others)
    assert rig.run() == []
    assert (rig.rank.context.ready, rig.rank.context.port) == (False, 8000)
    others.callback(None)
    assert rig.rank.context.ready
    assert "llmdsim serves" in rig.stderr.getvalue()


def test_every_rank_is_told_of_and_tells_its_own_port(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = ReadinessRig(monkeypatch)
    second, third = RankRig().rank, Listeners()
    places = [Listeners(), Listeners(), third]
    for port, place in enumerate(places, start=9000):
        place.addresses.append(tcp("::", port))
    third.admin_addresses.append(tcp("::", 7))
    ranks = [rig.rank, second]
    rig.readiness = Readiness(rig.rank.config, ranks, places, rig.clock, rig.reactor)
    with capturedLogs() as logged:
        lines = rig.run()
    assert [line.partition(" - ")[0][-4:] for line in lines] == ["9000", "9001", "9002"]
    assert [rank.context.port for rank in ranks] == [9000, 9001]
    assert "administration at http://localhost:7" in [e["log_format"].format(**e) for e in logged]


@pytest.mark.parametrize(
    ("host", "where"),
    [
        ("::", "http://localhost:8000"),
        ("0.0.0.0", "http://localhost:8000"),
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("192.0.2.7", "http://192.0.2.7:8000"),
        ("::1", "http://[::1]:8000"),
        ("2001:db8::7", "http://[2001:db8::7]:8000"),
    ],
)
def test_the_line_tells_the_address_and_a_curl_to_try(
    monkeypatch: pytest.MonkeyPatch, host: str, where: str
) -> None:
    (line,) = ReadinessRig(monkeypatch, tcp(host)).run()
    told, _, curl = line.partition(" - try: ")
    assert told == f'llmdsim serves "m" at {where}'
    assert shlex.split(curl)[:3] == ["curl", f"{where}/v1/chat/completions", "-d"]
    assert json.loads(shlex.split(curl)[3]) == {
        "model": "m",
        "messages": [{"role": "user", "content": "Hello!"}],
    }


@pytest.mark.parametrize("path", ["/run/llmdsim.sock", "/tmp/a b/it's $HOME;x.sock", "/tmp/é.sock"])
def test_a_unix_socket_is_told_with_the_option_curl_needs(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    (line,) = ReadinessRig(monkeypatch, UNIXAddress(path.encode())).run()
    told, _, curl = line.partition(" - try: ")
    assert told.endswith(f"at unix:{path}")
    words = shlex.split(curl)
    assert words[:5] == ["curl", "--unix-socket", path, "http://localhost/v1/chat/completions", "-d"]
    assert json.loads(words[5])["model"] == "m"


@pytest.mark.parametrize("flags", [(), ("--api-key", "sk-1", "sk-2")])
def test_the_curl_leaves_room_for_a_key_where_it_takes_one(
    monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    (line,) = ReadinessRig(monkeypatch, tcp("::"), flags=flags).run()
    words = shlex.split(line.partition(" - try: ")[2])
    assert words[4:] == (["-H", "Authorization: Bearer KEY"] if flags else [])


@pytest.mark.parametrize(
    ("flags", "more"),
    [((), []), (("--ssl-ca-certs", "c", "--ssl-cert-reqs", "2"), ["--cert", "CERT", "--key", "KEY"])],
)
def test_where_tls_is_spoken_the_line_says_so(
    monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...], more: list[str]
) -> None:
    """The certificate is seldom of a name and a CA that curl knows."""
    rig = ReadinessRig(
        monkeypatch, tcp("::"), tcp("::1", 9), UNIXAddress(b"/s"), flags=("--self-signed-certs", *flags)
    )
    rig.listeners.encrypted.add(tcp("::"))
    rig.listeners.admin_addresses += [tcp("::", 10), tcp("::1", 11)]
    rig.listeners.encrypted.add(tcp("::", 10))
    with capturedLogs() as logged:
        secure, plain, unix = (line.partition(" - try: ")[::2] for line in rig.run())
    assert secure[0] == 'llmdsim serves "m" at https://localhost:8000'
    words = shlex.split(secure[1])
    assert words[:4] == ["curl", "--insecure", "https://localhost:8000/v1/chat/completions", "-d"]
    assert words[5:] == more
    for told, curl in (plain, unix):
        assert "https" not in told + curl
        assert "--cert" not in curl
    lines = [event["log_format"].format(**event) for event in logged]
    assert "administration at https://localhost:10" in lines
    assert "administration at http://[::1]:11" in lines


@pytest.mark.parametrize(("reqs", "warned"), [("0", True), ("1", False), ("2", False)])
def test_cas_of_clients_that_are_asked_for_nothing_are_warned_about(
    monkeypatch: pytest.MonkeyPatch, reqs: str, warned: bool
) -> None:
    flags = ("--self-signed-certs", "--ssl-ca-certs", "c", "--ssl-cert-reqs", reqs)
    logged = ReadinessRig(monkeypatch, tcp("::"), flags=flags).start()
    told = "clients are asked for no certificate: --ssl-ca-certs is without --ssl-cert-reqs 1 or 2"
    assert (told in [event["log_format"].format(**event) for event in logged]) is warned


@pytest.mark.parametrize(("speed", "told"), [("3", "1.33"), ("1", "4"), ("0.001", "4000")])
def test_the_seconds_of_a_start_are_told_as_people_write_them(
    monkeypatch: pytest.MonkeyPatch, speed: str, told: str
) -> None:
    rig = ReadinessRig(monkeypatch, tcp("::"), flags=(*SLOW, "--speed", speed))
    with capturedLogs() as logged:
        rig.run()
    lines = [event["log_format"].format(**event) for event in logged]
    assert f"loading for {told} seconds at http://localhost:8000" in lines


@pytest.mark.parametrize(
    "model", ["it's", 'a "b"', "a b", "$(id)", "é中😀", "back\\slash", "org/m", "two\nlines"]
)
def test_whatever_the_model_is_called_the_curl_can_be_pasted(
    monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    rig = ReadinessRig(monkeypatch, tcp("::"), flags=("--served-model-name", model))
    (line,) = rig.run()
    words = shlex.split(line.partition(" - try: ")[2])
    assert len(words) == 4
    assert json.loads(words[3])["model"] == model


def test_every_port_has_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ReadinessRig(monkeypatch, tcp("::", 8000), UNIXAddress(b"/s"), tcp("127.0.0.1", 9)).run()
    assert [line.partition(" - try")[0].rpartition(" ")[2] for line in lines] == [
        *("http://localhost:8000", "unix:/s", "http://127.0.0.1:9")
    ]


@pytest.mark.parametrize(
    ("addresses", "port"),
    [
        ([tcp("::", 8123)], b"8123"),
        ([UNIXAddress(b"/s"), tcp("127.0.0.1", 9), tcp("::", 10)], b"9"),
        ([UNIXAddress(b"/s")], b"8000"),
        ([], b"8000"),
    ],
)
def test_replies_tell_the_port_that_was_opened(
    monkeypatch: pytest.MonkeyPatch, addresses: list[Any], port: bytes
) -> None:
    """It may be another than `--port`, with `--listen` or sockets of systemd."""
    rig = ReadinessRig(monkeypatch, *addresses, flags=("--pod-name", "p"))
    rig.run()
    assert b"x-inference-port: %b\r\n" % port in rig.rank.context.reply_headers


def test_without_stderr_the_line_is_printed_nowhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rig = ReadinessRig(monkeypatch, tcp("::"))
    monkeypatch.setattr(sys, "__stderr__", None)
    assert rig.run() == []
    assert capsys.readouterr().out == ""
    assert rig.rank.context.ready


def test_the_configuration_is_logged_once_without_its_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = ReadinessRig(monkeypatch, tcp("::"), flags=("--api-key", "hush", "--max-num-seqs", "7"))
    lines = [event["log_format"].format(**event) for event in rig.start()]
    (told,) = [line for line in lines if line.startswith("configuration: ")]
    assert json.loads(told.removeprefix("configuration: "))["max-num-seqs"] == 7
    assert not any("hush" in line for line in lines)


def test_options_that_do_nothing_yet_are_told_when_given(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = ReadinessRig(monkeypatch, tcp("::"), flags=("--max-num-seqs", "7", "--seed", "1"))
    effective = {"max-num-seqs": True, "seed": False, "mode": False}
    options = {
        name: SimpleNamespace(name=name, field=name.replace("-", "_"), effective=on)
        for name, on in effective.items()
    }
    monkeypatch.setattr(readiness, "OPTIONS", options)
    _, event = rig.start()
    assert event["log_format"].format(**event).endswith(": --seed")


def test_flags_without_effect_are_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    flags = ("--gpu-memory-utilization", "0.5", "--enforce-eager")
    config = parse(["--model", "m", *flags], {})
    assert config.ignored_flags
    clock = Clock()
    rank = Rank(config, BuiltinTokenizer(), clock)
    with capturedLogs() as logged:
        Readiness(config, [rank], [Listeners()], clock, Reactor()).startService()
    lines = [event["log_format"].format(**event) for event in logged]
    (told,) = [line for line in lines if line.startswith("accepted")]
    assert all(name in told for name in config.ignored_flags)


SLOW = ("--startup-duration", "4s")


@pytest.mark.parametrize("first", ["others", "own"])
def test_a_start_takes_as_long_as_the_slowest_rank(monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    others: Deferred[None] = Deferred()
    rig = ReadinessRig(monkeypatch, tcp("::"), flags=SLOW, others=others)
    rig.run()
    ends = [lambda: others.callback(None), lambda: rig.clock.advance(4)]
    for end in ends if first == "others" else reversed(ends):
        assert served(rig) == (200, 503, 503)
        end()
    assert served(rig) == (200, 200, 200)


def served(rig: ReadinessRig) -> tuple[int, int, int]:
    """The status of liveness, readiness and a list of models."""
    paths = (b"/health", b"/ready", b"/v1/models")
    health, ready, models = (ask(rig.web, path).status for path in paths)
    return health, ready, models


@pytest.mark.parametrize(("more", "meanwhile"), [((), 503), (("--startup-serves",), 200)])
@pytest.mark.parametrize(("speed", "seconds"), [("1", 4.0), ("8", 0.5)])
def test_a_start_may_take_its_time(
    monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], meanwhile: int, speed: str, seconds: float
) -> None:
    rig = ReadinessRig(monkeypatch, tcp("::", 9), flags=(*SLOW, *more, "--speed", speed))
    with capturedLogs() as logged:
        assert rig.run() == []
    told = [event["log_format"].format(**event) for event in logged]
    assert told[-1] == f"loading for {seconds:g} seconds at http://localhost:9"
    assert served(rig) == (200, 503, meanwhile)
    assert rig.rank.context.port == 9
    rig.clock.advance(seconds - 0.125)
    assert served(rig) == (200, 503, meanwhile)
    with capturedLogs() as logged:
        rig.clock.advance(0.125)
    assert [event["log_format"].format(**event) for event in logged] == ["ready at http://localhost:9"]
    assert served(rig) == (200, 200, 200)
    assert len(rig.stderr.getvalue().splitlines()) == 1
    assert rig.clock.getDelayedCalls() == []


def test_a_daemon_that_ends_before_it_has_started_does_not_say_that_it_serves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = ReadinessRig(monkeypatch, tcp("::"), flags=SLOW)
    rig.run()
    rig.rank.context.draining = True
    rig.clock.advance(4)
    assert (rig.stderr.getvalue(), served(rig)) == ("", (200, 503, 503))
    rig = ReadinessRig(monkeypatch, tcp("::"), flags=SLOW)
    rig.run()
    rig.readiness.stopService()
    assert rig.clock.getDelayedCalls() == []


@pytest.mark.parametrize(("seconds", "left"), [(0, 0.0), (2, 2.0), (6, 0.0)])
def test_a_dataset_that_is_being_opened_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, seconds: int, left: float
) -> None:
    flags = ("--startup-duration", "4s") if seconds else ()
    rig = ReadinessRig(monkeypatch, tcp("::"), flags=(*flags, "--startup-serves"))
    rig.readiness._dataset = opened = Deferred()
    rig.run()
    assert served(rig) == (200, 503, 503)
    rig.clock.advance(seconds)
    assert served(rig) == (200, 503, 503)
    opened.callback(None)
    if left:
        assert served(rig) == (200, 503, 200)
        rig.clock.advance(left)
    assert served(rig) == (200, 200, 200)
    assert len(rig.stderr.getvalue().splitlines()) == 1


@pytest.mark.parametrize(("more", "loading"), [((), Code.UNAVAILABLE), (("--startup-serves",), None)])
def test_calls_are_served_when_requests_are(
    monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], loading: Code | None
) -> None:
    rig = ReadinessRig(monkeypatch, flags=("--startup-duration", "5s", *more))
    rig.start()
    rig.run()
    client = RpcClient(rig.web)
    unknown = [client.call("Nothing", b"", pb.AbortResponse)]
    rig.clock.advance(5)
    unknown.append(client.call("Nothing", b"", pb.AbortResponse))
    assert [call.code for call in unknown] == [loading or Code.UNIMPLEMENTED, Code.UNIMPLEMENTED]
