"""Where a tokenizer is looked for, in which order, and for how long."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from llmdsim.tokenization import finding
from llmdsim.tokenization.finding import Found, Wanted, find
from llmdsim.tokenization.hub_cache import repository
from tests.tokenization.fake_hub import COMMIT, FakeHub, black_hole, running

FILES = {
    "tokenizer.json": b"T" * 1000,
    "tokenizer_config.json": b"{}",
    "config.json": b"{}",
    "additional_chat_templates/rag.jinja": b"R",
    "model.safetensors": b"W" * 1000,
}


@pytest.fixture
def environ(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment in which the hub may be asked; processes inherit it."""
    ours = {
        "HF_HUB_OFFLINE": "",
        "HF_HUB_CACHE": str(tmp_path / "cache"),
        "HF_HOME": str(tmp_path / "home"),
        "NO_PROXY": "*",
        "HF_ENDPOINT": "http://127.0.0.1:9",
    }
    with patch.dict(os.environ, ours):
        for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH", "TRANSFORMERS_OFFLINE"):
            os.environ.pop(name, None)
        yield os.environ  # type: ignore[misc]


@pytest.fixture
def hub(environ: dict[str, str]) -> Iterator[FakeHub]:
    with running(FakeHub("org/model", FILES)) as hub:
        environ["HF_ENDPOINT"] = hub.url + "/"
        yield hub


def found(
    environ: dict[str, str], name: str = "org/model", revision: str = "", cache: Path | str = ""
) -> Found:
    return find(Wanted(name, revision, str(cache)), environ)


def snapshot_of(cache: Path) -> Path:
    return repository(cache, "org/model") / "snapshots" / COMMIT


# --- without a hub


def test_a_folder_comes_first(tmp_path: Path, environ: dict[str, str]) -> None:
    folder = tmp_path / "org" / "model"
    folder.mkdir(parents=True)
    assert found(environ, str(folder)).problem == f"the folder {folder} has no tokenizer.json"
    (folder / "tokenizer.json").write_text("{}")
    assert found(environ, str(folder)) == (str(folder), "")


@pytest.mark.parametrize("name", ["/no/such/folder", "a b", "./m", "x" * 5000, "a\0b", "model:tag"])
def test_the_hub_is_not_asked_for_what_can_be_no_model(
    hub: FakeHub, environ: dict[str, str], name: str
) -> None:
    folder, problem = found(environ, name)
    assert folder == ""
    assert "neither a folder nor a model" in problem
    assert len(problem) < 300
    assert hub.asked == []


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])
@pytest.mark.parametrize("value", ["1", "true", "YES"])
def test_offline(hub: FakeHub, environ: dict[str, str], variable: str, value: str) -> None:
    environ[variable] = value
    assert found(environ).problem == f"org/model is in no cache, and {variable} is set"
    assert hub.asked == []


def test_the_cache_comes_before_the_hub(hub: FakeHub, environ: dict[str, str], tmp_path: Path) -> None:
    for cache, given in ((tmp_path / "cache", ""), (tmp_path / "own", str(tmp_path / "own"))):
        folder = repository(cache, "org/model")
        for name in ("main", "abc"):
            (folder / "snapshots" / name).mkdir(parents=True)
            (folder / "snapshots" / name / "tokenizer.json").write_text("{}")
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text("abc")
        assert found(environ, cache=given) == (str(folder / "snapshots" / "abc"), "")
        environ["HF_HUB_OFFLINE"] = "1"
        assert found(environ, revision="abc", cache=given).folder == str(folder / "snapshots" / "abc")
        environ["HF_HUB_OFFLINE"] = ""
    assert hub.asked == []


# --- with one


