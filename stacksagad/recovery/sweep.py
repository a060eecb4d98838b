"""What a sweep does next: pure, a generator of requests that are answered by `send` (R4, R5, R7, R12).

From tier 1 down to tier 5 it asks for what it must read, and hands out pointers strictly oldest first: by date, window,
token of the instance, bucket, and within a bucket in the order of the store. Only sealed windows are looked at.
A `Cursor` makes a sweep cheap that finds nothing: of the windows that have passed since the last one it reads tier 2
once. That is only a short cut, so tiers 1 and 2 are walked whole at start, every ten windows and on demand.
"""

from __future__ import annotations

import datetime
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from stacksaga_flask.directory.windows import DAY, Window, WindowGrid, recovery_years
from stacksaga_flask.store.contract import LAST_WINDOW, Path
from stacksagad.recovery.requests import (
    BucketRead,
    Dispatch,
    DropInstance,
    Page,
    ReadBuckets,
    ReadDays,
    ReadInstances,
    ReadPointers,
    ReadWindows,
    Request,
    Steps,
    Visited,
    WindowsFound,
    is_date_of,
    strange_date,
    strange_window,
)

WALK_EVERY: Final = 10
"""Windows between two walks over the whole of tiers 1 and 2."""


class Sector(NamedTuple):
    """A token range of the ring, both ends included."""

    minimum: int
    maximum: int

    def holds(self, other: Sector) -> bool:
        """Whether the other lies in this one."""
        return self.minimum <= other.minimum and other.maximum <= self.maximum

    @property
    def lowest(self) -> bool:
        """Whether it makes its node Node-0."""
        return self.minimum == WHOLE_RING.minimum


WHOLE_RING: Final = Sector(-(2**63), 2**63 - 1)


def whole_ring() -> Sector:
    """The sector of a node that nobody shares the ring with."""
    return WHOLE_RING


# -- what one sweep leaves to the next -------------------------------------------------------------------------


@dataclass
class Cursor:
    """How far the sweeps of one process have come. A sweep that is cut short leaves it right.

    Attributes:
        sector: The sector that the rest holds for.
        seen_until: The last window that was visited, as were all sealed ones before it.
        unfinished: Windows in which the last visit found something of the sector.
        walked_at: Number of the window, from 1970, at the last whole walk.
    """

    sector: Sector | None = None
    seen_until: Window | None = None
    unfinished: set[Window] = field(default_factory=set)
    walked_at: int | None = None

    def enter(self, sector: Sector) -> None:
        """Begin a sweep of the sector: what it has more than the last one has not been looked at."""
        if self.sector is None or not self.sector.holds(sector):
            self.seen_until = self.walked_at = None
        self.sector = sector

    def saw(self, window: Window) -> None:
        """All sealed windows up to this one have been visited."""
        self.seen_until = window if self.seen_until is None else max(self.seen_until, window)


class Horizon(NamedTuple):
    """What a sweep looks at, fixed at its beginning.

    Attributes:
        now: The time, in microseconds.
        number: Number of the last sealed window, from 1970.
        until: The last sealed window.
        last_window: The highest window of a day.
    """

    now: int
    number: int
    until: Window
    last_window: int


def horizon(grid: WindowGrid, *, now: int, seal_delay: int) -> Horizon:
    """What is sealed at a time; times in microseconds."""
    sealed = now - seal_delay
    return Horizon(
        now=now,
        number=sealed // grid.interval,
        until=grid.at(sealed),
        last_window=DAY // grid.interval - 1,
    )


# -- the sweep -------------------------------------------------------------------------------------------------


def sweep(cursor: Cursor, seen: Horizon, sector: Sector, *, walk: bool = False) -> Steps:
    """One sweep.

    Args:
        cursor: That of the last sweep; moved on as this one goes.
        seen: What to look at.
        sector: The node's; it must not lose any of it while the sweep goes on.
        walk: Walk tiers 1 and 2 whole, though it is not due.
    """
    cursor.enter(sector)
    walk = walk or _is_walk_due(cursor, seen)
    if walk or cursor.seen_until is None:
        found = yield from _walked(seen)
    else:
        found = yield from _since(cursor.seen_until, seen)
    windows = sorted(found | cursor.unfinished)
    yield WindowsFound(len(windows), walk)
    for window in windows:
        yield from _visit(cursor, window, sector)
        if walk or window in found:
            cursor.saw(window)
    cursor.saw(seen.until)
    if walk:
        cursor.walked_at = seen.number


def _is_walk_due(cursor: Cursor, seen: Horizon) -> bool:
    if cursor.seen_until is None or cursor.walked_at is None:
        return True
    # A clock that was set back must not put the walk off.
    return not 0 <= seen.number - cursor.walked_at < WALK_EVERY


def _walked(seen: Horizon) -> Generator[Request, Any, set[Window]]:
    """All sealed windows that there are."""
    found: set[Window] = set()
    dates: list[str] = []
    for year in recovery_years(seen.now):
        days: Iterable[str] = yield ReadDays(year)
        dates += yield from _dates(year, days)
    for date in dates:
        if date < seen.until.date:
            found |= yield from _windows(seen, date, 0, LAST_WINDOW)
        elif date == seen.until.date:
            found |= yield from _windows(seen, date, 0, seen.until.window)
    return found


def _since(passed: Window, seen: Horizon) -> Generator[Request, Any, set[Window]]:
    """The windows that were sealed after the one that was seen last: one range, or two over midnight."""
    found: set[Window] = set()
    date, window = passed
    while date <= seen.until.date:
        maximum = seen.until.window if date == seen.until.date else seen.last_window
        if window < maximum:
            found |= yield from _windows(seen, date, window + 1, maximum)
        date, window = _day_after(date), -1
    return found


def _day_after(date: str) -> str:
    return (datetime.date.fromisoformat(date) + datetime.timedelta(days=1)).isoformat()


def _dates(year: int, days: Iterable[str]) -> Generator[Request, Any, list[str]]:
    dates = []
    for date in days:
        if is_date_of(year, date):
            dates.append(date)
        else:
            yield strange_date(year, date)
    return dates


def _windows(seen: Horizon, date: str, minimum: int, maximum: int) -> Generator[Request, Any, set[Window]]:
    numbers: Iterable[int] = yield ReadWindows(date, minimum, maximum)
    found = set()
    for number in numbers:
        if 0 <= number <= seen.last_window:
            found.add(Window(date, number))
        else:
            yield strange_window(Window(date, number))
    return found


def _visit(cursor: Cursor, window: Window, sector: Sector) -> Steps:
    cursor.unfinished.add(window)
    instances: Iterable[tuple[int, str]] = yield ReadInstances(window, sector.minimum, sector.maximum)
    is_empty = True
    for token, instance_id in instances:
        is_empty = False
        yield from _instance(window, token, instance_id)
    if is_empty:
        cursor.unfinished.discard(window)
    yield Visited(window)


def _instance(window: Window, token: int, instance_id: str) -> Steps:
    buckets: Iterable[int] = yield ReadBuckets(window, instance_id)
    is_empty = True
    for bucket in buckets:
        is_empty = False
        yield from _bucket(Path(*window, instance_id, bucket), token)
    if is_empty:
        yield DropInstance(window, token, instance_id)


def _bucket(path: Path, token: int) -> Steps:
    is_last = False
    while not is_last:
        page: Page | None = yield ReadPointers(path, token)
        if page is None:
            return
        for transaction_id in page.transaction_ids:
            yield Dispatch(path, transaction_id)
        is_last = page.last
    yield BucketRead(path)
