"""What an answer is to be made of, where that is not just text."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Function(msgspec.Struct, frozen=True):
    """A function that may be called; `parameters` is the JSON schema of its arguments, whatever it holds."""

    name: str
    parameters: Any = None


class Constraint(msgspec.Struct, frozen=True):
    """What the text must be: `value` is a JSON schema, a regular expression, or a tuple of possible texts.

    Of kind `json_object`, any JSON object; a `grammar` is not followed.
    """

    kind: Literal["json", "json_object", "regex", "choice", "grammar"]
    value: Any = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """`calls` says how many of `functions` to call: none or more, at least one, or the only one just once.

    Reasoning that is hidden is made, and takes its tokens, all the same; `reasoning_budget` is the most of
    them, None or negative for no limit.
    """

    reasoning: Literal["none", "shown", "hidden"] = "none"
    reasoning_budget: int | None = None
    functions: tuple[Function, ...] = ()
    calls: Literal["none", "auto", "required", "named"] = "none"
    #: Whether there may be more than one call.
    parallel: bool = True
    constraint: Constraint | None = None
    #: Whether an image follows; it is no part, and takes no tokens.
    image: bool = False

    @property
    def parted(self) -> bool:
        """Whether there may be other parts than text."""
        return self.calls != "none" or self.reasoning != "none" or self.image
