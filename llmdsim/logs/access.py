"""One line for each request that ended, formatted by hand and written with others."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection
from json.encoder import encode_basestring_ascii as json_text
from time import time as now
from typing import Any, Protocol, TypeAlias

from llmdsim.logs.destination import Destination
from llmdsim.logs.escapes import one_word
from llmdsim.logs.lines import Lines, TextLines
from llmdsim.logs.masks import address_shown
from llmdsim.wire.request import Request

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


Facts: TypeAlias = tuple[str, str, int, int, float | None, float | None]
"""Of an account: id, model, prompt tokens, and the figures."""

Row: TypeAlias = tuple[float, str, bytes, bytes, bytes, int, bytes, bool, float, Facts | None]
"""Of a request that ended: the time, its client, method, address, protocol, status, trailers, whether its
client left, the seconds it took, and what its account says."""

_GRPC_STATUS = re.compile(rb"^grpc-status: (\d+)\r$", re.MULTILINE)


class AccessLog:
    """Tells `destination` of requests but those for the paths `left_out`. `clock` is an `IReactorTime`.

    What is to be told waits as it is, since lines made one right after another cost a fraction of what they
    cost in the middle of everything else.
    """

    def __init__(
        self, lines: Lines, destination: Destination, clock: Any, left_out: Collection[bytes]
    ) -> None:
        self._form = TextForm(lines) if isinstance(lines, TextLines) else JsonForm(lines)
        self._destination = destination
        self._clock = clock
        self._seconds = clock.seconds
        self._left_out = frozenset(left_out)
        #: At both ends, threads do not hurt one another.
        self._rows: deque[Row] = deque()
        self._flush_waits = False
        destination.waiting.append(self._take)

    def ended(self, request: Request) -> None:
        """Note a request that has ended."""
        if request.path in self._left_out:
            return
        account: Account | None = request.account
        facts = None
        if account is not None:
            facts = (account.id, account.model, account.prompt_tokens, *account.figures())
        rows = self._rows
        rows.append(
            (
                now(),
                request.channel.peer,
                request.method,
                request.uri,
                request.clientproto,
                request.status,
                request.trailers,
                request.lost,
                self._seconds() - request.began,
                facts,
            )
        )
        if len(rows) >= MOST or self._destination.ending:
            self._destination.flush()
        elif not self._flush_waits:
            self._flush_waits = True
            self._clock.callLater(LONGEST, self._flush)

    def _flush(self) -> None:
        self._flush_waits = False
        self._destination.flush()

    def _take(self) -> str:
        rows = []
        try:
            while self._rows:
                rows.append(self._rows.popleft())
        except IndexError:
            pass  # another thread took the last
        return "".join(map(self._form.line, rows))


def _grpc_status(trailers: bytes) -> str:
    """The code of a call that has ended with these."""
    found = _GRPC_STATUS.search(trailers)
    return "null" if found is None else found[1].decode()


class _Form:
    """Makes lines of rows; the texts of request lines are kept for those to come."""

    def __init__(self, lines: Lines) -> None:
        self._header = lines.header("INFO", __name__)
        self._kept: dict[tuple[bytes, bytes, bytes], str] = {}

    def line(self, row: Row) -> str:
        """The line of one row."""
        raise NotImplementedError

    def request_line(self, method: str, address: str, protocol: str) -> str:
        """What is the same for all requests like this one."""
        raise NotImplementedError

    def _show(self, method: bytes, uri: bytes, protocol: bytes) -> str:
        address = address_shown(uri.decode("latin-1"))
        shown = self.request_line(method.decode("latin-1"), address, protocol.decode("latin-1"))
        if len(uri) <= LONGEST_KEPT:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            self._kept[method, uri, protocol] = shown
        return shown


class TextForm(_Form):
    """Lines for people: `CLIENT ID "METHOD PATH HTTP/1.1" STATUS name=value…`."""

    def request_line(self, method: str, address: str, protocol: str) -> str:
        return f'"{method} {one_word(address)} {protocol}"'

    def line(self, row: Row) -> str:
        when, client, method, uri, protocol, status, trailers, lost, took, facts = row
        start = f"{self._header(when)}{client}"
        asked = self._kept.get((method, uri, protocol)) or self._show(method, uri, protocol)
        end = " aborted\n" if lost else "\n"
        told = f"{asked} {status or CLIENT_CLOSED_REQUEST}"
        if trailers and not lost:
            told += f" grpc_status={_grpc_status(trailers)}"
        if facts is None:
            return f"{start} - {told} duration_ms={took * 1e3:.1f}{end}"
        request_id, model, prompt_tokens, tokens, queued, first = facts
        if queued is None:
            times = ""
        elif first is None:
            times = f" queue_ms={queued * 1e3:.1f}"
        else:
            times = f" queue_ms={queued * 1e3:.1f} ttft_ms={first * 1e3:.1f}"
        return (
            f"{start} {one_word(request_id)} {told} "
            f"model={one_word(model)} prompt_tokens={prompt_tokens} completion_tokens={tokens}{times} "
            f"duration_ms={took * 1e3:.1f}{end}"
        )


class JsonForm(_Form):
    """Objects; what does not apply, or was not reached, is null."""

    def request_line(self, method: str, address: str, protocol: str) -> str:
        return (
            f'"message":{json_text(f"{method} {address} {protocol}")},"method":{json_text(method)},'
            f'"path":{json_text(address)},"protocol":{json_text(protocol)}'
        )

    def line(self, row: Row) -> str:
        when, client, method, uri, protocol, status, trailers, lost, took, facts = row
        asked = self._kept.get((method, uri, protocol)) or self._show(method, uri, protocol)
        if facts is None:
            said = (
                '"request_id":null,"model":null,"prompt_tokens":null,"completion_tokens":null,'
                '"queue_ms":null,"ttft_ms":null'
            )
        else:
            request_id, model, prompt_tokens, tokens, queued, first = facts
            said = (
                f'"request_id":{json_text(request_id)},"model":{json_text(model)},'
                f'"prompt_tokens":{prompt_tokens},"completion_tokens":{tokens},'
                f'"queue_ms":{"null" if queued is None else f"{queued * 1e3:.3f}"},'
                f'"ttft_ms":{"null" if first is None else f"{first * 1e3:.3f}"}'
            )
        return (
            f"{self._header(when)}{asked},"
            f'"client":{json_text(client)},"status":{status or CLIENT_CLOSED_REQUEST},'
            f'"grpc_status":{_grpc_status(trailers) if trailers and not lost else "null"},'
            f'{said},"duration_ms":{took * 1e3:.3f},"aborted":{"true" if lost else "false"}}}\n'
        )
