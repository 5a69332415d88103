"""Access lines: what they tell, which requests have one, and when they are written."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmdsim.wire.request import Request
from tests.logs.rig import LoggedRank
from tests.web.clients import CHAT, TEXT, fields
from tests.wire.channel import get

#: Of the transport in memory.
CLIENT = "192.168.1.1:54321"
PACE = ("--access-log", "--time-to-first-token", "1s", "--inter-token-latency", "500ms")


def one(rig: LoggedRank) -> str:
    (line,) = rig.access_lines()
    return line


def test_a_reply_is_told_with_its_tokens_and_times() -> None:
    with LoggedRank(*PACE, "--max-num-seqs", "1") as rig:
        rig.post(CHAT, fields(CHAT, stream=True))
        rig.clock.advance(0.25)
        rig.post(TEXT, fields(TEXT, max_tokens=2, request_id="mine"))
        rig.clock.pump([0.25] * 40)
        first, second = rig.access_lines()
    assert re.fullmatch(
        rf'{re.escape(CLIENT)} chatcmpl-\w{{16}} "POST /v1/chat/completions HTTP/1.1" 200 model=m '
        r"prompt_tokens=\d+ completion_tokens=5 queue_ms=0.0 ttft_ms=1000.0 duration_ms=3000.0",
        first,
    )
    assert second == (
        f'{CLIENT} cmpl-mine "POST /v1/completions HTTP/1.1" 200 model=m prompt_tokens=2 '
        "completion_tokens=2 queue_ms=2750.0 ttft_ms=3750.0 duration_ms=4250.0"
    )


@pytest.mark.parametrize("path", [CHAT, TEXT])
@pytest.mark.parametrize("stream", [False, True])
def test_choices_add_up(path: str, stream: bool) -> None:
    with LoggedRank("--access-log") as rig:
        rig.post(path, fields(path, n=3, stream=stream))
        assert " completion_tokens=15 " in one(rig)


def test_a_request_that_led_to_no_reply() -> None:
    with LoggedRank("--access-log") as rig:
        rig.connect().send(get(b"/v1/models?a=b"), get(b"/nowhere"), get(b"/v1/models", method=b"PUT"))
        rig.connect().send(b"nonsense\r\n\r\n")
        rig.post(CHAT, {"messages": 3})
        lines = [line.rpartition(" duration_ms=")[0] for line in rig.access_lines()]
    assert lines == [
        f'{CLIENT} - "GET /v1/models?a=b HTTP/1.1" 200',
        f'{CLIENT} - "GET /nowhere HTTP/1.1" 404',
        f'{CLIENT} - "PUT /v1/models HTTP/1.1" 405',
        f'{CLIENT} - "- - HTTP/1.1" 400',
        f'{CLIENT} - "POST /v1/chat/completions HTTP/1.1" 400',
    ]


def test_a_full_queue_is_told_without_times_it_did_not_reach() -> None:
    with LoggedRank(*PACE, "--max-num-seqs", "1", "--max-waiting-queue-length", "0") as rig:
        rig.post(CHAT, fields(CHAT))
        rig.post(CHAT, fields(CHAT, request_id="late"))
        line = one(rig)
    assert " chatcmpl-late " in line
    assert re.search(r'" 429 model=m prompt_tokens=\d+ completion_tokens=0 duration_ms=', line)


@pytest.mark.parametrize(("stream", "status"), [(False, 499), (True, 200)])
def test_a_client_that_left_is_a_499_unless_a_stream_had_begun(stream: bool, status: int) -> None:
    with LoggedRank(*PACE) as rig:
        client = rig.post(CHAT, fields(CHAT, stream=stream))
        rig.clock.pump([0.25] * 7)
        client.rst()
        line = one(rig)
    assert f'" {status} model=m ' in line
    assert " completion_tokens=2 " in line
    assert line.endswith(" duration_ms=1750.0 aborted")


@pytest.mark.parametrize("n", [1, 3])
def test_one_that_left_in_the_queue_has_no_times(n: int) -> None:
    with LoggedRank(*PACE, "--max-num-seqs", "1") as rig:
        rig.post(CHAT, fields(CHAT))
        rig.post(CHAT, fields(CHAT, n=n)).rst()
        line = one(rig)
    assert " completion_tokens=0 duration_ms=" in line


def test_objects_tell_the_same() -> None:
    with LoggedRank(*PACE, "--log-format", "json") as rig:
        rig.post(TEXT, fields(TEXT, request_id="mine", max_tokens=2))
        rig.clock.pump([0.25] * 40)
        rig.connect().send(get(b"/version"))
        rig.post(TEXT, fields(TEXT)).rst()
        rig.access_lines()
        reply, other, left = rig.log.objects
    assert reply.pop("time").startswith("2")
    assert reply == {
        "level": "INFO",
        "logger": "llmdsim.logs.access",
        "message": "POST /v1/completions HTTP/1.1",
        "method": "POST",
        "path": "/v1/completions",
        "protocol": "HTTP/1.1",
        "client": CLIENT,
        "status": 200,
        "grpc_status": None,
        "request_id": "cmpl-mine",
        "model": "m",
        "prompt_tokens": 2,
        "completion_tokens": 2,
        "queue_ms": 0.0,
        "ttft_ms": 1000.0,
        "duration_ms": 1500.0,
        "aborted": False,
    }
    assert [other[name] for name in ("status", "request_id", "model", "ttft_ms")] == [200, None, None, None]
    assert (left["status"], left["ttft_ms"], left["aborted"]) == (499, None, True)


@pytest.mark.parametrize("path", [b"/health", b"/health/ready", b"/ready", b"/ping", b"/metrics"])
def test_probes_and_scrapes_have_no_line_by_default(path: bytes) -> None:
    with LoggedRank("--access-log") as rig:
        rig.connect().send(get(path), get(path + b"?a=b"))
        assert rig.access_lines() == []
    with LoggedRank("--access-log", "--disable-access-log-for-endpoints", "") as rig:
        rig.connect().send(get(path))
        assert len(rig.access_lines()) == 1
    with LoggedRank("--access-log", "--disable-access-log-for-endpoints", "/version, /load") as rig:
        rig.connect().send(get(path), get(b"/version"), get(b"/load"))
        assert path.decode() in one(rig)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ([], False),
        (["--access-log"], True),
        (["--disable-uvicorn-access-log"], False),
        (["--access-log", "--disable-uvicorn-access-log"], False),
        (["--enable-uvicorn-access-log"], True),
        (["--no-disable-uvicorn-access-log"], True),
        (["--access-log", "-v", "1"], False),
        (["--access-log", "-v", "1", "--vmodule", "access=2"], True),
    ],
)
def test_whether_there_are_lines(flags: list[str], told: bool) -> None:
    with LoggedRank(*flags) as rig:
        rig.post(CHAT, fields(CHAT))
        assert bool(rig.access_lines()) is told
        assert rig.rank.context.accounted is told


def test_lines_are_written_together_after_a_tenth_of_a_second() -> None:
    with LoggedRank("--access-log") as rig:
        client = rig.connect()
        for _ in range(3):
            client.send(get(b"/version"))
        rig.clock.advance(0.09)
        assert rig.log.writes == []
        rig.clock.advance(0.02)
        assert len(rig.log.writes) == 1
        assert len(rig.log.lines) == 3
        client.send(get(b"/version"))
        rig.clock.advance(0.2)
        assert len(rig.log.writes) == 2
        assert [take() for take in rig.log.destination.waiting] == [""]


def test_or_when_there_are_a_hundred() -> None:
    with LoggedRank("--access-log") as rig:
        client = rig.connect()
        for _ in range(100):
            client.send(get(b"/version"))
        assert len(rig.log.writes) == 1
        assert len(rig.log.lines) == 100


def test_at_the_end_a_line_waits_for_nothing() -> None:
    with LoggedRank("--access-log") as rig:
        rig.log.destination.end()
        rig.connect().send(get(b"/version"))
        assert len(rig.log.lines) == 1


def test_secrets_in_the_address_are_masked() -> None:
    with LoggedRank("--access-log") as rig:
        rig.connect().send(get(b"/v1/models?api_key=sk-1&a=b"), get(b"http://u:sk-1@h/v1/models?token=sk-1"))
        assert len(rig.access_lines()) == 2
        assert "sk-1" not in rig.log.text


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_id_cannot_forge_anything(form: str) -> None:
    forged = 'a" 200\n2026-11-30 00:00:00.000 INFO access: x'
    with LoggedRank("--access-log", "--log-format", form) as rig:
        rig.post(CHAT, fields(CHAT, request_id=forged))
        line = one(rig) if form == "text" else ""
        rig.access_lines()
    if form == "text":
        assert line.split()[1].startswith("chatcmpl-a\\x22\\x20200\\n2026")
    else:
        assert rig.log.objects[0]["request_id"] == f"chatcmpl-{forged}"


def test_nothing_holds_on_to_a_request() -> None:
    with LoggedRank("--access-log") as rig:
        ended: list[Request] = []
        rig.site.on_ended.append(ended.append)
        rig.connect().send(get(b"/version"))
        rig.post(CHAT, fields(CHAT))
        assert [request.account for request in ended] == [None, None]


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=40), st.binary(max_size=40))
def test_whatever_a_client_sends_is_one_line(path: bytes, request_id: bytes) -> None:
    body = json.dumps(fields(CHAT, max_tokens=1)).encode()
    head = b"POST %b HTTP/1.1\r\nHost: sim\r\nX-Request-Id: %b\r\nContent-Length: %d\r\n\r\n"
    for target, form in ((b"/" + path, "text"), (CHAT.encode(), "text"), (CHAT.encode(), "json")):
        with LoggedRank("--access-log", "--log-format", form) as rig:
            rig.connect().send(head % (target, request_id, len(body)) + body)
            rig.log.destination.flush()
            lines = rig.log.lines
            ended = rig.log.text.splitlines()
        assert lines == ended
        for line in lines:
            if form == "json":
                assert json.loads(line)["method"]
            else:
                assert re.fullmatch(
                    r'\S+ \S+ INFO access: \S+ \S+ "[A-Z-]+ \S+ HTTP/\d\.\d" \d{3}( \S+)+', line
                ), line
