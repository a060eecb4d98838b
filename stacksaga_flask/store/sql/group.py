"""Group commit: calls that come while a commit is under way are committed together by the next one.

Every caller enters with its work. If nobody leads, it leads: it takes whatever was queued, has all of it written in one
database transaction, hands each caller its own answer and passes the lead to the first one who came meanwhile. There
is no thread of its own and no waiting for company: a caller alone commits at once.

A call is *queued*, then *taken* by a leader, then *done*; or queued and *promoted* to lead. A caller that is
interrupted while it waits (a signal, a greenlet's time-out) withdraws a queued call, and passes a lead on.

Threads wake one another in turn, each the next one as it goes on. A hundred that were all woken at once would contend
for the interpreter, and spend more time on that than on their work.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from itertools import pairwise
from typing import Any, Final, Generic, TypeVar, cast

from stacksaga_flask.errors import OutcomeUnknown
from stacksaga_flask.store.sql.backend import Cursor
from stacksaga_flask.store.sql.forking import HeldWriter

T = TypeVar("T")
_LONGEST_SLEEP: Final = 1.0
"""Seconds until a caller looks by itself whether it has been answered."""


class Call(Generic[T]):
    """One caller's work and what became of it."""

    __slots__ = ("answer", "done", "error", "gate", "left", "next", "promoted", "work")

    def __init__(self, work: Callable[[Cursor], T]) -> None:
        self.work = work
        self.done = False
        self.answer: T | None = None
        self.error: BaseException | None = None
        self.promoted = False
        self.left = False
        """Its caller was interrupted, and wakes nobody."""
        self.next: Call[Any] | None = None
        """Whom its caller wakes."""
        self.gate: threading.Lock | None = None
        """Locked while its caller has to wait; made only then."""

    def close_gate(self) -> None:
        """Make whoever calls `wait` wait."""
        self.gate = threading.Lock()
        self.gate.acquire()

    def wait(self) -> None:
        """Return once the gate was opened, or soon after whoever was to open it did not live to do so."""
        while not cast(threading.Lock, self.gate).acquire(timeout=_LONGEST_SLEEP):
            if self.done or self.promoted:
                return

    def open_gate(self) -> None:
        """Let the caller go on."""
        if self.gate is not None:
            self.gate.release()

    def result(self) -> T:
        """What the work returned, or what went wrong."""
        if self.error is not None:
            raise self.error
        return cast(T, self.answer)


class Group:
    """The queue before the one writer of this process."""

    def __init__(self, writer: HeldWriter) -> None:
        self._writer: Final = writer
        self._mutex: AbstractContextManager[Any] = threading.Lock()
        self._queue: deque[Call[Any]] = deque()
        self._led = False

    @property
    def commits(self) -> int:
        """How many database transactions were committed."""
        return self._writer.commits

    def hold_up(self, timeout: float) -> bool:
        """Let nobody write, with the connection closed, until `go_on`. Without success all is as before."""
        return self._writer.hold_up(timeout)

    def go_on(self) -> None:
        """Let others write."""
        self._writer.go_on()

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    def submit(self, work: Callable[[Cursor], T]) -> T:
        """Have the work written, together with that of others, and return what it returned."""
        call = Call(work)
        with self._mutex:
            leads = not self._led
            if leads:
                self._led = True
            else:
                call.close_gate()
                self._queue.append(call)
        if not leads:
            self._wait(call)
        if not call.done:
            self._lead(call)
        return call.result()

    def _wait(self, call: Call[Any]) -> None:
        try:
            call.wait()
        except BaseException:
            with self._mutex:
                call.left = True
                if call in self._queue:
                    self._queue.remove(call)
            if call.promoted:
                self._pass_on([])
            raise
        finally:
            if call.next is not None:
                call.next.open_gate()

    def _lead(self, call: Call[Any]) -> None:
        calls = self._take(call)
        try:
            self._writer.run(calls)
        finally:
            self._pass_on(calls[1:])

    def _take(self, call: Call[Any]) -> Sequence[Call[Any]]:
        with self._mutex:
            calls = [call, *self._queue]
            self._queue.clear()
        return calls

    def _pass_on(self, answered: Sequence[Call[Any]]) -> None:
        """Give up the lead and wake those whose calls were taken."""
        for call in answered:
            if not call.done:
                call.error, call.done = OutcomeUnknown("the process was interrupted while it wrote"), True
        with self._mutex:
            # Last, so that those just answered may come back in time for its group.
            successor = self._queue.popleft() if self._queue else None
            if successor is None:
                self._led = False
            else:
                successor.promoted = True
            waiting = [call for call in (*answered, successor) if call is not None and not call.left]
            woken = self._to_be_woken(waiting)
        for call in woken:
            call.open_gate()

    def _to_be_woken(self, waiting: Sequence[Call[Any]]) -> Sequence[Call[Any]]:
        """Arrange that each wakes the next one, and say whom to wake here."""
        for call, following in pairwise(waiting):
            call.next = following
        return waiting[:1]
