"""Why a message ended, in Anthropic's words."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from llmdsim.engine.sequence import Sequence as EngineSequence
from llmdsim.web.transfer import PrefillAnswer

#: By the engine's finish reason; what is not listed, such as an abort, has no word.
_REASONS = {"length": "max_tokens", "cache_threshold": "max_tokens", "remote_decode": "end_turn"}


def stop_reason(
    sequence: EngineSequence, calls: Sequence[str], prefill: PrefillAnswer | None
) -> tuple[str | None, str | None]:
    """`stop_reason` and `stop_sequence` of a message that shows `calls` with these arguments.

    A stop sequence counts unless the calls are complete: one that it cut short must not run (vLLM).
    """
    reason = sequence.finish_reason or ""
    if prefill is not None:
        reason = prefill.finish_reason(reason)
    if reason != "stop":
        return _REASONS.get(reason), None
    if calls and is_object(calls[-1]):
        return "tool_use", None
    reply = sequence.reply
    if reply is not None and isinstance(reply.stop_reason, str):
        return "stop_sequence", reply.stop_reason
    return ("tool_use" if calls else "end_turn"), None


def is_object(arguments: str) -> bool:
    """Whether the arguments of a call are a complete JSON object."""
    try:
        return isinstance(msgspec.json.decode(arguments), dict)
    except (msgspec.DecodeError, RecursionError):
        return False
