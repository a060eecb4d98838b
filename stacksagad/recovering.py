"""What a retry node does to its directory and its neighbours, put together for `stacksagad.service`."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Final
from uuid import UUID

from stacksaga_flask import Engine, NotStarted
from stacksaga_flask.clock import SECOND
from stacksaga_flask.engine.lock_file import lock_files_of
from stacksaga_flask.engine.node import Node
from stacksaga_flask.engine.reinvoke import Found, Reinvocation
from stacksagad.recovery.compactor import Compactor
from stacksagad.recovery.instant import Finder
from stacksagad.recovery.observed import Ended, RecoveryCounters, TickSummary
from stacksagad.recovery.said import Said
from stacksagad.recovery.sweep import WHOLE_RING, Sector
from stacksagad.recovery.sweeper import Sweeper
from stacksagad.recovery.workers import ThreadWorkers

logger = logging.getLogger("stacksagad")

LOOK_FOR_THE_DEAD_EVERY: Final = SECOND // 2
_MOST_IDS: Final = 5


class Counters(RecoveryCounters):
    """Counts since the process began, and how far the sweep is that goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.left: Counter[str] = Counter()
        """Re-invocations whose pointer stays, by what they led to."""
        self.sweep = TickSummary()

    def windows_found(self, summary: TickSummary) -> None:
        """A sweep begins."""
        self.sweep = summary

    def ended(self, outcome: str, *, durable: bool) -> None:
        """Count it."""
        super().ended(outcome, durable=durable)
        if not durable:
            self._add(self.left, outcome)

    def line(self) -> str:
        """The counters in one line."""
        parts = [*self.totals.items(), *self.outcomes.items(), *self.failed_with()]
        return ", ".join(f"{name} {count}" for name, count in parts) or "nothing found yet"

    def failed_with(self) -> list[tuple[str, int]]:
        """Failures by their class, in words."""
        return [(f"failed with {name}", count) for name, count in self.failures.items()]


class Recovering:
    """The sweep, the compaction and instant restore of one process.

    Args:
        engine: The application's; connected.
        goes_on: Whether anything may still be taken.
    """

    def __init__(self, engine: Engine, goes_on: Callable[[], bool]) -> None:
        self._engine = engine
        self._goes_on = goes_on
        self._running: set[UUID] = set()
        self._counters = Counters()
        self._workers = ThreadWorkers(engine.settings.concurrency)
        # Its own, so that a long sweep does not keep a process that died just now waiting.
        self._of_the_dead = ThreadWorkers(engine.settings.concurrency)
        node, sector, observer = engine.node(), self._sector, self._counters
        self._said = said = Said(logger, node.clock.boot)
        self._sweeper = Sweeper(
            node, self._reinvoke, workers=self._workers, sector=sector, observer=observer, said=said
        )
        self._compactor = Compactor(node, sector=sector, observer=observer, said=said)
        self._whole: TickSummary | None = None
        self._finder = self._finder_of(node)

    # -- what it does ------------------------------------------------------------------------------------------

    def sweep(self) -> None:
        """Sweep what is sealed, from where the last sweep was. What was found may go on after it."""
        self._sweeper.tick()

    def sweep_whole(self) -> None:
        """Sweep everything that is sealed, and return once nothing that was found is in flight."""
        self._whole = self._sweeper.sweep_everything()
        self._compactor.tick(walk=True)

    def compact(self) -> None:
        """Prune tiers 1 and 2 if it is time, as Node-0 does (R5)."""
        self._compactor.tick()

    def look_for_the_dead(self) -> None:
        """See whether a process of this host has died, and go on with what it ran (R18)."""
        if self._finder is None:
            return
        try:
            dead = self._finder.look()
        except OSError as error:
            self._said.say("run directory", f"who died on this host cannot be seen: {error}")
            return
        for each in dead:
            if each.transaction_ids:
                logger.warning(
                    "process %s died and left %d transactions, which go on here",
                    each.instance_id,
                    len(each.transaction_ids),
                )

    def stop(self) -> None:
        """Take nothing any more; what runs goes on."""
        self._sweeper.stop()
        self._compactor.stop()
        self._of_the_dead.stop()

    def _reinvoke(self, transaction_id: UUID, found: Found) -> Reinvocation:
        self._running.add(transaction_id)
        try:
            return self._engine.reinvoke(transaction_id, found)
        finally:
            self._running.discard(transaction_id)

    def _finder_of(self, node: Node) -> Finder | None:
        directory = lock_files_of(node.settings)
        if directory is None:
            return None
        return Finder(
            directory,
            node.clock,
            skew_margin=node.settings.clock_skew_margin,
            workers=self._of_the_dead,
            recover=self._recover,
        )

    def _recover(self, transaction_id: UUID, found: Found) -> bool:
        try:
            reinvocation = self._reinvoke(transaction_id, found)
        except NotStarted:
            return False
        except Exception as error:  # noqa: BLE001
            # One bad transaction must not stop the others: it is counted and logged, and the file stays (R18).
            name = type(error).__name__
            self._counters.failed(error)
            self._said.say(name, f"transaction_id={transaction_id} of a dead process stays: {name}: {error}")
            return False
        self._counters.ended(reinvocation.outcome, durable=reinvocation.durable)
        return reinvocation.durable

    def _sector(self) -> Sector | None:
        return WHOLE_RING if self._goes_on() else None

    # -- what it tells -----------------------------------------------------------------------------------------

    def busy(self) -> list[str]:
        """What still runs, in words."""
        running = sorted(map(str, list(self._running)))
        if running:
            more = "" if len(running) <= _MOST_IDS else f" and {len(running) - _MOST_IDS} more"
            return [f"transaction_id={', '.join(running[:_MOST_IDS])}{more}"]
        count = self._workers.busy + self._of_the_dead.busy
        return [f"{count} transactions"] if count else []

    def progress(self) -> tuple[int, int]:
        """How many of how many windows the sweep has visited."""
        return self._counters.sweep.visited, self._counters.sweep.found

    def counters(self) -> str:
        """What was done since the start, in one line."""
        oldest = self._sweeper.oldest_unfinished
        return f"{self._counters.line()}, in flight {self._sweeper.in_flight}" + (
            "" if oldest is None else f", oldest window with something left {oldest.date} {oldest.window}"
        )

    def summary(self) -> list[tuple[str, int]]:
        """What became of how many transactions."""
        return [*self._counters.outcomes.items(), *self._counters.failed_with()]

    def left(self) -> list[str]:
        """What a whole sweep did not see or make durable, in words."""
        left = [f"{count} transactions: {outcome}" for outcome, count in self._counters.left.items()]
        left += [f"{count} transactions {how}; see the log" for how, count in self._counters.failed_with()]
        whole = self._whole
        if whole is None:
            return [*left, "the sweep did not come to its end"]
        if whole.kept:
            left.append(f"{whole.kept} buckets, which were not dropped")
        if whole.ended is not Ended.THROUGH:
            left.append(f"not everything was looked at, since {whole.ended.value}")
        return left
