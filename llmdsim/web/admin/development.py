"""What is there for development alone."""

from __future__ import annotations

from llmdsim.config import Config
from llmdsim.web.errors import ApiError


def require_development(config: Config, what: str) -> None:
    """Raise ApiError 403 outside development mode; `what` is that which takes it."""
    if not config.vllm_server_dev_mode:
        raise ApiError(403, f"{what} takes development mode: VLLM_SERVER_DEV_MODE=1.")
