"""The publisher over real sockets: who connects to whom, slow consumers, and the end."""

from __future__ import annotations

import json
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.integration import publishing
from tests.integration.daemon import free_port
from tests.integration.subscriber import Batch, Replayer, Subscriber, joined

pytestmark = pytest.mark.integration


class Process:
    """The publishing process; `tell` gives it a line and returns its answer."""

    def __init__(self, child: subprocess.Popen[str], log: Any) -> None:
        self.child = child
        self._log = log
        self.address: str = self.answer()["address"]

    def answer(self) -> dict[str, Any]:
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        assert line, self.log
        answer: dict[str, Any] = json.loads(line)
        return answer

    def begin(self, line: str) -> None:
        assert self.child.stdin is not None
        self.child.stdin.write(f"{line}\n")
        self.child.stdin.flush()

    def tell(self, line: str) -> dict[str, Any]:
        self.begin(line)
        return self.answer()

    def publish(self, number: int = 1, size: int = 100) -> dict[str, Any]:
        return self.tell(f"{number} {size}")

    def provoke(self) -> Callable[[Batch], bool]:
        """Publish one, as `joined` takes it."""
        number = self.publish()["batches"] - 1
        return lambda batch: batch.number == number

    @property
    def log(self) -> str:
        return Path(self._log.name).read_text()


