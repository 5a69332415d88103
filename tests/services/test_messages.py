"""What goes over the pipes between the main process and those of ranks."""

from __future__ import annotations

import os
import threading

import pytest

from llmdsim.config import parse
from llmdsim.services.messages import Handover, LineBuffer, Server, line, read_line, receive
from llmdsim.web.operations import Answer, Order

ARGV = ("--model", "m", "--api-key", "k", "--lora-modules", "a=b", "--kv-cache-size", "7", "-dp", "2")
HANDOVER = Handover(Server(parse(ARGV, {}), ARGV, "/file", "id", False), number=1, sockets=3, inherited=1)


def through_a_pipe(*writes: bytes) -> tuple[Handover | None, bytes]:
    """What is received, and what was left for whoever reads on."""
    read, write = os.pipe()

    def feed() -> None:
        for data in writes:
            os.write(write, data)
        os.close(write)

    feeding = threading.Thread(target=feed)
    feeding.start()
    try:
        received = receive(read)
        rest = b"".join(iter(lambda: os.read(read, 1 << 16), b""))
    finally:
        feeding.join()
        os.close(read)
    return received, rest


def test_a_handover_arrives_as_it_was_however_it_is_cut() -> None:
    data = HANDOVER.packed()
    for cut in (1, 3, 4, 5, 100):
        assert through_a_pipe(data[:cut], data[cut:] + b"reload\n") == (HANDOVER, b"reload\n")


def test_a_large_one_too() -> None:
    large = HANDOVER._replace(server=HANDOVER.server._replace(engine_id="x" * 300_000))
    assert through_a_pipe(large.packed(), b"y") == (large, b"y")


@pytest.mark.parametrize("length", [0, 2, 4, 50])
def test_where_it_ends_early_there_is_none(length: int) -> None:
    assert through_a_pipe(HANDOVER.packed()[:length]) == (None, b"")


def test_lines_are_put_together() -> None:
    lines = LineBuffer()
    assert [lines.feed(part) for part in (b"a", b"b\n\nc", b"\n", b"d\ne\n")] == [
        [],
        [b"ab", b""],
        [b"c"],
        [b"d", b"e"],
    ]


@pytest.mark.parametrize(
    ("what", "kind"),
    [
        (Order(b"POST", b"/p?\xff=\n", None, b"\x00\n\xff"), Order),
        (Order(b"POST", b"/", b"application/json", b"{}"), Order),
        (Answer(204), Answer),
        ({0: Answer(200, b"\n", b"text/plain", b"x: y\r\n"), 7: Answer(400)}, dict[int, Answer]),
    ],
)
def test_a_message_is_one_line_whatever_is_in_it(what: object, kind: object) -> None:
    message = line(b"do", 12, what)
    assert message.startswith(b"do 12 ")
    assert message.count(b"\n") == 1
    assert read_line(message[3:-1], kind) == (12, what)
