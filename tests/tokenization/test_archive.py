"""The archive of a tokenizer's files."""

from __future__ import annotations

import os
import time
from io import BytesIO
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

import pytest

from llmdsim.tokenization.archive import archive


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("tokenizer.json", "config.json", "b.jinja", "a.jinja", "tokenizer.model", "merges.txt"):
        (tmp_path / name).write_text(name * 1000)
    for name in ("model.safetensors", "README.md", "secret.txt"):
        (tmp_path / name).write_text("not of the tokenizer")
    (tmp_path / "folder.model").mkdir()
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tools.jinja").write_text("x")
    return tmp_path


def test_what_belongs_to_the_tokenizer_is_in_it_once(folder: Path) -> None:
    with ZipFile(BytesIO(archive(str(folder)))) as files:
        assert files.testzip() is None
        assert files.namelist() == [
            *("tokenizer.json", "config.json", "merges.txt", "tokenizer.model", "a.jinja", "b.jinja"),
        ]
        assert {entry.compress_type for entry in files.filelist} == {ZIP_DEFLATED}
        for name in files.namelist():
            assert files.read(name) == (folder / name).read_bytes()


def test_the_same_files_make_the_same_bytes(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    first = archive(str(folder))
    for path in folder.iterdir():
        os.utime(path, (time.time() - 10**6,) * 2)
        path.chmod(0o700)
    assert archive(str(folder)) == first
    other = tmp_path_factory.mktemp("other")
    for path in sorted(folder.iterdir(), reverse=True):
        if path.is_file():
            (other / path.name).write_bytes(path.read_bytes())
    assert archive(str(other)) == first
    (other / "config.json").write_text("{}")
    assert archive(str(other)) != first


def test_files_of_the_hubs_cache_are_links(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    links = tmp_path_factory.mktemp("snapshot")
    for path in folder.iterdir():
        if path.is_file():
            (links / path.name).symlink_to(path)
    assert archive(str(links)) == archive(str(folder))


def test_none_of_them_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("x")
    with pytest.raises(FileNotFoundError):
        archive(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        archive(str(tmp_path / "nowhere"))
