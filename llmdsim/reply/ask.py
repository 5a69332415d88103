"""What one choice is asked for, and the settings its answer depends on."""

from typing import Protocol

import msgspec

from llmdsim.reply.plan import Plan
from llmdsim.reply.schema import ValueSettings
from llmdsim.tokenization import Layout, Prompt


class ReplySettings(ValueSettings, Protocol):
    """The part of `Config` that decides what is said."""

    @property
    def mode(self) -> str: ...  # "random" or "echo"
    @property
    def seed(self) -> int | None: ...
    @property
    def length_histogram(self) -> str: ...  # "readme" or "peer"
    @property
    def echo_ignores_max_tokens(self) -> bool: ...
    @property
    def mm_encoder_only(self) -> bool: ...
    @property
    def tool_call_extra_call_probability(self) -> int: ...  # percent


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """Where one choice's answer may and must end, and the seed it is drawn from.

    `max_tokens` (>= 1) is the effective bound, the least of what was requested and the room left in the
    context; `requested_max` is what the client asked for in so many words, None when it did not (a default
    of the API is no request). `min_tokens` is at most `max_tokens`; no stop string is empty.
    """

    max_tokens: int
    requested_max: int | None
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    stop_token_ids: frozenset[int] = frozenset()
    include_stop: bool = False
    seed: int | None = None
    #: Whether special tokens show no text; None: they do in a text that is repeated, and not in ids.
    skip_special_tokens: bool | None = None
    #: Whether there may be a blank between added tokens that are shown.
    spaces_between_special_tokens: bool = True


class Ask(Bounds, frozen=True, kw_only=True):
    """What one choice is asked for, already validated and clamped.

    `echoed` is what echo mode answers: the prompt itself or, of a conversation, the last message. `seed` has
    the choice's index added already.
    """

    prompt: Prompt
    echoed: Prompt
    #: None for plain text.
    plan: Plan | None = None
    #: What a dataset says to the prompt; None where there is none, or it has nothing to say.
    stored: Layout | None = None

    @property
    def is_easy(self) -> bool:
        """Whether the answer is written in some microseconds, however long it is."""
        if self.stored is not None and (self.ignore_eos or self.min_tokens):
            return False  # any number of sentences may have to follow
        return self.plan is None and not self.stop and not self.stop_token_ids
