"""Settings of all tests."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings
from werkzeug.routing import Rule

from tests.tokenization.qwen3 import qwen3

__all__ = ["qwen3"]

# No test asks the Hugging Face hub for a tokenizer, or finds one that a developer has; daemons inherit this.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_CACHE"] = os.devnull

# A busy machine is no reason to fail.

settings.register_profile("llmdsim", deadline=None)
settings.load_profile("llmdsim")


def _builds_nothing(rule: Rule, append_unknown: bool = True) -> Any:
    return lambda self, **values: None


# Half of what it takes to make a rank is to compile how URLs are built from its routes, which nobody does;
# thousands of tests make one.
if hasattr(Rule, "_compile_builder"):
    Rule._compile_builder = _builds_nothing  # type: ignore[method-assign]
