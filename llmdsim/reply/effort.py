"""How far the making of a value goes: what may be spent on it, and the ways in which it ends without one."""


class DeadEndError(Exception):
    """No value fits what was wanted, or what was chosen so far."""


class TooHardError(Exception):
    """Whether a value fits cannot be said, or the effort is spent."""


class Effort:
    """`left` counts down in steps of about half a microsecond."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def spend(self, steps: int) -> None:
        """Raises TooHardError once nothing is left."""
        self.left -= steps
        if self.left < 0:
            raise TooHardError
