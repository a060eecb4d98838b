"""Node-0's compaction carried out (R5). It asks the sector before each query, and never leaves a deletion unchecked."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from stacksaga_flask.directory.windows import Window
from stacksaga_flask.engine.node import Node
from stacksaga_flask.engine.takeover import compare_clock
from stacksaga_flask.errors import ClockSkew, OutcomeUnknown, StoreError
from stacksaga_flask.store.contract import LAST_WINDOW, Drop, Path, Register
from stacksagad.recovery.compaction import (
    DeleteDate,
    DeleteWindow,
    IsDateEmpty,
    IsWindowEmpty,
    PutBackDate,
    PutBackWindow,
    Request,
    compaction,
    grace,
)
from stacksagad.recovery.observed import Ended, RecoveryObserver
from stacksagad.recovery.requests import ReadDays, ReadWindows, Strange
from stacksagad.recovery.said import Said
from stacksagad.recovery.sweep import WALK_EVERY, WHOLE_RING, Sector, whole_ring

logger = logging.getLogger("stacksagad")

_NOBODY = UUID(int=0)
"""Stands where a row of tier 1 or 2 has no transaction."""


@dataclass
class CompactionSummary:
    """What one tick of the compaction did.

    Attributes:
        ended: How it ended.
        walked: Whether it was due.
        windows: How many windows were deleted from tier 2.
        dates: How many dates were deleted from tier 1.
        put_back: How many of them were put back.
    """

    ended: Ended = Ended.THROUGH
    walked: bool = False
    windows: int = 0
    dates: int = 0
    put_back: int = 0


class Compactor:
    """Prunes tiers 2 and 1 while this process is Node-0.

    Args:
        node: This process.
        sector: The sector that this process may sweep now, or None; asked before each query (R7).
        observer: Is told what happens.
        said: Says what went wrong; its own unless given.
    """

    def __init__(
        self,
        node: Node,
        *,
        sector: Callable[[], Sector | None] = whole_ring,
        observer: RecoveryObserver | None = None,
        said: Said | None = None,
    ) -> None:
        self._node = node
        self._sector = sector
        self._observer = observer or RecoveryObserver()
        self._said = said or Said(logger, node.clock.boot)
        self._grace = grace(write_timeout=node.write_timeout, skew_margin=node.settings.clock_skew_margin)
        self._ticking = threading.Lock()
        self._walked_at: int | None = None
        self._last_timestamp = 0
        self._owed: set[Window | str] = set()
        """What is to be put back and could not be."""
        self._stopping = False

    def tick(self, *, walk: bool = False) -> CompactionSummary:
        """Walk tiers 1 and 2 whole, if this process is Node-0 and ten windows have passed since the last walk.

        Args:
            walk: Walk though it is not due.
        """
        summary = CompactionSummary()
        if not self._ticking.acquire(blocking=False):
            summary.ended = Ended.ANOTHER
            return summary
        try:
            summary.ended = self._compact(summary, walk=walk)
        except ClockSkew as error:
            summary.ended = Ended.CLOCK
            self._said.say("clock", f"nothing is pruned: {error}")
        except StoreError as error:
            summary.ended = Ended.STORE
            self._said.say(type(error).__name__, f"a compaction ended early, and the next one goes on: {error}")
        finally:
            self._ticking.release()
        return summary

    def stop(self) -> None:
        """Let a tick end after the deletion that it is in."""
        self._stopping = True

    def _compact(self, summary: CompactionSummary, *, walk: bool) -> Ended:
        node = self._node
        self._pay()
        if (why_not := self._why_not()) is not None:
            return why_not
        number = node.clock.now() // node.grid.interval
        if not walk and self._walked_at is not None and 0 <= number - self._walked_at < WALK_EVERY:
            return Ended.THROUGH
        compare_clock(node)
        summary.walked = True
        steps = compaction(node.grid, now=node.clock.now(), grace=self._grace)
        answer: Any = None
        while True:
            try:
                request = steps.send(answer)
            except StopIteration:
                break
            if not _follows_a_deletion(request) and (why_not := self._why_not()) is not None:
                steps.close()
                return why_not
            answer = self._answer(summary, request)
        self._walked_at = number
        return Ended.THROUGH

    def _why_not(self) -> Ended | None:
        if self._stopping or self._node.in_flight.stopping:
            return Ended.STOPPED
        sector = self._sector()
        return None if sector is not None and sector.lowest else Ended.NO_SECTOR

    def _answer(self, summary: CompactionSummary, request: Request) -> Any:
        store = self._node.store
        match request:
            case ReadDays(year):
                return list(store.days(year))
            case ReadWindows(date, minimum, maximum):
                return list(store.windows(date, minimum=minimum, maximum=maximum))
            case IsWindowEmpty(window, deleted):
                return self._is_empty(lambda: self._instances(window), deleted=deleted)
            case IsDateEmpty(date, deleted):
                return self._is_empty(lambda: store.windows(date, minimum=0, maximum=LAST_WINDOW), deleted=deleted)
            case DeleteWindow(window):
                compare_clock(self._node)
                self._delete(2, Path(*window, "", 0))
                summary.windows += 1
                self._observer.window_pruned(window)
            case DeleteDate(date):
                compare_clock(self._node)
                self._delete(1, Path(date, 0, "", 0))
                summary.dates += 1
                self._observer.date_pruned(date)
            case PutBackWindow(place) | PutBackDate(place):
                summary.put_back += 1
                self._owed.add(place)
                self._pay()
            case Strange(what):
                self._said.say(what, f"{what}: it is passed over; no version of stacksaga writes it, so delete it")
        return None

    def _instances(self, window: Window) -> Iterator[tuple[int, str]]:
        return self._node.store.instances(*window, minimum=WHOLE_RING.minimum, maximum=WHOLE_RING.maximum)

    def _is_empty(self, read: Callable[[], Iterator[object]], *, deleted: bool) -> bool:
        try:
            return next(iter(read()), None) is None
        except StoreError:
            if deleted:
                return False
            raise

    def _delete(self, tier: int, path: Path) -> None:
        try:
            self._node.store.apply(Drop(tier=tier, path=path, timestamp=self._timestamp()))
        except OutcomeUnknown as error:
            # It may be deleted now or later, so what lies below is looked at all the same.
            self._said.say(
                "delete", f"whether {path.date} {path.window} was deleted from tier {tier} is unknown: {error}"
            )

    def _pay(self) -> None:
        """Put back what was deleted too early, at a higher timestamp than the deletion's.

        Raises:
            StoreError: It could not be; the next tick begins with it.
        """
        for place in list(self._owed):
            date, window = place if isinstance(place, Window) else (place, 0)
            # A window brings its date along, which may have gone meanwhile.
            tiers = frozenset({1, 2}) if isinstance(place, Window) else frozenset({1})
            timestamp = self._timestamp()
            self._node.store.apply(
                Register(
                    path=Path(date, window, "", 0),
                    transaction_id=_NOBODY,
                    instance_token=0,
                    tiers=tiers,
                    timestamp=timestamp,
                    day_timestamp=timestamp,
                )
            )
            self._owed.discard(place)

    def _timestamp(self) -> int:
        """The wall clock, rising (R13)."""
        self._last_timestamp = max(self._node.clock.now(), self._last_timestamp + 1)
        return self._last_timestamp


def _follows_a_deletion(request: Request) -> bool:
    """Whether a request sees to a deletion that was made, and so has to be carried out whatever happens."""
    if isinstance(request, IsWindowEmpty | IsDateEmpty):
        return request.deleted
    return isinstance(request, PutBackWindow | PutBackDate)
