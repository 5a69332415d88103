"""Objects written inline, in JSON or YAML, and kept in files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llmdsim.config import ConfigError, parse

FUNCTION = {"running-requests": "ramp:0:1:1s", "loras": []}


def fake_metrics(value: str) -> object:
    return parse(["--model", "m", "--fake-metrics", value], {}).fake_metrics


@pytest.mark.parametrize(
    "text",
    [
        '{"running-requests": "ramp:0:1:1s", "loras": []}',
        "running-requests: ramp:0:1:1s\nloras: []\n",
        "{running-requests: 'ramp:0:1:1s', loras: []}",
        "\n  # with a remark\n  running-requests: ramp:0:1:1s\n  loras: []\n",
    ],
)
@pytest.mark.parametrize("name", [None, "a.json", "a.yaml", "a.yml", "@a.json", "@any thing", "@{a}: b"])
def test_json_and_yaml_inline_or_in_a_file(
    text: str, name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if name is not None:
        (tmp_path / name.removeprefix("@")).write_text(text)
    assert fake_metrics(name or text) == FUNCTION


@pytest.mark.parametrize("text", ["note: see b.yaml", '{"note": "b.json"}', "note:\n- b.yml"])
def test_inline_text_that_ends_like_a_path_is_none(text: str) -> None:
    (value,) = fake_metrics(text)["note"] if "-" in text else [fake_metrics(text)["note"]]  # type: ignore[index]
    assert value.endswith(("b.yaml", "b.json", "b.yml"))


def test_a_file_of_a_file_is_read_from_the_configuration_too(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(f"model: m\nfake-metrics: {tmp_path}/f.yaml\n")
    (tmp_path / "f.yaml").write_text("running-requests: 3\n")
    assert parse(["--config", str(tmp_path / "c.yaml")], {}).fake_metrics == {"running-requests": 3}


def test_a_member_can_be_added_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("running-requests: 3\n")
    flags = ["--model", "m", "--fake-metrics", str(path), "--fake-metrics.kv-cache-usage", "0.5"]
    assert parse(flags, {}).fake_metrics == {"running-requests": 3, "kv-cache-usage": 0.5}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"running-requests: 1\nrunning-requests: 2\n", ":2: key 'running-requests' is there twice"),
        (b"a: [1\n", ":2: "),
        (b"- a\n", ": not a mapping"),
        (b"7", "is not a JSON or YAML object"),
        (b"[]", "is not a JSON or YAML object"),
        (b"", ": not a mapping"),
        (b"a: \xff", "cannot be read: 'utf-8' codec"),
        (b"{" * 5000, None),
        (b"a: {1: 2024-01-01}", None),
    ],
)
def test_a_wrong_file_is_one_line_with_its_name(
    content: bytes | None, message: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("f.yaml")
    if content is not None:
        path.write_bytes(content)
    try:
        fake_metrics(str(path))
    except ConfigError as error:
        text = str(error)
        assert text.startswith("--fake-metrics: ")
        assert str(path) in text
        assert text.isprintable()
        assert message is None or message in text
    else:
        assert message is None


@pytest.mark.parametrize("text", ["@", "@/", "@/nowhere\x00", "/nowhere/\ud800.json"])
def test_a_path_that_is_none(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        fake_metrics(text)
    assert str(caught.value).isprintable()


def test_what_is_no_file_would_have_a_running_daemon_wait(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError) as raised:
        fake_metrics(str(pipe))
    assert str(raised.value) == f"--fake-metrics: {pipe}: no regular file"
