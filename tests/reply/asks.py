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
    mm_encoder_only: bool = False
    tool_call_extra_call_probability: int = 45
    max_tool_call_integer_param: int = 100
    min_tool_call_integer_param: int = 0
    max_tool_call_number_param: float = 100.0
    min_tool_call_number_param: float = 0.0
    max_tool_call_array_param_length: int = 5
    min_tool_call_array_param_length: int = 1
    tool_call_not_required_param_probability: int = 50
    object_tool_call_not_required_field_probability: int = 50


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
