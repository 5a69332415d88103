"""Secrets in headers and addresses, which no log shows."""

from __future__ import annotations

import re
from urllib.parse import unquote

from llmdsim.config.shown import MASK

_SECRET = re.compile("token|secret|passw|key|auth|credential|signature|cookie", re.IGNORECASE)
_SCHEME = re.compile(r"(?:Basic|Bearer|Digest|Negotiate|ApiKey|Token)(?= )", re.IGNORECASE)
_USER = re.compile(r"//[^/@\s]*@")
_NAME = re.compile(r"([^=;?]*)=")


def is_secret(name: str) -> bool:
    """Whether what goes by this name is a secret, most likely."""
    return _SECRET.search(name) is not None


def header_shown(name: str, value: str) -> str:
    """A header's value: of a secret one nothing but its scheme, of others all but secrets in addresses."""
    if not is_secret(name):
        return address_shown(value)
    scheme = _SCHEME.match(value)
    return f"{scheme[0]} {MASK}" if scheme else MASK


def address_shown(address: str) -> str:
    """An address without the values of query parameters with secret names, and without its user."""
    if "@" in address:
        address = _USER.sub(f"//{MASK}@", address)
    if "=" not in address:
        return address
    return "&".join(map(_parameter_shown, address.split("&")))


def _parameter_shown(part: str) -> str:
    # Some take `;` for another `&`: whatever comes after a secret's name goes with it.
    for found in _NAME.finditer(part):
        if is_secret(unquote(found[1])):
            return part[: found.end()] + MASK
    return part
