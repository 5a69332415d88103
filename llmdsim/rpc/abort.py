"""`Abort`: calls and requests are ended from outside."""

from __future__ import annotations

from llmdsim.rpc.call import reply
from llmdsim.rpc.pb import vllm_engine_pb2 as pb
from llmdsim.web.admin.aborting import named
from llmdsim.web.context import Context
from llmdsim.wire.request import Request


class Abort:
    """The method of one rank."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def abort(self, request: Request, asked: pb.AbortRequest) -> None:
        """End what has any of the ids, of this rank; their clients get what there is of their replies."""
        driver = self._context.driver
        driver.cut_short(named(driver.engine.sequences, asked.request_ids))
        reply(request, pb.AbortResponse())
