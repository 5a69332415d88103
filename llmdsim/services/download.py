"""Fetches a file over HTTP: to a temporary name beside its place, and to its place once it is found good."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit
from uuid import uuid4

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.protocol import Protocol, connectionDone
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

log = Logger()

#: How long a connection may take, and a server be silent, in seconds.
CONNECT = 15.0
STALL = 30.0

#: How often progress is told, in seconds and in parts of the whole.
TELL_EVERY = 5.0
TELL_PARTS = 10


class DownloadError(Exception):
    """`str()` is one clear line."""


async def download(
    url: str, target: Path, check: Callable[[Path], Awaitable[object]], reactor: Any, clock: Any
) -> None:
    """Fetch `url` to `target`; `check` raises if what came is no good.

    Unless all of it is well nothing is left behind, folders that were made for it included. Raises
    DownloadError, and what `check` raises. `clock` is an `IReactorTime`; cancelling ends it at once.
    """
    try:
        with _folder(target.parent), _temporary(target) as (part, file):
            await _Transfer(url, file, reactor, clock).run()
            os.fsync(file.fileno())
            file.close()
            await check(part)
            os.replace(part, target)
    except OSError as problem:
        raise DownloadError(f"{problem.filename or target}: {problem.strerror}") from None


@contextmanager
def _folder(folder: Path) -> Iterator[None]:
    """A folder that stays only if all goes well, as do those above it."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    made: list[Path] = []
    try:
        for each in reversed(missing):
            each.mkdir(exist_ok=True)
            made.append(each)
        yield
    except BaseException:
        for each in reversed(made):
            try:
                each.rmdir()
            except OSError:
                pass  # somebody else has put something there
        raise


@contextmanager
def _temporary(target: Path) -> Iterator[tuple[Path, IO[bytes]]]:
    """A new file beside `target`, its name another's at no time; gone at the end, unless it was moved."""
    part = target.with_name(f".{target.name}.{uuid4().hex}.part")
    try:
        with part.open("xb") as file:
            yield part, file
    finally:
        part.unlink(missing_ok=True)


class _Transfer(Protocol):
    """One download; as a protocol, it is given the body."""

    def __init__(self, url: str, file: IO[bytes], reactor: Any, clock: Any) -> None:
        self._url = url
        self._file = file
        self._reactor = reactor
        self._clock = clock
        self._received = 0
        self._total = 0
        self._told = 0
        self._heard_at = 0.0
        self._stalled = False
        self._waiting: Deferred[Any] = Deferred()

    async def run(self) -> None:
        # Here, since they take a while to load and few need them.
        from twisted.web.client import Agent, RedirectAgent  # noqa: PLC0415
        from twisted.web.http_headers import Headers  # noqa: PLC0415
        from twisted.web.iweb import UNKNOWN_LENGTH  # noqa: PLC0415

        parts = urlsplit(self._url)
        self._heard_at = self._clock.seconds()
        log.info("downloading {host}{path}", host=parts.hostname, path=parts.path)
        progress, watch = LoopingCall(self._tell), LoopingCall(self._watch)
        for call, every in (progress, TELL_EVERY), (watch, 1.0):
            call.clock = self._clock
            call.start(every, now=False).addErrback(lambda failure: log.failure("download", failure))
        try:
            agent: Any = RedirectAgent(Agent(self._reactor, connectTimeout=CONNECT))  # type: ignore[no-untyped-call]
            headers = Headers({"User-Agent": ["llmdsim"], "Accept-Encoding": ["identity"]})
            self._waiting = agent.request(b"GET", self._url.encode(), headers)
            response: Any = await self._waiting
            if response.code != 200:
                raise DownloadError(f"the server answers {response.code}")
            if response.length is not UNKNOWN_LENGTH:
                self._total = response.length
            self._waiting = Deferred(self._abort)
            response.deliverBody(self)
            await self._waiting
        except DownloadError:
            raise
        except CancelledError:
            self._explain_stall()
            raise
        except Exception as problem:
            self._explain_stall()
            raise DownloadError(_reason(problem)) from None
        finally:
            progress.stop()
            watch.stop()
        if not self._received:
            raise DownloadError("the server sends an empty file")

    def dataReceived(self, data: bytes) -> None:
        self._heard_at = self._clock.seconds()
        self._received += len(data)
        try:
            self._file.write(data)
        except OSError as problem:
            self._end(DownloadError(f"{self._file.name}: {problem.strerror}"))
            self._abort()
        if self._total and self._received * TELL_PARTS // self._total > self._told:
            self._tell()

    def connectionLost(self, reason: Any = connectionDone) -> None:
        from twisted.web.client import ResponseDone  # noqa: PLC0415
        from twisted.web.http import PotentialDataLoss  # noqa: PLC0415

        # Without a length the end of the connection is that of the file.
        self._end(None if reason.check(ResponseDone, PotentialDataLoss) else reason)

    def _end(self, outcome: Any) -> None:
        waiting = self._waiting
        if not waiting.called:
            waiting.callback(None) if outcome is None else waiting.errback(outcome)

    def _abort(self, waiting: object = None) -> None:
        transport: Any = self.transport
        transport.loseConnection()

    def _watch(self) -> None:
        if self._clock.seconds() - self._heard_at >= STALL:
            self._stalled = True
            self._waiting.cancel()

    def _explain_stall(self) -> None:
        if self._stalled:
            raise DownloadError(f"nothing came for {STALL:g} seconds") from None

    def _tell(self) -> None:
        if self._total:
            self._told = self._received * TELL_PARTS // self._total
            percent = self._received * 100 // self._total
            log.info("downloaded {percent} % of {total} bytes", percent=percent, total=self._total)
        else:
            log.info("downloaded {received} bytes", received=self._received)


def _reason(problem: Any) -> str:
    """What went wrong, where Twisted wraps it up; a body that was cut short has no word of its own."""
    reasons = getattr(problem, "reasons", None)
    cause = reasons[0].value if reasons else problem
    name = type(cause).__name__
    if name in ("ResponseFailed", "ConnectionDone", "ConnectionLost", "_DataLoss"):
        return "the connection ended too early"
    return str(cause) or name
