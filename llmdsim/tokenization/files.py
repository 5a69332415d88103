"""Which files of a model make up its tokenizer."""

from __future__ import annotations

import re
from typing import Final

TOKENIZER: Final = "tokenizer.json"
SETTINGS: Final = "tokenizer_config.json"
SPECIAL_TOKENS: Final = "special_tokens_map.json"
MODEL: Final = "config.json"
GENERATION: Final = "generation_config.json"
TEMPLATE: Final = "chat_template.jinja"
#: What some multi-modal models have in place of that.
OLD_TEMPLATE: Final = "chat_template.json"
MORE_TEMPLATES: Final = "additional_chat_templates"

_WANTED: Final = frozenset((TOKENIZER, SETTINGS, SPECIAL_TOKENS, MODEL, TEMPLATE, OLD_TEMPLATE))
_MORE_TEMPLATES = re.compile(rf"{MORE_TEMPLATES}/[\w.-]+\.jinja", re.ASCII)


def is_wanted(name: str) -> bool:
    """Whether a file of a repository, by its path in it, belongs to the tokenizer."""
    return name in _WANTED or _MORE_TEMPLATES.fullmatch(name) is not None
