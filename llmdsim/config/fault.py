"""One fault as people write it, in an option or a header: `stall; after=3; for=2s`."""

from dataclasses import dataclass
from typing import Final

from llmdsim.config.fault_text import duration, integer, split_fault

_PARAMETERS: Final = {
    "reset": ("after",),
    "stall": ("after", "for"),
    "truncate": ("after",),
    "garble": ("after",),
    "error": ("after", "code", "retry-after"),
    "no-done": (),
    "slow-headers": ("for",),
    "slow-body": ("after", "for"),
    "status": ("code", "retry-after"),
    "hang": ("for",),
}
KINDS: Final = tuple(_PARAMETERS)
"""All kinds of faults; docs/failures.md says what each does."""

_COMMON = ("times", "key")
_WITHIN_THE_BODY = ("truncate", "garble", "slow-body")
_SECONDS: Final = {"stall": 10.0, "slow-headers": 2.0, "slow-body": 2.0, "hang": 600.0}
_INTEGERS: Final = {
    "after": (0, 1_000_000_000),
    "code": (400, 599),
    "retry-after": (0, 86_400),
    "times": (1, 1_000_000),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A response that goes wrong in the way of its `kind`, one of KINDS.

    `after` is how many tokens pass before; None is before the first byte of the response. `seconds` is how
    long it takes, `code` an HTTP status, `retry_after` the header of that name in seconds. With `times`, only
    so many requests of the same `key` meet it, and later ones are served.
    """

    kind: str
    after: int | None
    seconds: float
    code: int
    retry_after: int | None
    times: int | None
    key: str


def parse_fault(text: str) -> Fault:
    """The fault that `text` describes. Raises ValueError with a sentence that says what is wrong."""
    kind, given = split_fault(text, _PARAMETERS, _COMMON)
    numbers = {
        name: integer(name, given[name], *bounds) for name, bounds in _INTEGERS.items() if name in given
    }
    return Fault(
        kind=kind,
        after=numbers.get("after", 0 if kind in _WITHIN_THE_BODY else None),
        seconds=duration(given["for"]) if "for" in given else _SECONDS.get(kind, 0.0),
        code=numbers.get("code", 503 if kind == "status" else 500),
        retry_after=numbers.get("retry-after"),
        times=numbers.get("times"),
        key=given.get("key", text),
    )
