"""What klog's flags take: severities by number or name, and verbosities by pattern."""

from typing import Final

SEVERITIES: Final = ("INFO", "WARNING", "ERROR", "FATAL")
"""In klog's order: a severity's place is its number."""


def severity(text: str) -> int:
    """The number of a severity, 0 to 3. Raises ValueError for what is none."""
    if text.upper() in SEVERITIES:
        return SEVERITIES.index(text.upper())
    number = int(text)
    if not 0 <= number < len(SEVERITIES):
        raise ValueError(text)
    return number


def patterns(text: str) -> tuple[tuple[str, int], ...]:
    """The pairs of `pattern=N,...`, in their order. Raises ValueError for what is none."""
    pairs = []
    for item in filter(None, text.split(",")):
        pattern, equals, number = item.partition("=")
        if not pattern.strip() or not equals or int(number) < 0:
            raise ValueError(item)
        pairs.append((pattern.strip(), int(number)))
    return tuple(pairs)
