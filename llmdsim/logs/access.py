"""One line for each request that ended, formatted by hand and written with others."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from json.encoder import encode_basestring_ascii as json_text
from typing import Any, Protocol

from llmdsim.logs.destination import Destination
from llmdsim.logs.escapes import one_word
from llmdsim.logs.lines import JsonLines, Lines, TextLines
from llmdsim.logs.masks import address_shown
from llmdsim.wire.request import Request

#: The name these lines go by in the log.
NAMESPACE = "llmdsim.logs.access"

#: How many lines are written together at most, and how long one may wait for others, in seconds.
MOST, LONGEST = 100, 0.1

#: What is told where the client left before it was sent a status, as nginx has it.
CLIENT_CLOSED_REQUEST = 499

#: A line: the request, its address as shown, its status, and seconds it took.
Form = Callable[[Request, str, int, float], str]


class Account(Protocol):
    """What a request's route tells of the generation it led to."""

    id: str
    model: str
    prompt_tokens: int

    def figures(self) -> tuple[int, float | None, float | None]:
        """Completion tokens, seconds in the queue, and to the first token; None for what was not reached."""


class AccessLog:
    """Tells `destination` of requests but those for the paths `left_out`. `clock` is an `IReactorTime`."""

    def __init__(
        self, lines: Lines, destination: Destination, clock: Any, left_out: Collection[bytes]
    ) -> None:
        self._form = text_form(lines) if isinstance(lines, TextLines) else json_form(lines)
        self._destination = destination
        self._clock = clock
        self._seconds = clock.seconds
        self._left_out = frozenset(left_out)
        self._flush_waits = False

    def ended(self, request: Request) -> None:
        """Note a request that has ended."""
        if request.path in self._left_out:
            return
        uri = request.uri.decode("latin-1")
        if "=" in uri or "@" in uri:
            uri = address_shown(uri)
        status = request.status or CLIENT_CLOSED_REQUEST
        waiting = self._destination.waiting
        waiting.append(self._form(request, uri, status, self._seconds() - request.began))
        if self._destination.ending or len(waiting) >= MOST:
            self._destination.flush()
        elif not self._flush_waits:
            self._flush_waits = True
            self._clock.callLater(LONGEST, self._flush)

    def _flush(self) -> None:
        self._flush_waits = False
        self._destination.flush()


def text_form(lines: TextLines) -> Form:
    """Lines for people: `CLIENT ID "METHOD PATH HTTP/1.1" STATUS name=value…`."""
    header, now = lines.header, time.time

    def line(request: Request, uri: str, status: int, took: float) -> str:
        if not (uri.isascii() and uri.isprintable()) or '"' in uri or "\\" in uri:
            uri = one_word(uri)
        account: Account | None = request.account
        if account is None:
            request_id, facts = "-", ""
        else:
            request_id = one_word(account.id)
            tokens, queued, first = account.figures()
            facts = (
                f" model={account.model} prompt_tokens={account.prompt_tokens} completion_tokens={tokens}"
                f"{'' if queued is None else f' queue_ms={queued * 1e3:.1f}'}"
                f"{'' if first is None else f' ttft_ms={first * 1e3:.1f}'}"
            )
        return (
            f"{header(now(), 'INFO', NAMESPACE)}{request.channel.peer} {request_id} "
            f'"{request.method.decode("latin-1")} {uri} {request.clientproto.decode("latin-1")}" {status}'
            f"{facts} duration_ms={took * 1e3:.1f}{' aborted' if request.lost else ''}\n"
        )

    return line


def json_form(lines: JsonLines) -> Form:
    """Objects; what does not apply, or was not reached, is null."""
    start, now = lines.start, time.time

    def line(request: Request, uri: str, status: int, took: float) -> str:
        method, protocol = request.method.decode("latin-1"), request.clientproto.decode("latin-1")
        account: Account | None = request.account
        if account is None:
            facts = (
                '"request_id":null,"model":null,"prompt_tokens":null,"completion_tokens":null,'
                '"queue_ms":null,"ttft_ms":null'
            )
        else:
            tokens, queued, first = account.figures()
            facts = (
                f'"request_id":{json_text(account.id)},"model":{json_text(account.model)},'
                f'"prompt_tokens":{account.prompt_tokens},"completion_tokens":{tokens},'
                f'"queue_ms":{"null" if queued is None else f"{queued * 1e3:.3f}"},'
                f'"ttft_ms":{"null" if first is None else f"{first * 1e3:.3f}"}'
            )
        request_line = f"{method} {uri} {protocol}"
        return (
            f'{start(now(), "INFO", NAMESPACE)},"message":{json_text(f"{request_line} {status}")},'
            f'"client":{json_text(request.channel.peer)},"method":{json_text(method)},'
            f'"path":{json_text(uri)},"protocol":{json_text(protocol)},"status":{status},{facts},'
            f'"duration_ms":{took * 1e3:.3f},"aborted":{"true" if request.lost else "false"}}}\n'
        )

    return line
