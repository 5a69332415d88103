"""Which headers of a request have a say in its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from llmdsim.web.cache_threshold import FORCED
from llmdsim.web.failures import FAULT, RETURN_ERROR
from llmdsim.web.orca import LOAD_FORMAT
from llmdsim.web.reply_head import REQUEST_ID

#: What is not looked for in a request that is known to be plain. Content-Type is the other such header.
UNUSUAL: Final = frozenset((FORCED, FAULT, RETURN_ERROR, LOAD_FORMAT, REQUEST_ID))


def are_plain(headers: Mapping[bytes, bytes]) -> bool:
    """Whether there is nothing unusual among them, and the body is JSON as far as they tell."""
    return headers.get(b"content-type", b"application/json") == b"application/json" and UNUSUAL.isdisjoint(
        headers
    )
