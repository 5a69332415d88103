"""`GetTokenizer`: the tokenizer's files as an archive, in chunks that their reader's pace decides."""

from __future__ import annotations

from hashlib import sha256

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from llmdsim.rpc.call import end, send
from llmdsim.rpc.pb import common_pb2 as pb
from llmdsim.tokenization.archive import archive
from llmdsim.web.context import Context
from llmdsim.web.turns import Steps
from llmdsim.wire.grpc import Code, RpcError
from llmdsim.wire.request import Request

#: Bytes of the archive in a message (SMG's servicer).
CHUNK = 1 << 16

#: Chunks that are sent in half a millisecond.
CHUNKS_AT_ONCE = 8


class TokenizerFiles:
    """The method of one rank. The archive is made in a thread, at the first call, for all."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._folder = context.tokenizer_folder
        self._archive: bytes | None = None
        self._digest = ""
        #: Why it could not be made, when that was tried last.
        self._problem: Exception | None = None
        #: Those who wait for it while it is made.
        self._waiting: list[Deferred[None]] | None = None

    def get(self, request: Request, asked: pb.GetTokenizerRequest) -> Deferred[None] | None:
        """Answer one call."""
        if not self._folder:
            message = "There are no files: the tokenizer is the built-in one"
            raise RpcError(Code.FAILED_PRECONDITION, message)
        return self._context.turns.take(self._answer(request))

    def _answer(self, request: Request) -> Steps:
        if self._archive is None:
            yield self._made()
        data = self._archive
        if data is None:
            assert self._problem is not None
            raise self._problem
        for number, start in enumerate(range(0, len(data), CHUNK), start=1):
            if request.channel.write_paused:
                yield _drained(request)
            elif number % CHUNKS_AT_ONCE == 0:
                yield
            stop = start + CHUNK
            digest = self._digest if stop >= len(data) else ""
            send(request, pb.GetTokenizerChunk(data=data[start:stop], sha256=digest))
        end(request)

    def _made(self) -> Deferred[None]:
        """Fires when it has been tried to make the archive."""
        if self._waiting is None:
            self._waiting = []
            # Work of its own, which goes on if whoever began it leaves.
            work = self._context.turns.take(self._make())
            assert work is not None
            work.addCallbacks(self._tell, self._failed)
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)
        return waiting

    def _make(self) -> Steps:
        yield self._read

    def _read(self) -> None:
        made = archive(self._folder)
        self._digest = sha256(made).hexdigest()
        self._archive = made

    def _failed(self, failure: Failure) -> None:
        problem = failure.value
        if isinstance(problem, OSError):
            problem = RpcError(Code.INTERNAL, f"The tokenizer's files cannot be read: {problem.strerror}")
        assert isinstance(problem, Exception)
        self._problem = problem
        self._tell()

    def _tell(self, _: object = None) -> None:
        waiting, self._waiting = self._waiting or [], None
        for each in waiting:
            each.callback(None)


def _drained(request: Request) -> Deferred[None]:
    """Fires when more can be sent."""
    drained: Deferred[None] = Deferred()

    def drain() -> None:
        request.on_drain = None
        drained.callback(None)

    request.on_drain = drain
    return drained
