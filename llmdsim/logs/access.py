"""One line for each request that ended, formatted by hand and written with others."""

from __future__ import annotations

from collections.abc import Collection
from json.encoder import encode_basestring_ascii as json_text
from time import time as now
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

#: Request lines whose text is kept, and bytes of an address up to which one is.
MOST_KEPT, LONGEST_KEPT = 256, 128


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
        self._form = TextForm(lines) if isinstance(lines, TextLines) else JsonForm(lines)
        self._destination = destination
        self._clock = clock
        self._seconds = clock.seconds
        self._left_out = frozenset(left_out)
        self._kept: dict[tuple[bytes, bytes, bytes], str] = {}
        self._flush_waits = False

    def ended(self, request: Request) -> None:
        """Note a request that has ended."""
        if request.path in self._left_out:
            return
        asked = request.method, request.uri, request.clientproto
        shown = self._kept.get(asked)
        if shown is None:
            shown = self._show(*asked)
        waiting = self._destination.waiting
        waiting.append(self._form.line(request, shown, self._seconds() - request.began))
        if self._destination.ending or len(waiting) >= MOST:
            self._destination.flush()
        elif not self._flush_waits:
            self._flush_waits = True
            self._clock.callLater(LONGEST, self._flush)

    def _show(self, method: bytes, uri: bytes, protocol: bytes) -> str:
        address = address_shown(uri.decode("latin-1"))
        shown = self._form.request_line(method.decode("latin-1"), address, protocol.decode("latin-1"))
        if len(uri) <= LONGEST_KEPT:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[method, uri, protocol] = shown
        return shown

    def _flush(self) -> None:
        self._flush_waits = False
        self._destination.flush()


class TextForm:
    """Lines for people: `CLIENT ID "METHOD PATH HTTP/1.1" STATUS name=value…`."""

    def __init__(self, lines: TextLines) -> None:
        self._header = lines.header("INFO", NAMESPACE)

    def request_line(self, method: str, address: str, protocol: str) -> str:
        """What is the same for all requests like this one."""
        return f'"{method} {one_word(address)} {protocol}"'

    def line(self, request: Request, request_line: str, took: float) -> str:
        """The line of a request that took so many seconds."""
        account: Account | None = request.account
        if account is None:
            request_id, facts = "-", ""
        else:
            request_id = one_word(account.id)
            tokens, queued, first = account.figures()
            facts = (
                f" model={one_word(account.model)} prompt_tokens={account.prompt_tokens} "
                f"completion_tokens={tokens}"
            )
            if queued is not None:
                facts += f" queue_ms={queued * 1e3:.1f}"
            if first is not None:
                facts += f" ttft_ms={first * 1e3:.1f}"
        return (
            f"{self._header(now())}{request.channel.peer} {request_id} {request_line} "
            f"{request.status or CLIENT_CLOSED_REQUEST}{facts} duration_ms={took * 1e3:.1f}"
            f"{' aborted' if request.lost else ''}\n"
        )


class JsonForm:
    """Objects; what does not apply, or was not reached, is null."""

    def __init__(self, lines: JsonLines) -> None:
        self._header = lines.header("INFO", NAMESPACE)

    def request_line(self, method: str, address: str, protocol: str) -> str:
        """What is the same for all requests like this one."""
        return (
            f'"message":{json_text(f"{method} {address} {protocol}")},"method":{json_text(method)},'
            f'"path":{json_text(address)},"protocol":{json_text(protocol)}'
        )

    def line(self, request: Request, request_line: str, took: float) -> str:
        """The line of a request that took so many seconds."""
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
        return (
            f"{self._header(now())}{request_line},"
            f'"client":{json_text(request.channel.peer)},"status":{request.status or CLIENT_CLOSED_REQUEST},'
            f'{facts},"duration_ms":{took * 1e3:.3f},"aborted":{"true" if request.lost else "false"}}}\n'
        )
