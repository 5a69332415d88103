"""What the log tells of the generation that a request led to."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from twisted.logger import Logger

from llmdsim.engine.sequence import Sequence as EngineSequence
from llmdsim.wire.request import Request

log = Logger()


class Account(msgspec.Struct):
    """One request's: `id` is that of its reply, `sequences` are its choices."""

    id: str
    model: str
    prompt_tokens: int
    sequences: Sequence[EngineSequence]

    def figures(self) -> tuple[int, float | None, float | None]:
        """Tokens generated, seconds the first choice queued, and seconds to the first token of any.

        None for what was not reached.
        """
        sequences = self.sequences
        first = sequences[0]
        tokens = first.revealed
        queued = None if first.reply is None else first.scheduled_at - first.arrival
        to_first = first.first_token_at - first.arrival if tokens else None
        if len(sequences) > 1:
            tokens = sum(sequence.revealed for sequence in sequences)
            to_first = min(
                (sequence.first_token_at - sequence.arrival for sequence in sequences if sequence.revealed),
                default=None,
            )
        return tokens, queued, to_first

    def log_start(self, streamed: bool) -> None:
        """Tell that it was asked for."""
        log.debug(
            "{id}: {model}, {prompt_tokens} prompt tokens, at most {max_tokens} more, stream {stream}, "
            "{n} choices",
            id=self.id,
            model=self.model,
            prompt_tokens=self.prompt_tokens,
            max_tokens=self.sequences[0].ask.max_tokens,
            stream=streamed,
            n=len(self.sequences),
        )


def log_leaving(request: Request) -> None:
    """Tell of a client that left before its reply was complete."""
    account = request.account
    if request.lost and account is not None:
        log.debug("{id}: the client left after {tokens} tokens", id=account.id, tokens=account.figures()[0])
