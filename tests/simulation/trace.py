"""What happened, in the order in which it did; put into words only when somebody wants to read it."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.simulation.processes import Process
    from tests.simulation.scheduler import Scheduler


class Event(NamedTuple):
    """One line of a trace."""

    when: int
    who: str
    what: str


class Trace:
    """Everything that happened in one world."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.events: list[Event] = []

    def add(self, process: Process | None, what: str) -> None:
        """Add what a process did, or what happened by itself."""
        task = self._scheduler.current
        who = "-" if process is None else process.name
        if task is not None and task.process is process:
            who = f"{who}/{task.name}"
        self.events.append(Event(self._scheduler.now, who, what))

    def lines(self) -> list[str]:
        """The trace in words."""
        return [f"{_time(event.when)} {event.who:<16} {event.what}" for event in self.events]


def shortened(lines: list[str], last: int) -> list[str]:
    """The end of a trace without what a sweep reads in vain."""
    return [line for line in lines if " read tier " not in line and " read clock" not in line][-last:]


def _time(when: int) -> str:
    moment = datetime.datetime.fromtimestamp(when / 1_000_000, datetime.timezone.utc)
    return moment.strftime("%d %H:%M:%S.%f")[:-3]
