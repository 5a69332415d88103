"""The tokenizer a server starts with, and what is said where it is not the model's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llmdsim.config import parse
from llmdsim.services.tokenizer import find_tokenizer, load_tokenizer
from llmdsim.tokenization import BuiltinTokenizer
from llmdsim.tokenization.pretrained import PretrainedTokenizer
from tests.tokenization.trained import byte_level, trained, write

OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": "/nowhere"}


def found(*flags: str) -> tuple[Any, str, str]:
    """The tokenizer, its folder, and the warning."""
    loaded, folder, warning = find_tokenizer(parse(["--model", "org/model", *flags], {}), OFFLINE)
    return loaded.tokenizer, folder, warning


def test_the_tokenizer_in_a_folder_and_no_word_about_it(tmp_path: Path) -> None:
    write(tmp_path, byte_level())
    for flags in (["--tokenizer", str(tmp_path)], ["--model", str(tmp_path)]):
        tokenizer, folder, warning = found(*flags)
        assert isinstance(tokenizer, PretrainedTokenizer)
        assert (folder, warning) == (str(tmp_path), "")
        again = load_tokenizer(folder).tokenizer
        assert (
            again.encode("The ferry")
            == tokenizer.encode("The ferry")
            == trained("byte level").encode("The ferry")
        )


@pytest.mark.parametrize("flag", ["--force-dummy-tokenizer", "--skip-tokenizer-init"])
def test_the_builtin_one_is_silent_where_it_is_wanted(tmp_path: Path, flag: str) -> None:
    write(tmp_path, byte_level())
    tokenizer, folder, warning = found("--tokenizer", str(tmp_path), flag)
    assert isinstance(tokenizer, BuiltinTokenizer)
    assert (folder, warning) == ("", "")
    assert isinstance(load_tokenizer(folder).tokenizer, BuiltinTokenizer)


def test_one_warning_says_why_it_is_used_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    for flags, why in (([], "HF_HUB_OFFLINE"), (["--tokenizer", str(tmp_path)], str(tmp_path))):
        tokenizer, folder, warning = found(*flags)
        assert isinstance(tokenizer, BuiltinTokenizer)
        assert folder == ""
        assert why in warning
        assert "--tokenizer" in warning
        assert "--force-dummy-tokenizer" in warning
        assert "\n" not in warning
