"""Group commit under gevent, where a commit would stop every greenlet of the process until the disk has answered.

A hop to a native thread costs more than a quick commit does. So a caller first lets the others run once, if any have
had something to write lately, and they queue up. Alone, it writes in place while the disk is quick
and no other process holds the writer; otherwise the group goes to gevent's own thread pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from stacksaga_flask.clock import TimeSource
from stacksaga_flask.store.sql.forking import HeldWriter
from stacksaga_flask.store.sql.group import Call, Group
from stacksaga_flask.threads import native

ALONE: Final = 16
"""How many commits are made without company before a caller looks again whether others want to write.

Looking runs gevent's loop once, a tenth of what a commit costs. A step that waits for anything lets others run too.
"""
QUICK: Final = 2_000
"""Microseconds a commit may take in place; a hop costs about a tenth of a millisecond."""


class GreenletGroup(Group):
    """The queue before the writer, where callers are greenlets."""

    def __init__(self, writer: HeldWriter, time_source: TimeSource) -> None:
        import gevent

        super().__init__(writer)
        self._gevent: Final[Any] = gevent
        # Never held across a switch, and the hub itself, which must not switch, needs it too.
        self._mutex = native("allocate_lock")()
        self._time_source = time_source
        self._took = 0
        self._alone = 0

    def _lead(self, call: Call[Any]) -> None:
        self._let_others_queue()
        calls = self._take(call)
        self._alone = self._alone + 1 if len(calls) == 1 else 0
        if len(calls) > 1 or self._took > QUICK or not self._write_in_place(calls):
            self._write_elsewhere(call, calls)

    def _to_be_woken(self, waiting: Sequence[Call[Any]]) -> Sequence[Call[Any]]:
        """Greenlets do not contend."""
        return waiting

    def _let_others_queue(self) -> None:
        """Let the other greenlets run once, unless nobody has wanted to write with us lately."""
        if self._alone % ALONE:
            return
        try:
            self._gevent.sleep(0)
        except BaseException:
            self._pass_on([])
            raise

    def _write_in_place(self, calls: Sequence[Call[Any]]) -> bool:
        if not self._writer.connected:
            return False
        try:
            written = self._timed(calls, patient=False)
        except BaseException:
            self._pass_on([])
            raise
        if written:
            self._pass_on([])
        return written

    def _write_elsewhere(self, call: Call[Any], calls: Sequence[Call[Any]]) -> None:
        """Write in a native thread. The lead ends with that, even if this greenlet is interrupted before."""
        if call.gate is None:
            call.close_gate()
        try:
            job = self._gevent.get_hub().threadpool.spawn(self._timed, calls, patient=True)
        except BaseException:
            with self._mutex:
                self._queue.extendleft(reversed(calls[1:]))
            self._pass_on([])
            raise
        job.rawlink(lambda _: self._pass_on(calls))
        call.wait()

    def _timed(self, calls: Sequence[Call[Any]], *, patient: bool) -> bool:
        began = self._time_source.boot()
        written = self._writer.run(calls, patient=patient)
        self._took = self._time_source.boot() - began
        return written
