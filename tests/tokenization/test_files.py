"""The files that a tokenizer is made of."""

from __future__ import annotations

from llmdsim.tokenization.files import is_wanted


def test_the_files_that_are_wanted() -> None:
    wanted = [
        "tokenizer.json",
        "config.json",
        "chat_template.jinja",
        "additional_chat_templates/tool_use.jinja",
    ]
    assert all(map(is_wanted, wanted))
    others = [
        "model.safetensors",
        "additional_chat_templates/../x.jinja",
        "../tokenizer.json",
        "a/tokenizer.json",
    ]
    assert not any(map(is_wanted, others))
