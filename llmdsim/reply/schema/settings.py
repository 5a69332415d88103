"""The options that decide about values where their schema does not."""

from __future__ import annotations

from typing import Protocol


class ValueSettings(Protocol):
    """The part of `Config` that decides. Probabilities are percentages of what is not required.

    A bound that the schema has wins over the option: `minimum`, `maximum`, `minItems` and the like.
    """

    @property
    def min_tool_call_integer_param(self) -> int: ...
    @property
    def max_tool_call_integer_param(self) -> int: ...
    @property
    def min_tool_call_number_param(self) -> float: ...
    @property
    def max_tool_call_number_param(self) -> float: ...
    @property
    def min_tool_call_array_param_length(self) -> int: ...
    @property
    def max_tool_call_array_param_length(self) -> int: ...
    @property
    def tool_call_not_required_param_probability(self) -> int: ...  # of the outermost object's members
    @property
    def object_tool_call_not_required_field_probability(self) -> int: ...  # of all others'
