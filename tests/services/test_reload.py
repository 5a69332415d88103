"""Reading the configuration again: what may change does, all of it or nothing, and the log tells."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from twisted.logger import capturedLogs

from llmdsim.config import parse
from llmdsim.services.reload import MOST, Reload
from tests.web.access.rig import ask
from tests.web.admin.operator import told
from tests.web.clients import TEXT, post
from tests.web.rig import RankRig

YAML = """\
inter-token-latency: 50ms
time-to-first-token: 1s
failure-types: [rate_limit]
max-num-seqs: 2
port: 8001
"""


class ReloadRig(RankRig):
    """A rank that was started with a file, or with none where that is None."""

    def __init__(self, folder: Path, text: str | None = YAML, *flags: str) -> None:
        self.file = folder / "llmdsim.yaml"
        argv = ["--model", "m", *flags]
        if text is not None:
            self.file.write_text(text)
            argv += ["--config", str(self.file)]
        super().__init__(*argv[2:])
        path = "" if text is None else str(self.file)
        contexts = [self.rank.context]
        self.reload = Reload(self.rank.config, path, lambda: parse(argv, {}), contexts)

    def again(self, text: str | None = None) -> list[str]:
        """What the log has when the file, which is `text` now, is read again."""
        if text is not None:
            self.file.write_text(text)
        with capturedLogs() as logged:
            self.reload.reload()
        return [event["log_format"].format(**event) for event in logged]

    def shown(self, *names: str) -> list[object]:
        config = told(self, "GET", "/admin/config")
        return [config[name] for name in names]


def test_what_may_change_does_and_what_may_not_is_told(tmp_path: Path) -> None:
    rig = ReloadRig(tmp_path)
    lines = rig.again(
        "inter-token-latency: 20ms\ntime-to-first-token: 1s\nmax-num-seqs: 3\nport: 8001\n"
        "faults: [stall]\nmax-model-len: 512\n"
    )
    assert lines == [
        "configuration read again, changed: inter-token-latency failure-types faults",
        "need a restart to change: max-model-len max-num-seqs",
    ]
    names = ("inter-token-latency", "failure-types", "faults", "max-num-seqs", "max-model-len")
    # A key that is gone is at its default again.
    assert rig.shown(*names) == ["20ms", [], ["stall"], 2, 1024]


def test_the_new_pace_is_kept(tmp_path: Path) -> None:
    rig = ReloadRig(tmp_path, "inter-token-latency: 10s\n")
    rig.again("inter-token-latency: 1s\n")
    client = post(rig, TEXT, max_tokens=3)
    rig.clock.pump([1.0, 1.0])
    assert b"HTTP/1.1 200" in client.received


def test_nothing_changes_where_the_file_is_the_same(tmp_path: Path) -> None:
    rig = ReloadRig(tmp_path)
    changes: list[object] = []
    rig.rank.context.on_config.append(changes.append)
    assert rig.again() == ["configuration read again, changed: nothing"]
    assert changes == []


@pytest.mark.parametrize(
    "text",
    [
        "inter-token-latency: soon\n",
        "inter-token-latency: 20ms\nno-such-option: 1\n",
        "inter-token-latency: 20ms\ntime-to-first-token: 1ms\ntime-to-first-token-std-dev: 1ms\n",
        "inter-token-latency: 20ms\nmax-num-seqs: 0\n",
        "inter-token-latency: 20ms\nmin-tool-call-integer-param: 1000\n",
        "inter-token-latency: [\n",
        "- a\n",
        "\x00",
    ],
)
def test_of_a_file_with_anything_wrong_nothing_counts(tmp_path: Path, text: str) -> None:
    rig = ReloadRig(tmp_path)
    (line,) = rig.again(text)
    assert line.startswith("the configuration stays as it is: ")
    assert "\n" not in line
    assert rig.shown("inter-token-latency", "time-to-first-token-std-dev") == ["50ms", "0s"]
    assert rig.again("inter-token-latency: 20ms\nmax-num-seqs: 2\nport: 8001\n") == [
        "configuration read again, changed: time-to-first-token inter-token-latency failure-types"
    ]


def test_flags_still_win(tmp_path: Path) -> None:
    rig = ReloadRig(tmp_path, YAML, "--inter-token-latency", "7ms")
    assert rig.again("inter-token-latency: 20ms\ntime-to-first-token: 2s\n")
    assert rig.shown("inter-token-latency", "time-to-first-token") == ["7ms", "2s"]


def test_changes_made_meanwhile_give_way_to_what_a_start_would_have_made(tmp_path: Path) -> None:
    rig = ReloadRig(tmp_path)
    told(rig, "POST", "/admin/config", {"inter-token-latency": "1ms", "fault-rate": 5})
    assert rig.again() == ["configuration read again, changed: inter-token-latency fault-rate"]
    assert rig.shown("inter-token-latency", "fault-rate") == ["50ms", 100.0]


def test_scripted_metrics_change_but_are_neither_begun_nor_ended(tmp_path: Path) -> None:
    rig = ReloadRig(tmp_path, "fake-metrics: {running-requests: 1}\n")
    rig.again("fake-metrics: {running-requests: 2, waiting-requests: 3}\n")
    assert rig.shown("fake-metrics") == [{"running-requests": 2, "waiting-requests": 3}]
    assert rig.again("inter-token-latency: 1ms\n")[1:] == ["need a restart to change: fake-metrics"]
    assert rig.shown("inter-token-latency", "fake-metrics")[0] == "1ms"
    rig = ReloadRig(tmp_path, "")
    assert rig.again("fake-metrics: {running-requests: 2}\n")[1:] == [
        "need a restart to change: fake-metrics"
    ]


def test_a_file_that_an_option_names_is_read_again(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics.json"
    metrics.write_text('{"running-requests": 1}')
    rig = ReloadRig(tmp_path, f"fake-metrics: '@{metrics}'\n")
    metrics.write_text('{"running-requests": 2}')
    assert rig.again() == ["configuration read again, changed: fake-metrics"]
    lines = ask(rig, b"/metrics").body.decode().splitlines()
    (running,) = [line for line in lines if line.startswith("vllm:num_requests_running{")]
    assert float(running.split()[-1]) == 2


def test_without_a_file_there_is_nothing_to_read(tmp_path: Path) -> None:
    rig = ReloadRig(tmp_path, None)
    assert rig.again() == ["there is no --config file to read again"]


def test_what_might_take_long_to_read_is_not_read(tmp_path: Path) -> None:
    rig = ReloadRig(tmp_path)
    (line,) = rig.again("#" * (MOST + 1))
    assert "too large" in line
    rig.file.unlink()
    assert "cannot read" in rig.again()[0]
    os.mkfifo(rig.file)
    assert "no regular file" in rig.again()[0]
    assert rig.shown("inter-token-latency") == ["50ms"]


def test_other_files_are_read_again_too_whatever_goes_wrong(tmp_path: Path) -> None:
    rig = ReloadRig(tmp_path)
    calls: list[str] = []

    def broken() -> None:
        calls.append("broken")
        raise ZeroDivisionError

    rig.reload.others += [broken, lambda: calls.append("certificate")]
    rig.again("inter-token-latency: x\n")
    assert calls == ["broken", "certificate"]


def test_all_ranks_change_or_none(tmp_path: Path) -> None:
    rig = ReloadRig(tmp_path)
    other = RankRig("--port", "8002")
    rig.reload._contexts = [rig.rank.context, other.rank.context]
    rig.again("inter-token-latency: 20ms\n")
    assert told(other, "GET", "/admin/config")["inter-token-latency"] == "20ms"
    assert told(other, "GET", "/admin/config")["port"] == 8002
    rig.again("inter-token-latency: 20ms\ntime-to-first-token: x\n")
    assert told(other, "GET", "/admin/config")["inter-token-latency"] == "20ms"
