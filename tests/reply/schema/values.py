"""Settings and values for these tests."""

import json
from dataclasses import dataclass
from random import Random
from typing import Any

from llmdsim.reply.schema import Generated, Schema


@dataclass(frozen=True)
class Settings:
    min_tool_call_integer_param: int = 0
    max_tool_call_integer_param: int = 100
    min_tool_call_number_param: float = 0.0
    max_tool_call_number_param: float = 100.0
    min_tool_call_array_param_length: int = 1
    max_tool_call_array_param_length: int = 5
    tool_call_not_required_param_probability: int = 50
    object_tool_call_not_required_field_probability: int = 50


def generated(schema: Any, seed: int = 1, **settings: Any) -> Generated:
    return Schema(schema).generate(Random(seed), Settings(**settings))


def values(schema: Any, how_many: int = 100, **settings: Any) -> list[Any]:
    """The values of as many seeds; all of them conform."""
    found = [generated(schema, seed, **settings) for seed in range(how_many)]
    assert all(each.conforming for each in found)
    return [json.loads(each.text) for each in found]
