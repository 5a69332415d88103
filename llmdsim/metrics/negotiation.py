"""Which format of the exposition an Accept header prefers."""

from __future__ import annotations

#: The media ranges that match a format, and how specifically.
_TEXT = {b"text/plain": 3, b"text/*": 2, b"*/*": 1}
_OPENMETRICS = {b"application/openmetrics-text": 3, b"application/*": 2, b"*/*": 1}

#: Longer headers, in bytes, are not read: scrapers send a quarter of it.
_LONGEST = 1024


def prefers_openmetrics(accept: bytes) -> bool:
    """Whether OpenMetrics 1.0 is wanted more than the text format 0.0.4, which is served in every other case.

    Of the ranges that match a format the most specific decides its quality (RFC 9110, 12.5.1). At equal
    qualities the format matched more specifically is preferred. A range of another version does not match,
    and a quality that cannot be read is 0.
    """
    if len(accept) > _LONGEST:
        return False
    text = openmetrics = (0, 0.0)
    for given in accept.lower().split(b","):
        media, *parameters = [part.strip() for part in given.split(b";")]
        values = dict(_parameter(part) for part in parameters)
        version = values.get(b"version")
        quality = _quality(values.get(b"q", b"1"))
        if media in _TEXT and version in (None, b"0.0.4"):
            text = max(text, (_TEXT[media], quality))
        if media in _OPENMETRICS and version in (None, b"1.0.0"):
            openmetrics = max(openmetrics, (_OPENMETRICS[media], quality))
    return openmetrics[1] > 0 and openmetrics[::-1] > text[::-1]


def _parameter(part: bytes) -> tuple[bytes, bytes]:
    name, _, value = part.partition(b"=")
    return name.strip(), value.strip().strip(b'"')


def _quality(text: bytes) -> float:
    try:
        quality = float(text)
    except ValueError:
        return 0.0
    return quality if 0.0 <= quality <= 1.0 else 0.0
