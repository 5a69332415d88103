"""How requests that the engine has no room for are refused."""

from __future__ import annotations

from llmdsim.engine.admission import Overloaded, QueueFull
from llmdsim.web.errors import ApiError

#: What a client that was refused for want of room is told to wait, in seconds.
RETRY_AFTER = b"1"

_MESSAGES = {
    "max_num_queued_reqs": "The engine has as many requests as it may take: --max-num-queued-reqs.",
    "max_num_queued_tokens": "The prompts that wait to be prefilled are as many tokens as may: "
    "--max-num-queued-tokens.",
}


def refusal(reason: QueueFull | Overloaded) -> ApiError:
    """429 with `Retry-After` for a full queue (llm-d-inference-sim); 503 for a limit (vLLM)."""
    if isinstance(reason, QueueFull):
        return ApiError(
            429,
            "The waiting requests queue is full; try again later.",
            headers=((b"retry-after", RETRY_AFTER),),
        )
    # The server is well, and so is the connection.
    return ApiError(
        503,
        f"{_MESSAGES[reason.limit]} Try again later, or another server.",
        type="Service Unavailable",
        closes=False,
    )
