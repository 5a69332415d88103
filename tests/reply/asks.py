"""Settings and asks for these tests."""

from dataclasses import dataclass
from typing import Any

from llmdsim.reply.ask import Ask
from llmdsim.reply.author import Author
from llmdsim.tokenization import BuiltinTokenizer, Prompt

TOKENIZER = BuiltinTokenizer()


@dataclass(frozen=True)
class Settings:
    mode: str = "random"
    seed: int | None = 1
    length_histogram: str = "readme"
    echo_ignores_max_tokens: bool = False


def author(**settings: Any) -> Author:
    return Author(Settings(**settings), TOKENIZER)


def ask(
    text: str = "a prompt", max_tokens: int = 100, requested_max: int | None = None, **others: Any
) -> Ask:
    """An ask with a text prompt, which is also what it wants echoed unless `others` say otherwise."""
    others.setdefault("prompt", Prompt(TOKENIZER, text))
    others.setdefault("echoed", others["prompt"])
    return Ask(max_tokens=max_tokens, requested_max=requested_max, **others)


def requested(most: int, **others: Any) -> Ask:
    """An ask whose client named its maximum."""
    return ask(max_tokens=most, requested_max=most, **others)
