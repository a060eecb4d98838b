"""The sweep carried out: reads the directory and hands pointers to re-invocation (R4, R5, R7, R14).

One tick goes through everything that is sealed and returns when the last pointer was handed over; it does not wait for
what is in flight, so a slow transaction keeps its own bucket and stops nobody else. What is not durable stays in the
directory: the next tick, or another process, finds it again. So nothing has to be remembered over a restart.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from stacksaga_flask.directory.windows import Window
from stacksaga_flask.engine.circuit import Circuit
from stacksaga_flask.engine.node import Node
from stacksaga_flask.engine.takeover import compare_clock
from stacksaga_flask.errors import ClockSkew, StoreError
from stacksaga_flask.store.contract import Path
from stacksagad.recovery.dispatcher import Dispatcher, Reinvoke, Tick
from stacksagad.recovery.drops import drop_instance
from stacksagad.recovery.observed import Ended, RecoveryObserver, TickSummary
from stacksagad.recovery.requests import (
    BucketRead,
    Dispatch,
    DropInstance,
    ReadBuckets,
    ReadDays,
    ReadInstances,
    ReadPointers,
    ReadWindows,
    Request,
    Strange,
    Visited,
    WindowsFound,
)
from stacksagad.recovery.said import Said
from stacksagad.recovery.sweep import Cursor, Sector, horizon, sweep, whole_ring
from stacksagad.recovery.workers import Workers

logger = logging.getLogger("stacksagad")


class Sweeper:
    """Sweeps one sector for one process.

    Args:
        node: This process.
        reinvoke: Goes on with a transaction that was found, as `Engine.reinvoke` does.
        workers: Run the re-invocations; they bound how many are in flight.
        sector: The sector that this process may sweep now, or None; asked before each query and dispatch (R7).
        observer: Is told what happens.
        said: Says what went wrong; its own unless given.
    """

    def __init__(
        self,
        node: Node,
        reinvoke: Reinvoke,
        *,
        workers: Workers,
        sector: Callable[[], Sector | None] = whole_ring,
        observer: RecoveryObserver | None = None,
        said: Said | None = None,
    ) -> None:
        self._node = node
        self._workers = workers
        self._sector = sector
        self._observer = observer or RecoveryObserver()
        self._said = said or Said(logger, node.clock.boot)
        self._dispatcher = Dispatcher(node, reinvoke, workers, self._observer, self._said)
        self._cursor = Cursor()
        self._ticking = threading.Lock()
        self._position: Window | None = None
        self._stopping = False

    def tick(self, *, walk: bool = False) -> TickSummary:
        """Sweep everything that is sealed, and return once it was handed over or the tick had to end early.

        Args:
            walk: Walk tiers 1 and 2 whole, though it is not due.
        """
        summary = TickSummary()
        if not self._ticking.acquire(blocking=False):
            summary.ended = Ended.ANOTHER
            return summary
        try:
            summary.ended = self._sweep(Tick(summary, Circuit()), walk=walk)
        except ClockSkew as error:
            summary.ended, summary.error = Ended.CLOCK, error
            self._said.say("clock", f"nothing is swept: {error}")
        except StoreError as error:
            summary.ended, summary.error = Ended.STORE, error
            self._said.say(f"sweep {type(error).__name__}", f"a sweep ended early, and the next one goes on: {error}")
        finally:
            clear = self._dispatcher.cut(summary)
            self._ticking.release()
        clear()
        summary.oldest_unfinished = self.oldest_unfinished
        self._observer.tick_ended(summary)
        return summary

    def sweep_everything(self) -> TickSummary:
        """Walk the whole directory, sweep it, and return once nothing that was found is in flight any more."""
        summary = self.tick(walk=True)
        self._workers.drain()
        while summary.ended is Ended.THROUGH and summary.skipped:
            # A transaction that two pointers led to is looked at again when the first one has ended.
            later = self.tick()
            self._workers.drain()
            summary = summary.followed_by(later)
        summary.oldest_unfinished = self.oldest_unfinished
        return summary

    def stop(self) -> None:
        """Hand nothing over any more: a tick ends, what is in flight goes on, and unfinished buckets stay (R4).

        It takes a lock, so it is not for the handler of a signal.
        """
        self._stopping = True
        self._workers.stop()

    @property
    def in_flight(self) -> int:
        """How many re-invocations are running or about to."""
        return self._dispatcher.in_flight

    @property
    def unfinished(self) -> int:
        """How many buckets were begun and are not dropped."""
        return self._dispatcher.buckets

    @property
    def oldest_unfinished(self) -> Window | None:
        """The oldest sealed window that is known not to be finished."""
        reached = set() if self._position is None else {self._position}
        return min(self._dispatcher.windows | reached, default=None)

    # -- a tick ------------------------------------------------------------------------------------------------

    def _sweep(self, tick: Tick, *, walk: bool) -> Ended:
        self._dispatcher.tick_begins()
        sector = self._sector()
        if sector is None:
            return Ended.NO_SECTOR
        # The first comparison, which may move the clock.
        compare_clock(self._node)
        seen = horizon(self._node.grid, now=self._node.clock.now(), seal_delay=self._node.settings.seal_delay)
        steps = sweep(self._cursor, seen, sector, walk=walk)
        answer: Any = None
        while True:
            try:
                request = steps.send(answer)
            except StopIteration:
                break
            why_not = self._why_not(sector)
            if why_not is not None:
                steps.close()
                return why_not
            answer = self._answer(tick, request)
        self._position = None
        self._dispatcher.forget_all_but(self._cursor.unfinished)
        return Ended.THROUGH

    def _why_not(self, sector: Sector) -> Ended | None:
        """Why the sweep may not go on (R7, R14)."""
        if self._stopping or self._dispatcher.is_refused or self._node.in_flight.stopping:
            return Ended.STOPPED
        present = self._sector()
        if present is None or not present.holds(sector):
            return Ended.NO_SECTOR
        if self._dispatcher.is_store_away:
            self._said.say("away", "a sweep ended early, and the next one goes on: re-invocations get no answer")
            return Ended.STORE
        compare_clock(self._node)
        return None

    def _answer(self, tick: Tick, request: Request) -> Any:
        store = self._node.store
        match request:
            case ReadDays(year):
                return list(store.days(year))
            case ReadWindows(date, minimum, maximum):
                return list(store.windows(date, minimum=minimum, maximum=maximum))
            case ReadInstances(window, minimum, maximum):
                self._position = window
                return list(store.instances(*window, minimum=minimum, maximum=maximum))
            case ReadBuckets(window, instance_id):
                return list(store.buckets(*window, instance_id))
            case ReadPointers(path, token):
                return self._dispatcher.next_page(path, token)
            case Dispatch():
                return self._dispatcher.dispatch(tick, request)
            case BucketRead():
                return self._dispatcher.bucket_read(tick.summary)
            case DropInstance(window, token, instance_id):
                return drop_instance(self._node, Path(*window, instance_id, 0), token)
            case _:
                return self._note(tick.summary, request)

    def _note(self, summary: TickSummary, request: Request) -> None:
        match request:
            case WindowsFound(windows, walked):
                summary.found, summary.walked = windows, walked
                self._observer.windows_found(summary)
            case Visited(window):
                summary.visited += 1
                self._observer.window_visited(window, summary)
            case Strange(what):
                self._said.say(what, f"{what}: it is passed over; no version of stacksaga writes it, so delete it")
