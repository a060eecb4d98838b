"""The only module that asks what time it is (R14).

*Now* is the wall clock read at the last comparison with the store's clock, plus the time elapsed since then on a
clock that runs through suspend and that nobody can set (CLOCK_BOOTTIME). All times are whole microseconds.

macOS has no CLOCK_BOOTTIME: there the elapsed time stands still while the machine sleeps, so a right to write may
seem to last longer than it does. That is enough for development and no more.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import Protocol

from stacksaga_flask.errors import ClockSkew, UnsupportedPlatform

SECOND = 1_000_000
COMPARE_EVERY = 60 * SECOND
_QUESTIONS = 3


class TimeSource(Protocol):
    """Where time comes from. Tests move one of their own."""

    def wall(self) -> int:
        """Microseconds since 1970, UTC, as the machine believes."""

    def boot(self) -> int:
        """Microseconds since some moment in the past; never set, never stopped."""

    def sleep(self, microseconds: int) -> None:
        """Let that much time pass."""


class SystemTime:
    """The machine's clocks."""

    def __init__(self) -> None:
        if sys.platform.startswith("linux"):
            self._boot_clock = time.CLOCK_BOOTTIME
        elif sys.platform == "darwin":
            self._boot_clock = time.CLOCK_MONOTONIC
        else:
            raise UnsupportedPlatform(
                f"stacksaga_flask runs on Linux, and on macOS for development; this is {sys.platform!r}"
            )

    def wall(self) -> int:
        return time.time_ns() // 1000

    def boot(self) -> int:
        return time.clock_gettime_ns(self._boot_clock) // 1000

    def sleep(self, microseconds: int) -> None:
        time.sleep(max(0, microseconds) / SECOND)


class ManualTime:
    """Time that stands still until it is moved."""

    def __init__(self, wall: int = 1_700_000_000 * SECOND) -> None:
        self._wall = wall
        self._boot = 0

    def wall(self) -> int:
        return self._wall

    def boot(self) -> int:
        return self._boot

    def sleep(self, microseconds: int) -> None:
        self.advance(microseconds)

    def advance(self, microseconds: int) -> None:
        """Let time pass, on both clocks."""
        self._wall += microseconds
        self._boot += microseconds

    def set_wall(self, microseconds: int) -> None:
        """Step the wall clock, as an operator or NTP may, while no time passes."""
        self._wall = microseconds


class Clock:
    """A process's idea of now, compared with the store's clock at start and every minute (R14)."""

    def __init__(self, source: TimeSource, *, skew_margin: int) -> None:
        self._source = source
        self._skew_margin = skew_margin
        self._lock = threading.Lock()
        # One tuple, so that a reader never sees half of a comparison.
        self._base = (source.wall(), source.boot())
        self._compared_at: int | None = None

    def now(self) -> int:
        """Microseconds since 1970, UTC."""
        return self.at(self._source.boot())

    def at(self, boot: int) -> int:
        """What `now` was or will be when `boot` is this, unless a comparison lies between."""
        wall, base = self._base
        return wall + boot - base

    def boot(self) -> int:
        """Microseconds elapsed since some moment in the past."""
        return self._source.boot()

    def sleep(self, microseconds: int) -> None:
        """Let that much time pass."""
        self._source.sleep(microseconds)

    def compare(self, store_now: Callable[[], int]) -> None:
        """Compare with the store's clock, unless that was done less than a minute ago.

        Raises:
            ClockSkew: The two differ by more than the clock skew margin. Nothing may be started or armed.
            StoreError: The store did not tell its time.
        """
        if self._is_compared():
            return
        with self._lock:
            if self._is_compared():
                return
            self._compared_at = None
            for _ in range(_QUESTIONS):
                asked = self._source.boot()
                theirs = store_now()
                answered, wall = self._source.boot(), self._source.wall()
                if answered - asked <= self._skew_margin:
                    break
            else:
                raise ClockSkew(
                    f"the store took {(answered - asked) / SECOND:.3f} s to tell its time, so this machine's clock "
                    f"cannot be compared to within STACKSAGA_CLOCK_SKEW_MARGIN ({self._skew_margin / SECOND} s): see "
                    f"why it is slow; nothing is started until then"
                )
            skew = wall - (answered - asked) // 2 - theirs
            if abs(skew) > self._skew_margin:
                raise ClockSkew(
                    f"this machine's clock is {skew / SECOND:+.3f} s from the store's, and "
                    f"STACKSAGA_CLOCK_SKEW_MARGIN is {self._skew_margin / SECOND} s: set the clock (NTP); "
                    f"nothing is started until then"
                )
            self._base = (wall, answered)
            self._compared_at = answered

    def _is_compared(self) -> bool:
        compared_at = self._compared_at
        return compared_at is not None and self._source.boot() - compared_at < COMPARE_EVERY
