"""The scheduled jobs of the daemon: the only place that imports apscheduler.

Each tick lies on a grid of the *clock* (R14), not of the machine's wall clock: that one may be set back by an hour,
and the scheduler would wait for it. Of several runs that are due one is made, one at a time; those that were left out
are counted as missed. The scheduler's threads are greenlets where gevent has replaced threads, so that
`GeventScheduler`, whose `shutdown` does not wait, is not needed.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from apscheduler.schedulers.background import BackgroundScheduler
from apscheduler.triggers.base import BaseTrigger

from stacksaga_flask.clock import Clock

logger = logging.getLogger("stacksagad")

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MICROSECOND: Final = datetime.timedelta(microseconds=1)


class Tick:
    """A scheduled job.

    Attributes:
        name: What it does.
        every: Microseconds between two runs.
        offset: The runs lie so many microseconds after the multiples of `every`.
        at_start: Whether it runs at once too.
        runs: How often it ran.
        missed: How many runs were left out, since the one before took too long or the machine slept.
        failed: How many runs ended with an error that nobody foresaw.
    """

    def __init__(
        self, name: str, run: Callable[[], object], *, every: int, offset: int = 0, at_start: bool = True
    ) -> None:
        self.name = name
        self.every = every
        self.offset = offset
        self.at_start = at_start
        self.runs = self.missed = self.failed = 0
        self.running = False
        self._run = run
        self._last: int | None = None

    def due(self, now: int) -> int:
        """The latest time on the grid that is not after `now`, in microseconds since 1970."""
        return (now - self.offset) // self.every * self.every + self.offset

    def run(self, now: int) -> None:
        """Run once; what goes wrong is logged, and the next run is made all the same."""
        due = self.due(now)
        if self._last is not None:
            self.missed += max(0, (due - self._last) // self.every - 1)
        self._last = due
        self.runs += 1
        self.running = True
        try:
            self._run()
        except Exception:
            self.failed += 1
            logger.exception("the tick %r failed; the next one goes on", self.name)
        finally:
            self.running = False


class Ticks:
    """Runs ticks in the background, by the clock.

    Args:
        clock: The node's.
        ticks: What to run.
    """

    def __init__(self, clock: Clock, ticks: list[Tick]) -> None:
        self.ticks = ticks
        self._zone = _ClockZone(clock)
        self._scheduler = BackgroundScheduler(timezone=self._zone)
        for tick in ticks:
            begins = {"next_run_time": self._zone.now()} if tick.at_start else {}
            self._scheduler.add_job(
                partial(_run, tick, clock),
                _Grid(tick),
                name=tick.name,
                coalesce=True,
                max_instances=1,
                # However late it is, what it would have found is still there.
                misfire_grace_time=None,
                **begins,
            )

    def start(self) -> None:
        """Begin."""
        self._scheduler.start()

    def stop(self) -> None:
        """Begin no run any more. Those that run are not waited for; see `running`."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    @property
    def running(self) -> list[str]:
        """The names of the ticks that run now."""
        return [tick.name for tick in self.ticks if tick.running]

    @property
    def missed(self) -> int:
        """How many runs were left out."""
        return sum(tick.missed for tick in self.ticks)


def _run(tick: Tick, clock: Clock) -> None:
    tick.run(clock.now())


class _Grid(BaseTrigger):  # type: ignore[misc]
    """The times of a tick."""

    def __init__(self, tick: Tick) -> None:
        self._tick = tick

    def get_next_fire_time(
        self, previous_fire_time: datetime.datetime | None, now: datetime.datetime
    ) -> datetime.datetime:
        """The first time on the grid after both."""
        moment = (max(now, previous_fire_time or now) - _EPOCH) // _MICROSECOND
        following = self._tick.due(moment) + self._tick.every
        return (_EPOCH + following * _MICROSECOND).replace(tzinfo=now.tzinfo)


class _ClockZone(datetime.tzinfo):
    """Where apscheduler takes its *now* from: it asks for the present time in its time zone.

    In this one, which has the offset of UTC, the present time is the clock's.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> datetime.datetime:
        """The clock's time."""
        return (_EPOCH + self._clock.now() * _MICROSECOND).replace(tzinfo=self)

    def fromutc(self, moment: datetime.datetime) -> datetime.datetime:
        return self.now()

    def utcoffset(self, moment: datetime.datetime | None) -> datetime.timedelta:
        return datetime.timedelta(0)

    def dst(self, moment: datetime.datetime | None) -> datetime.timedelta:
        return datetime.timedelta(0)

    def tzname(self, moment: datetime.datetime | None) -> str:
        return "clock"