@contextmanager
def publisher(
    address: str, how: str = "bind", hwm: int = 100_000, attempts: int = 0, replay: str = "-"
) -> Iterator[Process]:
    arguments = (address, how, str(hwm), str(attempts), replay)
    with tempfile.NamedTemporaryFile("w") as log:
        child = subprocess.Popen(
            [sys.executable, publishing.__file__, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            yield Process(child, log)
        finally:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                assert pipe is not None
                pipe.close()


def until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:0", "tcp://[::1]:0", "ipc"])
def test_r64_a_subscriber_connects_and_gets_three_frames(address: str, tmp_path: Path) -> None:
    if address == "ipc":
        address = f"ipc://{tmp_path}/events"
    with publisher(address) as process, Subscriber(process.address) as subscriber:
        first, *_ = joined(subscriber, process.provoke)
        assert first.topic == publishing.TOPIC
        assert first.payload == b"x" * 100
        process.publish(3)
        numbers = [batch.number for batch in subscriber.take(3)]
        assert numbers == list(range(numbers[0], numbers[0] + 3))
        assert process.publish()["overflows"] == 0


def test_an_ipv6_wildcard_takes_ipv4_too() -> None:
    with publisher("tcp://[::]:0") as process:
        port = process.address.rpartition(":")[2]
        with Subscriber(f"tcp://127.0.0.1:{port}") as old, Subscriber(f"tcp://[::1]:{port}") as new:
            joined(old, process.provoke)
            joined(new, process.provoke)


def test_a_publisher_that_connects_waits_for_one_that_comes_later_and_comes_back() -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    with publisher(address, "connect") as process:
        process.publish(3)
        until(lambda: "trying on" in process.log, "not told")
        with Subscriber(address, bind=True) as subscriber:
            first, *_ = joined(subscriber, process.provoke)
            assert first.number >= 3
        until(lambda: "is lost" in process.log, "not told")
        process.publish()
        with Subscriber(address, bind=True) as subscriber:
            again, *_ = joined(subscriber, process.provoke)
            assert again.number > first.number
        assert process.log.count("connected to") == 2


def test_after_so_many_attempts_the_address_is_left_alone() -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    with publisher(address, "connect", attempts=3) as process:
        until(lambda: "left alone after 3 attempts" in process.log, "tries on")
        with Subscriber(address, bind=True) as subscriber:
            for _ in range(5):
                process.publish()
                time.sleep(0.1)
            assert subscriber.rest() == []


def test_attempts_count_anew_after_a_connection() -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    with publisher(address, "connect", attempts=6) as process:
        for _ in range(5):
            with Subscriber(address, bind=True) as subscriber:
                joined(subscriber, process.provoke)
            until(lambda: process.log.count("is lost") == process.log.count("connected to"), "not lost")
            time.sleep(0.4)
            assert "left alone" not in process.log


def test_a_taken_port_is_an_error() -> None:
    with publisher("tcp://127.0.0.1:0") as process:
        child = subprocess.run(
            [sys.executable, publishing.__file__, process.address, "bind", "1", "0", "-"],
            capture_output=True,
            text=True,
            check=False,
        )
    assert "TransportError: Address already in use" in child.stderr


def test_r92_a_slow_subscriber_is_told_of_and_holds_up_neither_us_nor_others() -> None:
    with (
        publisher("tcp://127.0.0.1:0", hwm=100) as process,
        Subscriber(process.address, RCVHWM=10, RCVBUF=4096) as slow,
        Subscriber(process.address, RCVHWM=0) as fast,
    ):
        joined(slow, process.provoke)
        first = joined(fast, process.provoke)[-1].number + 1
        told: dict[str, Any] = {}
        for _ in range(100):
            told = process.publish(50, 20_000)
            assert told["took"] < 1.0
            # The fast one may be given time to read.
            fast.take(50)
        assert told["overflows"] >= 1
        assert "the queue of a subscriber is full" in process.log
        missed = told["batches"] - first
        got = slow.rest()
        assert len(got) < missed
        # What it has got has no hole: the newest are dropped.
        numbers = [batch.number for batch in got]
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
        # Now that it reads, it gets what comes.
        joined(slow, process.provoke)


def test_who_listens_to_much_else_is_heard_soon() -> None:
    with publisher("tcp://127.0.0.1:0") as process:
        with Subscriber(process.address, topic=b"0", SNDHWM=0) as subscriber:
            for number in range(20_000):
                subscriber.socket.subscribe(b"%d" % number)
            subscriber.socket.subscribe(b"kv@")
            until(lambda: process.publish()["listened"], "nobody is said to listen")
            with Subscriber(process.address, topic=b"k") as other:
                joined(other, process.provoke)
            joined(subscriber, process.provoke)
            assert process.publish()["listened"]
        until(lambda: not process.publish()["listened"], "somebody is said to listen still")


def test_a_subscription_beyond_measure_is_cut_off() -> None:
    with publisher("tcp://127.0.0.1:0") as process, Subscriber(process.address) as other:
        with Subscriber(process.address) as subscriber:
            joined(subscriber, process.provoke)
            with subscriber.socket.get_monitor_socket(zmq.EVENT_DISCONNECTED) as monitor:
                subscriber.socket.subscribe(b"k" * 100_000)
                assert monitor.poll(5000)
            subscriber.socket.disable_monitor()
        joined(other, process.provoke)


def test_r66_replay_of_ten_thousand_batches() -> None:
    replay = f"tcp://127.0.0.1:{free_port()}"
    with publisher("tcp://127.0.0.1:0", replay=replay) as process, Replayer(replay, RCVHWM=0) as client:
        assert client.replay(0) == []
        process.publish(10_500, 300)
        process.publish(0)
        whole = client.replay(0)
        assert [batch.number for batch in whole] == list(range(500, 10_500))
        assert {batch.topic for batch in whole} == {publishing.TOPIC}
        assert [batch.number for batch in client.replay(10_498)] == [10_498, 10_499]
        assert client.replay(20_000) == []


def test_a_client_that_does_not_read_its_replay_holds_up_no_other() -> None:
    replay = f"tcp://127.0.0.1:{free_port()}"
    with (
        publisher("tcp://127.0.0.1:0", replay=replay) as process,
        Replayer(replay, RCVHWM=5, RCVBUF=4096) as stalled,
        Replayer(replay) as client,
    ):
        process.publish(3000, 5000)
        for _ in range(20):
            stalled.ask(0)
        for _ in range(3):
            assert len(client.replay(0)) == 3000
        told = process.publish()
        assert told["replays"] == 3
        assert told["latest"] < 1.0
        # It is served when it reads after all.
        assert [batch.number for batch in stalled.answer()] == list(range(3000))


def test_requests_that_are_none_are_ignored() -> None:
    replay = f"tcp://127.0.0.1:{free_port()}"
    with publisher("tcp://127.0.0.1:0", replay=replay) as process, Replayer(replay) as client:
        process.publish(2)
        for frames in ([b""], [b"", b"short"], [b"", bytes(8), b"more"], [bytes(8)]):
            client.socket.send_multipart(frames)
        assert [batch.number for batch in client.replay(1)] == [1]
    with publisher("tcp://127.0.0.1:0", replay=replay) as process, Replayer(replay) as client:
        client.socket.send_multipart([b"", bytes(100_000)])
        process.publish(2)
        # It is cut off, with what it may have asked meanwhile, connects again and is heard.
        for _ in range(50):
            client.ask(0)
            if client.socket.poll(200):
                break
        assert [batch.number for batch in client.answer()] == [0, 1]


def test_what_was_published_last_still_leaves_at_the_end() -> None:
    narrow = {"RCVHWM": 5, "RCVBUF": 4096}
    with publisher("tcp://127.0.0.1:0") as process, Subscriber(process.address, **narrow) as subscriber:
        joined(subscriber, process.provoke)
        process.publish(2000, 10_000)
        process.begin("end")
        assert len(subscriber.rest()) == 2000
        assert process.answer()["closed"] < 3
        assert process.child.wait(10) == 0


def test_a_stopped_subscriber_delays_the_end_by_a_second_at_most() -> None:
    script = (
        "import sys, zmq; s = zmq.Context().socket(zmq.SUB); s.setsockopt(zmq.SUBSCRIBE, b'');"
        "s.connect(sys.argv[1]); s.recv_multipart(); print('joined', flush=True); s.recv_multipart();"
        "import time; time.sleep(60)"
    )
    with publisher("tcp://127.0.0.1:0") as process:
        other = subprocess.Popen(
            [sys.executable, "-c", script, process.address], stdout=subprocess.PIPE, text=True
        )
        try:
            assert other.stdout is not None
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline and other.poll() is None:
                process.publish()
                time.sleep(0.05)
                if select.select([other.stdout], [], [], 0)[0]:
                    break
            assert other.stdout.readline() == "joined\n"
            other.send_signal(signal.SIGSTOP)
            assert process.publish(20_000, 2000)["took"] < 3
            assert 0.5 < process.tell("end")["closed"] < 3
            assert process.child.wait(10) == 0
        finally:
            other.kill()
            other.wait()
            assert other.stdout is not None
            other.stdout.close()
