"""The fixture of Qwen3's files itself."""

from __future__ import annotations

import json
from pathlib import Path


def test_the_files_are_a_tokenizer_and_its_settings(qwen3: Path) -> None:
    settings = json.loads((qwen3 / "tokenizer_config.json").read_text())
    assert settings["tokenizer_class"] == "Qwen2Tokenizer"
    assert "{%- for message in messages %}" in settings["chat_template"]
    assert json.loads((qwen3 / "tokenizer.json").read_text())["model"]["type"] == "BPE"
