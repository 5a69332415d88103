"""What calls ask for besides their prompts, by their bytes without these: most ask the same again."""

from __future__ import annotations

from collections.abc import Callable

from llmdsim.reply.ask import Ask
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.web.errors import ApiError
from llmdsim.web.generate.conversion import TokensRequest
from llmdsim.web.recurring import Recurring

#: Bytes of a call that is looked at, in those of longer ones little is gained; and of what is known.
LONGEST_CALL, LONGEST_KNOWN = 16_384, 512


class KnownTokens(TokensRequest, kw_only=True):
    """A valid request for the tokens alone of one choice, whose options are known.

    They hold for prompts of 1 to `longest_prompt` ids. `ask` lacks the prompt.
    """

    everyday = True

    ask: Ask
    longest_prompt: int


class KnownCalls(Recurring[KnownTokens]):
    """Remembers those that recur but for their prompts and ids.

    `work_out` tells what one comes to, or None where there is more to find out each time; it may raise
    ApiError. Nothing of that may depend on what can change at run time.
    """

    def __init__(self, work_out: Callable[[pb.GenerateRequest], KnownTokens | None]) -> None:
        super().__init__()
        self._work_out = work_out

    def find(self, asked: pb.GenerateRequest) -> KnownTokens | None:
        """What is known of a call whose prompt and id have been taken out."""
        key = asked.SerializeToString()
        if key in self:
            return self[key]
        if len(key) > LONGEST_KNOWN or not self.recurs(key):
            return None
        try:
            known = self._work_out(asked)
        except ApiError:
            known = None  # its turn to be raised comes later
        self[key] = known
        return known
