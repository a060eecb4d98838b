"""What Node-0 deletes next from tiers 2 and 1: pure, a generator of requests as the sweep is (R5, R12).

Two gates lie before each deletion. A window goes once tier 3 is empty over the whole ring and the grace has passed
since its end; a date goes once it has no window and the grace has passed since its end. After each deletion the tier
below is read again, and the row is put back if something is there or could not be read. Every step may be repeated,
and two Node-0s at once do no harm. Tiers 1 and 2 are walked whole each time, since a cursor would pass over what was
left behind by a process that died.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, NamedTuple, TypeAlias

from stacksaga_flask.directory.windows import DAY, Window, WindowGrid, recovery_years, start_of_date
from stacksaga_flask.store.contract import LAST_WINDOW
from stacksagad.recovery.requests import ReadDays, ReadWindows, Strange, is_date_of, strange_date, strange_window


class IsWindowEmpty(NamedTuple):
    """Tier 3 over the whole ring. Answer: whether there is no instance of the window."""

    window: Window
    deleted: bool
    """Whether its row of tier 2 was deleted just now: then *could not be read* is answered with False."""


class DeleteWindow(NamedTuple):
    """Delete a row of tier 2. No answer."""

    window: Window


class PutBackWindow(NamedTuple):
    """Put a row of tier 2 back. No answer."""

    window: Window


class IsDateEmpty(NamedTuple):
    """Tier 2. Answer: whether the date has no window."""

    date: str
    deleted: bool
    """Whether its row of tier 1 was deleted just now: then *could not be read* is answered with False."""


class DeleteDate(NamedTuple):
    """Delete a row of tier 1. No answer."""

    date: str


class PutBackDate(NamedTuple):
    """Put a row of tier 1 back. No answer."""

    date: str


Request: TypeAlias = (
    ReadDays
    | ReadWindows
    | IsWindowEmpty
    | DeleteWindow
    | PutBackWindow
    | IsDateEmpty
    | DeleteDate
    | PutBackDate
    | Strange
)
Steps: TypeAlias = Generator[Request, Any, None]


def grace(*, write_timeout: int, skew_margin: int) -> int:
    """How long after its end something may be deleted, in microseconds: two write timeouts + 2δ (R5)."""
    return 2 * write_timeout + 2 * skew_margin


def compaction(grid: WindowGrid, *, now: int, grace: int) -> Steps:
    """One walk over tiers 1 and 2.

    Args:
        grid: The scope's grid of windows.
        now: The time, in microseconds.
        grace: See `grace`.
    """
    over = now - grace
    for year in recovery_years(now):
        dates: Iterable[str] = yield ReadDays(year)
        for date in dates:
            if not is_date_of(year, date):
                yield strange_date(year, date)
            elif start_of_date(date) < over:
                yield from _windows_of(grid, date, over)
                yield from _date(date, over)


def _windows_of(grid: WindowGrid, date: str, over: int) -> Steps:
    numbers: Iterable[int] = yield ReadWindows(date, 0, LAST_WINDOW)
    for number in numbers:
        window = Window(date, number)
        if not 0 <= number < DAY // grid.interval:
            yield strange_window(window)
        elif grid.opens(window) + grid.interval <= over:
            yield from _window(window)


def _window(window: Window) -> Steps:
    if (yield IsWindowEmpty(window, deleted=False)):
        yield DeleteWindow(window)
        if not (yield IsWindowEmpty(window, deleted=True)):
            yield PutBackWindow(window)


def _date(date: str, over: int) -> Steps:
    if start_of_date(date) + DAY <= over and (yield IsDateEmpty(date, deleted=False)):
        yield DeleteDate(date)
        if not (yield IsDateEmpty(date, deleted=True)):
            yield PutBackDate(date)
