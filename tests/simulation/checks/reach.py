"""R1, R2, R3: every transaction can be found, from before its first step until its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacksaga_flask.store.contract import (
    DeletePointer,
    Drop,
    Operation,
    Register,
    RunningStatus,
    TransactionRow,
    WriteTransaction,
)
from stacksaga_flask.store.last_write import Slot
from tests.simulation.checks.rule import By, Rule
from tests.simulation.checks.story import PAUSED, Story

if TYPE_CHECKING:
    from tests.simulation.participants import Asked


class Reachable(Rule):
    """R1: from the moment its start is acknowledged until it is terminal or frozen, a sweep can find it."""

    name = "R1"

    def row_lands(self, by: By, write: WriteTransaction, before: Slot[TransactionRow] | None, story: Story) -> None:
        row = self.shown.row(story.transaction_id)
        if row is not write.row or row.running_status.terminal:
            return
        self._check(story)
        watchdog, retry, grid = row.watchdog, row.retry, self.shown.grid
        if watchdog and retry and row.running_status in PAUSED and grid.opens(watchdog) <= grid.opens(retry):
            self.object(f"{self._who(story)} is paused, and its watchdog does not lie after its retry pointer")
        if story.started and watchdog is not None and grid.fence(watchdog) > self.world.scheduler.now:
            missing = self.shown.missing_tiers(watchdog, story.transaction_id)
            if missing and row.running_status is not RunningStatus.FROZEN:
                self.object(f"{self._who(story)} names the watchdog {watchdog}, of which tiers {missing} are missing")

    def pointer_is_deleted(self, by: By, delete: DeletePointer, story: Story) -> None:
        self._check(story)

    def dropped(self, by: By, drop: Drop) -> None:
        for story in self.watch.stories.values():
            self._check(story)

    def _check(self, story: Story) -> None:
        row = self.shown.row(story.transaction_id)
        if not story.started or row is None or row.running_status.terminal:
            return
        if row.running_status is RunningStatus.FROZEN:
            return
        if not any(self.shown.is_reachable(path, story.transaction_id) for path in reversed(story.paths)):
            self.object(f"{self._who(story)} is {row.running_status.value} and no pointer leads to it")

    def _who(self, story: Story) -> str:
        return self.world.short(story.transaction_id)


class ArmedFirst(Rule):
    """R2: no step runs before its row and a watchdog with all its tiers are there."""

    name = "R2"

    def call_begins(self, call: Asked, story: Story) -> None:
        if not story.armed:
            self.object(f"{call}: no watchdog of it ever had all its tiers")
        elif self.shown.slot(story.transaction_id) is None:
            self.object(f"{call}: it has no row")
        if story.not_started:
            self.object(f"{call}, though its client was told that nothing was started")


class RegisteredInTime(Rule):
    """R3: a pointer is not sent with less than a write's time-out left before its fence."""

    name = "R3"

    def sent(self, by: By, operation: Operation) -> None:
        if (
            not isinstance(operation, Register)
            or 5 not in operation.tiers
            or by.process.stood_still(by.task.answered_at)
        ):
            return
        left = self.shown.grid.fence(operation.path) - by.process.now
        if left < by.process.engine_settings.request_timeout:
            self.object(f"{by.task} sends {operation.path} with {left / 1e6:.3f} s left before its fence")
