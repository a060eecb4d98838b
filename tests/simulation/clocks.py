"""The clocks of processes and of the store, each off by a little, which the seed sets and steps (R14)."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation.scheduler import Scheduler


class ProcessTime:
    """A process's clocks.

    Args:
        scheduler: Whose time passes.
        skew: By how much its wall clock is ahead, in microseconds.
        waits: Called before each wait: a process may be killed or stopped there.
    """

    def __init__(self, scheduler: Scheduler, skew: int, waits: Callable[[], None]) -> None:
        self._scheduler = scheduler
        self._waits = waits
        self.skew = skew
        self._booted = scheduler.now - 1_000_000
        self.jump = 0
        """What somebody has set the wall clock forward by, and NTP will take back."""

    def wall(self) -> int:
        return self._scheduler.now + self.skew + self.jump

    def boot(self) -> int:
        return self._scheduler.now - self._booted

    def sleep(self, microseconds: int) -> None:
        self._waits()
        self._scheduler.sleep(microseconds)


class StoreTime:
    """The store's clock: the true time."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def wall(self) -> int:
        return self._scheduler.now

    def boot(self) -> int:
        return self._scheduler.now

    def sleep(self, microseconds: int) -> None:
        self._scheduler.sleep(microseconds)
