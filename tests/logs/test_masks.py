"""Secrets are not shown, and what is none is."""

from __future__ import annotations

import pytest

from llmdsim.config.shown import MASK
from llmdsim.logs.masks import address_shown, header_shown


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("Authorization", "Bearer sk-1", f"Bearer {MASK}"),
        ("authorization", "bearer sk-1, Bearer sk-2", f"bearer {MASK}"),
        ("Authorization", "sk-1", MASK),
        ("Authorization", "sk-1 sk-2", MASK),
        ("Proxy-Authorization", "Basic dTpw", f"Basic {MASK}"),
        ("X-Api-Key", "sk-1", MASK),
        ("api-key", "sk-1", MASK),
        ("Cookie", "a=sk-1; b=2", MASK),
        ("set-cookie", "a=sk-1", MASK),
        ("X-Session-Token", "sk-1", MASK),
        ("X-Client-Secret", "sk-1", MASK),
        ("X-Password", "sk-1", MASK),
        ("Referer", "https://u:sk-1@h/?token=sk-1&a=1", f"https://{MASK}@h/?token={MASK}&a=1"),
        ("Content-Type", "text/html; charset=utf-8", "text/html; charset=utf-8"),
        ("X-Request-Id", "a", "a"),
        ("Accept", "text/html;q=0.8,*/*;q=0.5", "text/html;q=0.8,*/*;q=0.5"),
    ],
)
def test_headers(name: str, value: str, shown: str) -> None:
    assert header_shown(name, value) == shown


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("/v1/models", "/v1/models"),
        ("/v1/models?a=1&b=2", "/v1/models?a=1&b=2"),
        ("/x?api_key=sk-1&b=2", f"/x?api_key={MASK}&b=2"),
        ("/x?b=2&access_token=sk-1", f"/x?b=2&access_token={MASK}"),
        ("/x?API-KEY=sk-1", f"/x?API-KEY={MASK}"),
        ("/x?%61pi_k%65y=sk-1", f"/x?%61pi_k%65y={MASK}"),
        ("/x?a=1;token=sk-1;b=2", f"/x?a=1;token={MASK}"),
        ("/x?token=a=sk-1", f"/x?token={MASK}"),
        ("/x?token=a?sk-1", f"/x?token={MASK}"),
        ("/x?a=token", "/x?a=token"),
        ("/x@y?a=1", "/x@y?a=1"),
        ("//u:sk-1@h/", f"//{MASK}@h/"),
    ],
)
def test_addresses(address: str, shown: str) -> None:
    assert address_shown(address) == shown
