"""What recovery tells others: a summary of each tick, and an observer for counters and progress."""

from __future__ import annotations

import enum
import threading
from collections import Counter
from dataclasses import dataclass, field, replace

from stacksaga_flask.directory.windows import Window
from stacksaga_flask.store.contract import Path


class Ended(enum.Enum):
    """How a tick ended."""

    THROUGH = "everything sealed was visited"
    STOPPED = "the node is stopping"
    NO_SECTOR = "the ring lease ended or its sector changed"
    CLOCK = "the clock is not to be trusted"
    STORE = "the event store is away"
    ANOTHER = "another tick is running"


@dataclass
class TickSummary:
    """What one tick of the sweep did. Outcomes go on coming in until nothing that it handed over is in flight.

    Attributes:
        ended: How it ended.
        walked: Whether tiers 1 and 2 were walked whole.
        found: How many windows it was going to visit.
        visited: How many windows it has visited.
        buckets: How many buckets were read to their end.
        dispatched: How many pointers were handed to re-invocation.
        skipped: How many were not, since their transaction is in flight in this process.
        outcomes: What re-invocations led to, by `Reinvocation.outcome`.
        failures: Re-invocations that ended with an error, by its class.
        dropped: How many buckets were dropped.
        kept: How many buckets stay, as something in them is not durable yet (R4).
        error: What ended the tick early.
        oldest_unfinished: The oldest window that was not finished when the tick ended.
    """

    ended: Ended = Ended.THROUGH
    walked: bool = False
    found: int = 0
    visited: int = 0
    buckets: int = 0
    dispatched: int = 0
    skipped: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    dropped: int = 0
    kept: int = 0
    error: Exception | None = None
    oldest_unfinished: Window | None = None

    def followed_by(self, later: TickSummary) -> TickSummary:
        """The two as one: counts add up, and the later one tells how it stands."""
        return replace(
            later,
            walked=self.walked or later.walked,
            found=self.found + later.found,
            visited=self.visited + later.visited,
            buckets=self.buckets + later.buckets,
            dispatched=self.dispatched + later.dispatched,
            outcomes=self.outcomes + later.outcomes,
            failures=self.failures + later.failures,
            dropped=self.dropped + later.dropped,
        )


class RecoveryObserver:
    """Is told what recovery does, from the thread that does it. Nothing here may raise, wait or take long."""

    def windows_found(self, summary: TickSummary) -> None:
        """A tick knows which windows it is going to visit."""

    def window_visited(self, window: Window, summary: TickSummary) -> None:
        """A visit to a window has ended; what it found may still be in flight."""

    def dispatched(self, path: Path) -> None:
        """A pointer is handed to re-invocation."""

    def ended(self, outcome: str, *, durable: bool) -> None:
        """A re-invocation has led to something."""

    def failed(self, error: Exception) -> None:
        """A re-invocation ended with an error; its pointer stays."""

    def bucket_dropped(self, path: Path) -> None:
        """A bucket was dropped, as everything in it is durable."""

    def tick_ended(self, summary: TickSummary) -> None:
        """A tick of the sweep has ended."""

    def window_pruned(self, window: Window) -> None:
        """Node-0 deleted a window from tier 2."""

    def date_pruned(self, date: str) -> None:
        """Node-0 deleted a date from tier 1."""


class RecoveryCounters(RecoveryObserver):
    """Counts since the process began.

    Attributes:
        outcomes: Re-invocations by what they led to.
        failures: Re-invocations that ended with an error, by its class.
        ticks: Ticks by how they ended.
        totals: ``dispatched``, ``buckets dropped``, ``windows pruned``, ``dates pruned``.
        oldest_unfinished: As of the last tick.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.outcomes: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.ticks: Counter[Ended] = Counter()
        self.totals: Counter[str] = Counter()
        self.oldest_unfinished: Window | None = None

    def dispatched(self, path: Path) -> None:
        """Count it."""
        self._add(self.totals, "dispatched")

    def ended(self, outcome: str, *, durable: bool) -> None:
        """Count it."""
        self._add(self.outcomes, outcome)

    def failed(self, error: Exception) -> None:
        """Count it."""
        self._add(self.failures, type(error).__name__)

    def bucket_dropped(self, path: Path) -> None:
        """Count it."""
        self._add(self.totals, "buckets dropped")

    def tick_ended(self, summary: TickSummary) -> None:
        """Count it."""
        with self._lock:
            self.ticks[summary.ended] += 1
            self.oldest_unfinished = summary.oldest_unfinished

    def window_pruned(self, window: Window) -> None:
        """Count it."""
        self._add(self.totals, "windows pruned")

    def date_pruned(self, date: str) -> None:
        """Count it."""
        self._add(self.totals, "dates pruned")

    def _add(self, counter: Counter[str], key: str) -> None:
        with self._lock:
            counter[key] += 1
