"""Folders with a tokenizer: what is read of them, and what cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, models

from llmdsim.tokenization import BuiltinTokenizer
from llmdsim.tokenization.loading import LoadError, load, load_builtin
from tests.tokenization.trained import byte_level, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "model", byte_level())


def save(path: Path, document: Any) -> None:
    path.write_text(json.dumps(document))


def test_a_folder_with_just_the_tokenizer(folder: Path) -> None:
    (folder / "tokenizer_config.json").unlink()
    tokenizer, templates, special = load(str(folder))
    assert tokenizer.encode("The ferry") == byte_level().encode("The ferry", add_special_tokens=False).ids
    assert (templates, special, tokenizer.settings) == ({}, {}, {})


def test_the_texts_of_special_tokens(folder: Path) -> None:
    save(folder / "special_tokens_map.json", {"bos_token": "<old>", "pad_token": {"content": "<pad>"}})
    settings = {
        "bos_token": {"content": "<s>", "lstrip": False},
        "eos_token": "</s>",
        "unk_token": None,
        "add_bos_token": True,
        "additional_special_tokens": ["<x>"],
    }
    save(folder / "tokenizer_config.json", settings)
    tokenizer, _, special = load(str(folder))
    assert special == {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    assert tokenizer.settings == settings


@pytest.mark.parametrize(
    ("given", "templates"),
    [
        ("T", {"default": "T"}),
        (
            [{"name": "default", "template": "T"}, {"name": "tool_use", "template": "U"}],
            {"default": "T", "tool_use": "U"},
        ),
        ([{"name": "x"}, 5, {"template": "y"}], {}),
        (None, {}),
        (7, {}),
    ],
)
def test_chat_templates_of_the_settings(folder: Path, given: object, templates: dict[str, str]) -> None:
    save(folder / "tokenizer_config.json", {"chat_template": given})
    assert load(str(folder)).templates == templates


def test_chat_templates_in_files(folder: Path) -> None:
    save(folder / "chat_template.json", {"chat_template": "old"})
    assert load(str(folder)).templates == {"default": "old"}
    save(folder / "tokenizer_config.json", {"chat_template": "T"})
    assert load(str(folder)).templates == {"default": "T"}
    (folder / "chat_template.jinja").write_text("J é")
    more = folder / "additional_chat_templates"
    more.mkdir()
    (more / "rag.jinja").write_text("R")
    (more / "notes.txt").write_text("N")
    assert load(str(folder)).templates == {"default": "J é", "rag": "R"}


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ({"vocab_size": 5000}, 5000),
        ({"text_config": {"vocab_size": 5000}}, 5000),
        ({"vocab_size": 3}, 700),
        ({"vocab_size": "many"}, 700),
        ({"vocab_size": 2**40}, 700),
        ({"text_config": 5}, 700),
        ([1], 700),
    ],
)
def test_the_size_of_the_vocabulary_is_the_models(folder: Path, model: object, size: int) -> None:
    save(folder / "config.json", model)
    assert load(str(folder)).tokenizer.vocab_size == size


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("tokenizer.json", b"{"),
        ("tokenizer.json", b"[]"),
        ("tokenizer.json", b"\xff"),
        ("tokenizer_config.json", b"{"),
        ("config.json", b"\xff\xfe"),
        ("chat_template.jinja", b"\xff"),
    ],
)
def test_a_file_that_is_no_good_is_one_line(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(LoadError, match=r"\S") as problem:
        load(str(folder))
    assert str(folder) in str(problem.value)
    assert "\n" not in str(problem.value)


def test_a_tokenizer_without_tokens_for_ordinary_text_is_none(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", Tokenizer(models.BPE()))
    with pytest.raises(LoadError, match="plain English"):
        load(str(folder))


def test_one_that_the_library_breaks_down_over_is_none(folder: Path) -> None:
    document = json.loads((folder / "tokenizer.json").read_bytes())
    template = {
        "single": [{"SpecialToken": {"id": "<none>", "type_id": 0}}],
        "pair": [],
        "special_tokens": {},
    }
    document["post_processor"] = {"type": "TemplateProcessing", **template}
    (folder / "tokenizer.json").write_text(json.dumps(document))
    with pytest.raises(LoadError, match="no entry found"):
        load(str(folder))


def test_one_that_refuses_what_it_does_not_know_is_none(tmp_path: Path) -> None:
    words = {"The": 0, "!": 1}
    folder = write(tmp_path / "model", Tokenizer(models.WordLevel(words, unk_token="<none>")))
    with pytest.raises(LoadError):
        load(str(folder))


def test_the_builtin_one_has_no_templates() -> None:
    tokenizer, templates, special = load_builtin()
    assert isinstance(tokenizer, BuiltinTokenizer)
    assert (templates, special) == ({}, {})


def test_qwen3(qwen3: Path) -> None:
    tokenizer, templates, special = load(str(qwen3))
    assert list(templates) == ["default"]
    assert special == {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    assert tokenizer.settings["model_max_length"] == 131072
