"""Words for strings, by the name of the member they are for."""

from __future__ import annotations

import re
from random import Random

FIRST_NAMES = ("Alice", "Bruno", "Chiara", "David", "Elena", "Felix", "Grace", "Hugo", "Ines", "Jonas")
# fmt: off
WORDS = (
    "amber", "apple", "arrow", "basin", "beacon", "bridge", "canyon", "cedar", "cloud", "copper", "coral",
    "delta", "ember", "falcon", "forest", "garden", "glacier", "harbor", "hazel", "island", "jasmine",
    "lantern", "lemon", "maple", "meadow", "mirror", "ocean", "orchard", "pebble", "pepper", "prairie",
    "quartz", "river", "saffron", "shadow", "silver", "summit", "timber", "valley", "velvet", "walnut",
    "willow", "window", "winter",
)
# fmt: on

_CITIES = (
    "Amsterdam",
    "Berlin",
    "Boston",
    "Chicago",
    "Dublin",
    "Lisbon",
    "London",
    "Madrid",
    "Osaka",
    "Paris",
)
_FULL_NAMES = ("Alice Moreau", "Bruno Costa", "Chiara Conti", "David Okafor", "Elena Petrova", "Grace Lin")
_QUERIES = (
    "best hiking trails near the lake",
    "opening hours of the museum",
    "how to store fresh basil",
    "latest news about solar power",
)
_SENTENCES = (
    "Please send the report by Friday.",
    "The delivery arrives tomorrow morning.",
    "A short note about the next meeting.",
    "Everything works as expected.",
)
_TITLES = ("Weekly report", "Release notes", "Travel plan", "Meeting minutes", "Shopping list")
_PATHS = ("/data/report.csv", "/home/alice/notes.txt", "/tmp/output.json", "src/main.py", "docs/index.md")
_DATES = ("2024-03-15", "2024-11-02", "2025-06-21", "2025-09-30", "2026-01-12")
_CODES = ("A100", "B27", "C3", "K9", "X42")

_BY_NAME: dict[str, tuple[str, ...]] = {
    "address": ("12 Harbor Street", "48 Garden Lane", "7 Mill Road", "301 Maple Avenue"),
    "author": _FULL_NAMES,
    "body": _SENTENCES,
    "category": ("books", "electronics", "garden", "music", "travel"),
    "city": _CITIES,
    "code": _CODES,
    "color": ("amber", "blue", "crimson", "green", "violet"),
    "command": ("ls -la", "git status", "make test", "date"),
    "company": ("Northwind", "Acme", "Blue Harbor", "Cedar Works"),
    "content": _SENTENCES,
    "country": ("Brazil", "Canada", "France", "Germany", "Italy", "Japan", "Kenya", "Portugal"),
    "currency": ("EUR", "USD", "GBP", "JPY", "CHF"),
    "date": _DATES,
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday"),
    "description": _SENTENCES,
    "destination": _CITIES,
    "email": ("alice@river.example", "bruno@cedar.example", "elena@summit.example"),
    "file": _PATHS,
    "filename": ("report.csv", "notes.txt", "output.json", "main.py"),
    "firstname": FIRST_NAMES,
    "id": _CODES,
    "language": ("English", "French", "German", "Italian", "Japanese", "Spanish"),
    "lastname": ("Conti", "Costa", "Lin", "Moreau", "Okafor", "Petrova"),
    "locale": ("en-US", "de-DE", "fr-FR", "it-IT"),
    "location": _CITIES,
    "message": _SENTENCES,
    "month": ("January", "March", "June", "September", "November"),
    "name": FIRST_NAMES,
    "note": _SENTENCES,
    "origin": _CITIES,
    "path": _PATHS,
    "phone": ("+1 555 0100", "+1 555 0123", "+1 555 0199"),
    "place": _CITIES,
    "postcode": ("10115", "20095", "75001", "94103"),
    "priority": ("low", "medium", "high"),
    "product": ("desk lamp", "notebook", "teapot", "umbrella"),
    "prompt": _QUERIES,
    "query": _QUERIES,
    "question": ("What is the capital of Peru?", "When does the train leave?", "Who wrote this book?"),
    "reason": ("no longer needed", "requested by the owner", "out of date"),
    "sql": ("SELECT 1", "SELECT name FROM users LIMIT 10"),
    "state": ("California", "Oregon", "Texas", "Vermont"),
    "status": ("active", "done", "open", "pending"),
    "street": ("Harbor Street", "Garden Lane", "Mill Road"),
    "subject": _TITLES,
    "summary": _SENTENCES,
    "symbol": ("AAPL", "GOOG", "MSFT", "NVDA"),
    "text": _SENTENCES,
    "ticker": ("AAPL", "GOOG", "MSFT", "NVDA"),
    "time": ("08:30", "12:00", "17:45", "21:15"),
    "timezone": ("Europe/Berlin", "America/New_York", "Asia/Tokyo", "UTC"),
    "title": _TITLES,
    "topic": ("astronomy", "gardening", "history", "music"),
    "unit": ("celsius", "meter", "kilogram", "second"),
    "uri": ("https://river.example/cedar", "https://maple.example/"),
    "url": ("https://river.example/cedar", "https://maple.example/"),
    "user": FIRST_NAMES,
    "username": ("alice", "bruno42", "elena_p", "jonas"),
    "zip": ("10115", "20095", "75001", "94103"),
    "zipcode": ("10115", "20095", "75001", "94103"),
}

_VARIED = 200
"""Characters of a long text after which no new words are looked for."""
_PARTS_OF_NAMES = re.compile("[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def plain(name: str, low: int, high: int, random: Random) -> str:
    """A text of `low` .. `high` characters for the member `name`, which may be empty."""
    text = random.choice(_bank(name))
    if low <= len(text) <= high:
        return text
    text = random.choice(WORDS)
    while len(text) < low:
        # Long texts repeat themselves.
        text = f"{text} {random.choice(WORDS) if len(text) < _VARIED else text}"
    text = text[: min(max(low, _VARIED), high)]
    # Cut before a word, it would end in a blank.
    return f"{text[:-1]}s" if text.endswith(" ") else text


def _bank(name: str) -> tuple[str, ...]:
    """The words for a member: by all of `zip_code`, by its last part, or that without an s at its end."""
    parts = [part.lower() for part in _PARTS_OF_NAMES.findall(name[:64])]
    if parts:
        for key in ("".join(parts), parts[-1], parts[-1].removesuffix("s")):
            if key in _BY_NAME:
                return _BY_NAME[key]
    return WORDS
