"""A reactor clock of sub-millisecond precision: absolute deadlines on one timerfd.

epoll's own time-out is whole milliseconds, which is too coarse to pace tokens. Where there is no timerfd, the
reactor's `callLater` wakes us instead.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from twisted.internet.base import DelayedCall
from twisted.internet.interfaces import IDelayedCall, IReactorTime, IReadDescriptor
from twisted.logger import Logger
from zope.interface import implementer

log = Logger()

#: linux/timerfd.h
TFD_TIMER_ABSTIME = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class _CtypesTimerfd:
    """timerfd through libc, for Python before 3.13."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._spec = _Itimerspec()
        self._reference = ctypes.byref(self._spec)
        self._settime = self._libc.timerfd_settime
        self._settime.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

    def arm(self, deadline: float) -> None:
        value = self._spec.value
        seconds = max(0, int(deadline))
        value.sec = seconds
        # A value of zero would disarm the timer.
        value.nsec = max(1, int((deadline - seconds) * 1e9))
        self._settime(self.fd, TFD_TIMER_ABSTIME, self._reference, None)


class _StandardTimerfd:
    """timerfd through the standard library."""

    def __init__(self) -> None:
        create = getattr(os, "timerfd_create")  # noqa: B009 - absent from the stubs of older Pythons
        self._settime: Callable[..., object] = getattr(os, "timerfd_settime")  # noqa: B009
        self.fd: int = create(time.CLOCK_MONOTONIC, flags=os.O_NONBLOCK | os.O_CLOEXEC)

    def arm(self, deadline: float) -> None:
        self._settime(self.fd, flags=TFD_TIMER_ABSTIME, initial=max(deadline, 1e-9))


def _timerfd() -> _CtypesTimerfd | _StandardTimerfd | None:
    if not sys.platform.startswith("linux"):
        return None
    return _StandardTimerfd() if hasattr(os, "timerfd_create") else _CtypesTimerfd()


@implementer(IReactorTime, IReadDescriptor)
class DeadlineClock:
    """`IReactorTime` on monotonic seconds, so that `LoopingCall` and `deferLater` run on it.

    Start it after any fork: the timer's descriptor and its place in the reactor belong to one process.
    """

    def __init__(self, reactor: Any) -> None:
        #: Monotonic seconds; asked for several times a request, so without a function of ours in between.
        self.seconds = time.monotonic
        self._reactor = reactor
        self._heap: list[tuple[float, int, DelayedCall]] = []
        self._serial = count()
        self._cancelled = 0
        self._timer: _CtypesTimerfd | _StandardTimerfd | None = None
        self._fallback: IDelayedCall | None = None
        self._armed = float("inf")
        self._running = False
        self._started = False

    # --- life

    def start(self) -> None:
        """Begin to run calls; those scheduled before are kept."""
        if self._started:
            return
        self._started = True
        self._timer = _timerfd()
        if self._timer is not None:
            self._reactor.addReader(self)
        self._arm()

    def stop(self) -> None:
        """Run nothing further and release the timer."""
        if not self._started:
            return
        self._started = False
        self._armed = float("inf")
        if self._timer is not None:
            self._reactor.removeReader(self)
            os.close(self._timer.fd)
            self._timer = None
        if self._fallback is not None and self._fallback.active():
            self._fallback.cancel()

    # --- IReactorTime

    def callLater(
        self, delay: float, callable: Callable[..., object], *args: object, **kw: object
    ) -> DelayedCall:
        """Call `callable` once, `delay` seconds (>= 0) from now."""
        return self.call_at(time.monotonic() + delay, callable, *args, **kw)

    def call_at(
        self, deadline: float, callable: Callable[..., object], *args: object, **kw: object
    ) -> DelayedCall:
        """Call `callable` once, when `seconds()` reaches `deadline`."""
        call = DelayedCall(deadline, callable, args, kw, self._forget, self._moved, self.seconds)
        self._push(call)
        return call

    def getDelayedCalls(self) -> Sequence[IDelayedCall]:
        """Everything that is still to be called."""
        # A call brought forward is in the heap twice.
        return list(dict.fromkeys(call for _, _, call in self._heap if call.active()))

    def _push(self, call: DelayedCall) -> None:
        heappush(self._heap, (call.getTime(), next(self._serial), call))
        if not self._running:
            self._arm()

    def _forget(self, call: DelayedCall) -> None:
        # A cancelled call stays in the heap until its time, or until too many like it lie about.
        self._cancelled += 1
        if self._cancelled > 64 and self._cancelled * 2 > len(self._heap):
            self._heap[:] = [entry for entry in self._heap if entry[2].active() and entry[2] is not call]
            heapify(self._heap)
            self._cancelled = 0

    def _moved(self, call: DelayedCall) -> None:
        self._push(call)

    # --- the timer

    def _arm(self) -> None:
        heap = self._heap
        while heap and not (heap[0][2].active() and heap[0][2].getTime() <= heap[0][0]):
            self._pop()
        if not heap or not self._started:
            return
        deadline = heap[0][0]
        if deadline >= self._armed:
            return
        self._armed = deadline
        if self._timer is not None:
            self._timer.arm(deadline)
        else:
            if self._fallback is not None and self._fallback.active():
                self._fallback.cancel()
            self._fallback = self._reactor.callLater(max(0.0, deadline - time.monotonic()), self._run)

    def _pop(self) -> DelayedCall | None:
        """The earliest call, or None where it was cancelled or delayed since it was pushed."""
        when, _, call = heappop(self._heap)
        if not call.active():
            self._cancelled = max(0, self._cancelled - 1)
            return None
        if call.getTime() > when:
            call.activate_delay()  # or it would not tell us when it is brought forward again
            heappush(self._heap, (call.getTime(), next(self._serial), call))
            return None
        return call

    def _run(self) -> None:
        self._armed = float("inf")
        now = time.monotonic()
        heap = self._heap
        due: list[DelayedCall] = []
        while heap and heap[0][0] <= now:
            call = self._pop()
            if call is not None:
                due.append(call)
        # Only what was due when the pass began: calls made meanwhile wait for the next, after the sockets.
        self._running = True
        for call in due:
            if not call.active():
                continue
            call.activate_delay()
            if call.getTime() > now or not self._started:
                self._push(call)  # put off, or everything stopped, by a call of this pass
                continue
            try:
                call.called = 1
                call.func(*call.args, **call.kw)
            except BaseException:
                # SystemExit too, as in Twisted's own reactors: the reader would be dropped for good.
                log.failure("a scheduled call failed")
        self._running = False
        self._arm()

    # --- IReadDescriptor

    def fileno(self) -> int:
        """The timer's descriptor."""
        return -1 if self._timer is None else self._timer.fd

    def logPrefix(self) -> str:
        """What Twisted calls us in its log."""
        return "DeadlineClock"

    def doRead(self) -> None:
        """The timer fired."""
        if self._timer is None:
            return
        try:
            os.read(self._timer.fd, 8)
        except BlockingIOError:
            pass  # armed anew between epoll and this read
        self._run()

    def connectionLost(self, reason: object) -> None:
        """The reactor is going away."""
