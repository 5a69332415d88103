"""What part of a prompt must be cached, lest its request end at once."""

from __future__ import annotations

import math
from typing import Final

from llmdsim.config import Config
from llmdsim.web.flags import is_set
from llmdsim.wire.request import Request

#: Ends any request with finish reason `cache_threshold`, if it is true.
FORCED: Final = b"x-cache-threshold-finish-reason"


def cache_threshold(config: Config, request: Request, asked: float | None) -> float | None:
    """The part, or None for no such condition.

    `asked` is the request's own, which wins over that of all; outside 0 to 1 it means nothing.
    """
    if not request.plain and is_set(request, FORCED):
        return math.inf
    if not config.enable_kvcache:
        return None
    if asked is not None and 0.0 <= asked <= 1.0:
        return asked or None
    return config.global_cache_hit_threshold or None
