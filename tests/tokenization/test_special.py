"""What is shown of special and of added tokens."""

from __future__ import annotations

import pytest

from llmdsim.tokenization import BuiltinTokenizer, Layout
from llmdsim.tokenization.pretrained import PretrainedTokenizer
from llmdsim.tokenization.special import shown
from tests.tokenization.trained import byte_level, trained, word_piece

SAID = Layout.of([" [CLS]", " [SEP]", " the", " [SEP]"], [1, 2, 50, 2])


@pytest.mark.parametrize(
    ("skip", "spaces", "texts"),
    [
        (True, True, ["", "", " the", ""]),
        (True, False, ["", "", " the", ""]),
        (False, True, [" [CLS]", " [SEP]", " the", " [SEP]"]),
        (False, False, [" [CLS]", "[SEP]", " the", " [SEP]"]),
    ],
)
def test_special_tokens(skip: bool, spaces: bool, texts: list[str]) -> None:
    found = shown(SAID, trained("word piece"), skip, spaces)
    assert found.texts == texts
    assert found.ids == SAID.ids


def test_added_tokens_that_are_not_special_are_shown() -> None:
    library = word_piece()
    library.add_tokens(["<think>"])
    tokenizer = PretrainedTokenizer(library)
    think = library.token_to_id("<think>")
    said = Layout.of([" <think>", " <think>"], [think, think])
    assert shown(said, tokenizer, True, True) is said
    assert shown(said, tokenizer, False, False).texts == [" <think>", "<think>"]


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("spaces", [False, True])
def test_what_has_none_is_as_it_was(skip: bool, spaces: bool) -> None:
    for tokenizer in (BuiltinTokenizer(), PretrainedTokenizer(byte_level())):
        ids, texts = tokenizer.split("The ferry")
        said = Layout.of(texts, ids)
        assert shown(said, tokenizer, skip, spaces) is said
