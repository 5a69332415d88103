"""What is known of the messages of a conversation, whatever renders them: decoded JSON objects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

Message: TypeAlias = Mapping[str, Any]

TEXT_KEYS: Final = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
"""The types of content parts that are text, and the key that each keeps it under."""

BILLING: Final = "x-anthropic-billing-header"
"""Claude Code puts a line that begins so, different each time, before its prompts: no two would be alike."""
