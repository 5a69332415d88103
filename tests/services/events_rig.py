"""A rank whose events go to sockets in memory."""

from __future__ import annotations

import json
import re
from typing import Any

from llmdsim.config import parse, rank_config
from llmdsim.engine.kvcache.records import Cleared, Removed
from llmdsim.services.kv_events import KvEvents
from llmdsim.services.listeners import Listeners
from tests.kvevents.transport import MemoryTransport, numbers
from tests.web.admin.operator import call
from tests.web.rig import RankRig

POD = {"POD_IP": "10.0.0.1"}
ON = ("--enable-kvcache",)


class EventsRig(RankRig):
    def __init__(
        self,
        *flags: str,
        environ: dict[str, str] | None = None,
        rank: int | None = None,
        taken: tuple[str, ...] = (),
        foreground: bool = True,
        document: dict[str, Any] | None = None,
    ) -> None:
        given = ["--kv-events-config", json.dumps(document)] if document else []
        config = parse(["--model", "m", *flags, *given], POD if environ is None else environ)
        super().__init__(config=config if rank is None else rank_config(config, rank))
        self.transport = MemoryTransport(taken)
        self.made = 0
        self.listeners = Listeners(self.rank.config, self.rank.sites, (), None, True)
        self.service = KvEvents(
            self.rank, self.listeners, self.clock, None, foreground, lambda _: self._transport()
        )

    def _transport(self) -> MemoryTransport:
        self.made += 1
        return self.transport

    def start(self) -> EventsRig:
        self.service.startService()
        return self

    def tell(self, *hashes: int) -> None:
        """As the engine does at the end of a pass."""
        assert self.rank.driver.on_records is not None
        self.rank.driver.on_records([Removed(each) for each in hashes] or [Cleared()])

    @property
    def topics(self) -> set[bytes]:
        return {message[0] for message in self.transport.publishing.sent}

    @property
    def sent(self) -> list[int]:
        return numbers(self.transport.publishing.sent)

    def admin(self, **changes: object) -> None:
        body = {name.replace("_", "-"): value for name, value in changes.items()}
        assert call(self, "POST", "/admin/config", body).status == 200

    def metric(self, name: str, labels: str = 'engine="0"') -> float:
        page = call(self, "GET", "/metrics").body.decode()
        (value,) = re.findall(rf"^{name}{{{labels}}} (\S+)$", page, re.MULTILINE)
        return float(value)
