"""Names of models and files, and where the Hugging Face libraries keep them."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmdsim.tokenization.hub_cache import cached, hub_cache, hub_home, is_hub_id, repository


@pytest.mark.parametrize(
    "name", ["gpt2", "Qwen/Qwen3-0.6B", "a/b", "meta-llama/Llama-3.1-8B-Instruct", "m", "x_y/z.1", "-a/b"]
)
def test_names_of_models(name: str) -> None:
    assert is_hub_id(name)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            "a/b/c",
            "/models/x",
            "./x",
            "../x",
            "a b",
            "a//b",
            "a/",
            "/a",
            "a--b",
            "a..b",
            "x.git",
            "a/b.",
            "b-",
        ),
        *(
            "mé",
            "m?x",
            "a/b#c",
            "http://x/y",
            "s3://bucket/x",
            "a\\b",
            "a\n",
            "x" * 97,
            ".a",
            "a/.b",
            "\ud800",
        ),
    ],
)
def test_what_can_be_no_name_of_a_model(name: str) -> None:
    assert not is_hub_id(name)


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"HF_HUB_CACHE": "/c", "HF_HOME": "/h"}, "/c"),
        ({"HUGGINGFACE_HUB_CACHE": "/old", "HF_HOME": "/h"}, "/old"),
        ({"HF_HOME": "/h", "XDG_CACHE_HOME": "/x"}, "/h/hub"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/huggingface/hub"),
        ({"HF_HUB_CACHE": ""}, str(Path.home() / ".cache/huggingface/hub")),
        ({}, str(Path.home() / ".cache/huggingface/hub")),
    ],
)
def test_the_cache(environ: dict[str, str], place: str) -> None:
    assert str(hub_cache(environ)) == place


def test_the_home_may_be_that_of_the_user() -> None:
    assert hub_home({"HF_HOME": "~/x"}) == Path.home() / "x"


def test_a_snapshot_is_found_by_branch_and_by_commit(tmp_path: Path) -> None:
    folder = repository(tmp_path, "Qwen/Qwen3-0.6B")
    assert folder.name == "models--Qwen--Qwen3-0.6B"
    snapshot = folder / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("abc")
    assert cached(folder, "main") is None
    (snapshot / "tokenizer.json").write_text("{}")
    assert cached(folder, "main") == cached(folder, "abc") == snapshot
    assert cached(folder, "dev") is None
    assert cached(folder, "x\0") is None
