"""What answers a pooling request, if anything does."""

from __future__ import annotations

from llmdsim.web.context import Context, Served
from llmdsim.web.errors import ApiError, shown


def admitted(context: Context, name: str | None) -> Served:
    """What has that name; none at all means the base model.

    Raises ApiError: 503 while the engine is paused or asleep; 404 for a name that is not served, which unlike
    that of other routes names no parameter (vLLM).
    """
    context.suspension.refuse()
    try:
        return context.serving(name)
    except ApiError:
        raise ApiError(404, f"The model `{shown(name)}` does not exist.") from None
