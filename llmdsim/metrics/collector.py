"""The page of `/metrics`: all blocks in a row, in the format the client prefers."""

from __future__ import annotations

from collections.abc import Sequence

from llmdsim.metrics import exposition
from llmdsim.metrics.block import Block
from llmdsim.metrics.negotiation import prefers_openmetrics


class Collector:
    """Renders `blocks` in their order."""

    __slots__ = ("_blocks",)

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = blocks

    def page(self, accept: bytes | None = None) -> tuple[bytes, bytes]:
        """The whole page and its content type, for a client that sent this Accept header."""
        if accept is not None and prefers_openmetrics(accept):
            return self.openmetrics(), exposition.OPENMETRICS
        return self.text(), exposition.TEXT

    def text(self) -> bytes:
        """The page in the text format 0.0.4."""
        return b"".join([block.text() for block in self._blocks])

    def openmetrics(self) -> bytes:
        """The page in OpenMetrics 1.0."""
        return b"".join([*[block.openmetrics() for block in self._blocks], b"# EOF\n"])
