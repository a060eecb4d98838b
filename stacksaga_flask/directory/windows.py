"""Pure arithmetic of windows, fences and directory timestamps (R3, R10, R13, R15).

A window is the index of a slice of the UTC day. As the interval divides the day, windows can be numbered through
from 1970, which makes midnight and the year's end ordinary.
"""

from __future__ import annotations

import datetime
from functools import lru_cache
from typing import NamedTuple

from stacksaga_flask.clock import SECOND
from stacksaga_flask.store.contract import Path

DAY = 86_400 * SECOND
_EPOCH_ORDINAL = datetime.date(1970, 1, 1).toordinal()


class Window(NamedTuple):
    """One window: its UTC date ``YYYY-MM-DD`` and its number in that day, from 0."""

    date: str
    window: int


@lru_cache(maxsize=64)
def _date_of(day: int) -> str:
    return datetime.date.fromordinal(_EPOCH_ORDINAL + day).isoformat()


@lru_cache(maxsize=64)
def start_of_date(date: str) -> int:
    """The first microsecond of a UTC date, which is the timestamp of its row in tier 1 (R13).

    Raises:
        ValueError: It is no date.
    """
    return (datetime.date.fromisoformat(date).toordinal() - _EPOCH_ORDINAL) * DAY


class WindowGrid:
    """The grid of windows that all processes of a scope share (R15).

    Args:
        interval: Length of a window in seconds; divides 86 400.
        skew_margin: δ in microseconds.
    """

    def __init__(self, *, interval: int, skew_margin: int) -> None:
        if interval < 1 or 86_400 % interval:
            raise ValueError(f"a window interval of {interval} s does not divide the day")
        self.interval = interval * SECOND
        self.skew_margin = skew_margin
        self.windows_a_day = 86_400 // interval

    def at(self, now: int) -> Window:
        """The window that a time falls in."""
        return self._window(now // self.interval)

    def opens(self, window: Window | Path) -> int:
        """The first microsecond of a window: until then it may be written, from then on swept."""
        return start_of_date(window[0]) + window[1] * self.interval

    def fence(self, window: Window | Path) -> int:
        """When the right to write what a pointer in the window names ends: ``open(w) - δ``."""
        return self.opens(window) - self.skew_margin

    def ahead(self, now: int, windows: int) -> Window:
        """The window that lies so many windows after the present one."""
        return self._window(now // self.interval + windows)

    def write_window(self, now: int, *, delay_windows: int, not_before: int, write_timeout: int) -> Window:
        """The window for a pointer written now (R3).

        Args:
            now: The present time.
            delay_windows: How many windows ahead, at least 1.
            not_before: The window must not open before this time (`Retry-After`).
            write_timeout: How long a write may take, in microseconds. With less than δ and this left before the
                fence, the next window is taken at once.
        """
        number = max(now // self.interval + delay_windows, -(-not_before // self.interval))
        while number * self.interval - self.skew_margin - now < self.skew_margin + write_timeout:
            number += 1
        return self._window(number)

    def insert_timestamp(self, window: Window | Path) -> int:
        """Timestamp of the rows of tiers 2 to 5 of a window (R13)."""
        return self.opens(window) - 2

    def delete_timestamp(self, window: Window | Path) -> int:
        """Timestamp of the delete of a pointer in a window (R13)."""
        return self.opens(window) - 1

    def _window(self, number: int) -> Window:
        day, index = divmod(number, self.windows_a_day)
        return Window(_date_of(day), index)


def recovery_years(now: int) -> range:
    """The years of tier 1 that may hold anything: from two years back to the next one (R12)."""
    year = datetime.datetime.fromtimestamp(now / SECOND, datetime.timezone.utc).year
    return range(year - 2, year + 2)