def test_what_the_hub_has_is_kept_as_its_own_libraries_keep_it(
    hub: FakeHub, environ: dict[str, str], tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    assert found(environ) == (str(snapshot_of(cache)), "")
    kept = {
        str(path.relative_to(snapshot_of(cache))): path.read_bytes()
        for path in snapshot_of(cache).rglob("*.j*")
    }
    assert kept == {name: data for name, data in FILES.items() if name != "model.safetensors"}
    assert (repository(cache, "org/model") / "refs" / "main").read_text() == COMMIT
    assert sorted(path.name for path in repository(cache, "org/model").iterdir()) == ["refs", "snapshots"]
    asked = len(hub.asked)
    assert found(environ) == (str(snapshot_of(cache)), "")
    assert len(hub.asked) == asked


def test_huggingface_hub_finds_it(hub: FakeHub, environ: dict[str, str], tmp_path: Path) -> None:
    from huggingface_hub import try_to_load_from_cache

    found(environ)
    path = try_to_load_from_cache("org/model", "tokenizer.json", cache_dir=tmp_path / "cache")
    assert path == str(snapshot_of(tmp_path / "cache") / "tokenizer.json")


def test_another_revision_and_another_cache(hub: FakeHub, environ: dict[str, str], tmp_path: Path) -> None:
    own = tmp_path / "own"
    folder, _ = found(environ, revision="refs/pr/1", cache=own)
    assert folder == str(snapshot_of(own))
    assert hub.asked[0] == "/api/models/org/model/revision/refs/pr/1"
    assert (repository(own, "org/model") / "refs" / "refs" / "pr" / "1").read_text() == COMMIT
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("place", ["variable", "file"])
def test_a_token_is_sent_to_the_hub_and_to_nobody_else(
    hub: FakeHub, environ: dict[str, str], tmp_path: Path, place: str
) -> None:
    hub.token = "hf_secret"
    folder, problem = found(environ)
    assert folder == ""
    assert "401" in problem
    assert "without HF_TOKEN" in problem
    if place == "variable":
        environ["HF_TOKEN"] = "hf_secret\n"
    else:
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "token").write_text("hf_secret\n")
    with running(FakeHub("x", {"/blob": b"T" * 1000})) as store:
        store.files["/blob"] = FILES["tokenizer.json"]
        hub.large["tokenizer.json"] = f"{store.url}/blob"
        hub.large["config.json"] = f"{hub.url}/org/model/resolve/{COMMIT}/tokenizer_config.json"
        assert found(environ).problem == ""
        assert store.asked == ["/blob"]
        assert store.tokens == [None]
    assert set(hub.tokens[1:]) == {"Bearer hf_secret"}
    assert (snapshot_of(tmp_path / "cache") / "tokenizer.json").read_bytes() == FILES["tokenizer.json"]


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ({"status": 404}, "answers 404: there is no such model"),
        ({"status": 403}, "answers 403"),
        ({"status": 500}, "answers 500"),
        ({"files": {"model.safetensors": b""}}, "it has no tokenizer.json"),
        ({"cut": {"tokenizer.json"}}, "has ended the connection too early"),
        ({"told": [1]}, "something else than a hub"),
        ({"told": {"sha": "../../x", "siblings": []}}, "tells no commit"),
        (
            {
                "told": {"sha": COMMIT, "siblings": [{"rfilename": "tokenizer.json"}]},
                "large": {"tokenizer.json": "file:///etc/passwd"},
            },
            "",
        ),
    ],
)
def test_a_hub_that_does_not_have_it(
    hub: FakeHub, environ: dict[str, str], tmp_path: Path, setting: dict[str, Any], problem: str
) -> None:
    for name, value in setting.items():
        setattr(hub, name, value)
    folder, told = found(environ)
    assert folder == ""
    assert problem in told
    assert "\n" not in told
    assert not snapshot_of(tmp_path / "cache").exists()
    assert list((tmp_path / "cache").rglob(".llmdsim*")) == []


def test_nobody_listens(environ: dict[str, str]) -> None:
    assert "cannot be reached" in found(environ).problem


def test_a_black_hole_is_given_up_soon(environ: dict[str, str]) -> None:
    with black_hole() as url, patch.object(finding, "ANSWER", 0.5):
        environ["HF_ENDPOINT"] = url
        began = time.monotonic()
        assert found(environ).problem == "org/model: the hub does not answer within 0.5 seconds"
        assert time.monotonic() - began < 5


def test_so_is_one_that_takes_long_over_the_files(
    hub: FakeHub, environ: dict[str, str], tmp_path: Path
) -> None:
    hub.delay = 0.4
    with patch.object(finding, "ANSWER", 10.0), patch.object(finding, "ALL", 1.2):
        assert found(environ).problem == "org/model: its files are not there after 1.2 seconds"
    assert not snapshot_of(tmp_path / "cache").exists()


def test_a_cache_that_cannot_be_written_is_told(
    hub: FakeHub, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    folder, problem = found(environ, cache=tmp_path / "file")
    assert folder == ""
    assert str(tmp_path / "file") in problem
