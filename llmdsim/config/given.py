"""What one source of configuration gives, before the sources are merged."""


class Given:
    """Values by field, and the names of the vLLM flags that were given and mean nothing here."""

    __slots__ = ("ignored", "values")

    def __init__(self) -> None:
        self.values: dict[str, object] = {}
        self.ignored: list[str] = []
