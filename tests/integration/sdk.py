"""OpenAI's own client for a daemon of the tests."""

from __future__ import annotations

from openai import OpenAI

from tests.integration.daemon import Daemon


def sdk_for(daemon: Daemon, retries: int = 0) -> OpenAI:
    return OpenAI(base_url=f"{daemon.base_url}/v1", api_key="none", max_retries=retries, timeout=15)
