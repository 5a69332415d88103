"""What a model's files say of it, however little or odd that is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llmdsim.tokenization.model_facts import ModelFacts, model_facts

NOTHING = ModelFacts()


def of(folder: Path, model: Any = None, generation: Any = None) -> ModelFacts:
    for name, document in (("config.json", model), ("generation_config.json", generation)):
        if document is not None:
            (folder / name).write_text(document if isinstance(document, str) else json.dumps(document))
    return model_facts(str(folder))


def test_all_of_it(tmp_path: Path) -> None:
    model = {
        "model_type": "qwen3",
        "architectures": ["Qwen3ForCausalLM"],
        "eos_token_id": 151645,
        "bos_token_id": 151643,
        "pad_token_id": 5,
    }
    generation = {"top_k": 20, "temperature": 0.6, "eos_token_id": [1, 2], "max_new_tokens": 9, "min_p": None}
    facts = of(tmp_path, model, generation)
    defaults = {"temperature": 0.6, "top_k": 20}
    assert facts == ModelFacts("qwen3", ("Qwen3ForCausalLM",), (151645,), 151643, 5, defaults)
    assert list(facts.sampling_defaults) == ["temperature", "top_k"]


def test_no_files_say_nothing(tmp_path: Path) -> None:
    assert of(tmp_path) == model_facts(str(tmp_path / "nowhere")) == NOTHING


def test_several_ends(tmp_path: Path) -> None:
    assert of(tmp_path, {"eos_token_id": [128001, 128008]}).eos_token_ids == (128001, 128008)


def test_ids_among_what_is_said_of_the_text(tmp_path: Path) -> None:
    facts = of(tmp_path, {"bos_token_id": 1, "text_config": {"eos_token_id": 7, "bos_token_id": 2}})
    assert (facts.eos_token_ids, facts.bos_token_id) == ((7,), 1)


@pytest.mark.parametrize(
    "model",
    [
        "",
        "{",
        "[1]",
        "[" * 100_000,
        '"text"',
        {"model_type": 7, "architectures": "X", "eos_token_id": "2"},
        {"architectures": [1, None, ""], "eos_token_id": [True, -1, 2.5, 2**31, None], "bos_token_id": -1},
        {"text_config": [1], "pad_token_id": 2**40},
    ],
)
def test_what_makes_no_sense_says_nothing(tmp_path: Path, model: Any) -> None:
    assert of(tmp_path, model) == NOTHING


@pytest.mark.parametrize("value", ["0.5", True, None, [1], 10**400, "NaN", 1e300])
def test_odd_defaults_are_none(tmp_path: Path, value: Any) -> None:
    assert of(tmp_path, None, {"temperature": value}) == NOTHING
    assert of(tmp_path, None, '{"temperature": NaN, "top_p": Infinity}') == NOTHING


def test_half_a_character_is_none(tmp_path: Path) -> None:
    assert of(tmp_path, r'{"model_type": "x\ud83d"}').model_type == "x?"
