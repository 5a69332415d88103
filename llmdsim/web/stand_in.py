"""What channels have in common that take the place of the one a request came over."""

from __future__ import annotations

from llmdsim.wire.request import Channel, Request


class StandIn:
    """What it has in common with `request.channel`; writing, and the end, are for its subclasses."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._channel: Channel = request.channel
        self.transport = request.channel.transport

    @property
    def write_paused(self) -> bool:
        """Nothing should be sent for now."""
        return self._channel.write_paused

    @property
    def peer(self) -> str:
        """Where the client is."""
        return self._channel.peer

    def refuse(self, request: Request, status: int, message: str) -> None:
        """Answer `request` with an error."""
        self._channel.refuse(request, status, message)
