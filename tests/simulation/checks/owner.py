"""R6, R9, R12, R13, R14: one owner at a time, whose writes stand, and nobody after the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stacksaga_flask.clock import SECOND
from stacksaga_flask.directory.windows import DAY
from stacksaga_flask.engine.claims import CLAIM
from stacksaga_flask.engine.node import StateChange
from stacksaga_flask.store.contract import (
    DeletePointer,
    ExecutionType,
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
    from tests.simulation.clients import Client
    from tests.simulation.participants import Asked


class OneOwner(Rule):
    """R6: who calls a participant has written the row last, and no other call is under way within its budget."""

    name = "R6"

    def call_begins(self, call: Asked, story: Story) -> None:
        if call.late:
            return
        for other in self.world.participants.calls_of(call.transaction_id):
            if other.task is not call.task and self._goes_on(other):
                self.object(f"{call} begins during {other}")
        slot, written = self.shown.slot(call.transaction_id), story.written.get(call.task)
        if written is None:
            self.object(f"{call}, who never wrote its row")
        elif (left := self._left(call, written.row)) < call.budget + self.world.settings.request_timeout:
            self.object(f"{call}, whose right to write ends in {left / SECOND:.3f} s")
        elif slot is not None and slot.row is not None and slot.row.epoch > written.row.epoch:
            self.object(f"{call} of epoch {written.row.epoch}, and the row is at epoch {slot.row.epoch}")

    def _left(self, call: Asked, row: TransactionRow) -> int:
        """How long the caller may still write: until its watchdog's fence, or as long as it has the claim."""
        now = self.world.scheduler.now
        if row.epoch == 0:
            return 0 if row.watchdog is None else self.shown.grid.fence(row.watchdog) - call.process.now
        claim = self.shown.tables.markers[call.transaction_id].slots.get(CLAIM)
        if claim is None or claim.row is None or claim.expires_at is None:
            return 0
        mine = claim.row.execution_state.startswith(f"{call.process.instance_id}/")
        return claim.expires_at * SECOND - now if mine else 0

    def recorded(self, by: By, change: StateChange, story: Story) -> None:
        if change.row not in story.shown:
            self.object(f"{by.task} counts a row of {self.world.short(story.transaction_id)} that never showed")

    def _goes_on(self, other: Asked) -> bool:
        now = self.world.scheduler.now
        if other.ended is not None or other.process.dead or now - other.began > other.budget:
            return False
        return not other.process.stood_still(other.began) and not other.late


class TakeoversWin(Rule):
    """R13: a former owner's write never shows over a takeover, and what was acknowledged is not lost."""

    name = "R13"

    def row_lands(self, by: By, write: WriteTransaction, before: Slot[TransactionRow] | None, story: Story) -> None:
        shown = self.shown.row(story.transaction_id)
        if shown is write.row and before is not None and before.row is not None:
            if write.row in story.shown[:-1] and not write.row.running_status.running:
                return  # confirmed as it was read, over a takeover that landed since (R4)
            if before.row.epoch > write.row.epoch:
                who = self.world.short(story.transaction_id)
                self.object(f"{by.task}'s row of {who} at epoch {write.row.epoch} shows over epoch {before.row.epoch}")

    def pointer_is_deleted(self, by: By, delete: DeletePointer, story: Story) -> None:
        slot = self.shown.tables.pointers.get(delete.path, {}).get(delete.transaction_id)
        if slot is not None and slot.row is not None:
            self.object(f"{by.task} has deleted the pointer {delete.path}, and it is still there")

    def row_is_deleted(self, by: By, story: Story) -> None:
        if story.started and self.shown.row(story.transaction_id) is None:
            self.object(f"{by.task} has deleted the row of {self.world.short(story.transaction_id)}, which was started")

    def call_begins(self, call: Asked, story: Story) -> None:
        slot, written = self.shown.slot(call.transaction_id), story.written.get(call.task)
        if written is None or call.late:
            return
        if slot is None or slot.row is None or slot.timestamp != written.timestamp:
            self.object(f"{call}: the row that was acknowledged to it is not the one that is shown")


class TerminalIsFinal(Rule):
    """R9: no step after the end, what was told stays, and nothing is left but the history."""

    name = "R9"

    def call_begins(self, call: Asked, story: Story) -> None:
        row = self.shown.row(call.transaction_id)
        if row is not None and row.running_status.terminal and not call.late:
            self.object(f"{call} after {row.running_status.value}")

    def row_lands(self, by: By, write: WriteTransaction, before: Slot[TransactionRow] | None, story: Story) -> None:
        if story.told:
            self._check_told(story)

    def told(self, story: Story, status: RunningStatus) -> None:
        self._check_told(story)

    def _check_told(self, story: Story) -> None:
        row = self.shown.row(story.transaction_id)
        shown = None if row is None else row.running_status
        if any(told is not shown for told in story.told):
            told = " and ".join(status.value for status in story.told)
            self.object(f"{self.world.short(story.transaction_id)} was told to be {told}, and is {shown}")

    def ends(self) -> None:
        for client in self.world.clients.values():
            self._check_client(client)
        tables = self.shown.tables
        for story in self.watch.stories.values():
            row, who = self.shown.row(story.transaction_id), self.world.short(story.transaction_id)
            if row is None:
                continue
            frozen = tables.frozen.get(story.transaction_id)
            if (frozen is not None and frozen.row is not None) != (row.running_status is RunningStatus.FROZEN):
                self.object(f"{who} is {row.running_status.value}, and es_frozen_transaction says otherwise")
            partition = tables.markers.get(story.transaction_id)
            if row.running_status.terminal and partition is not None:
                now = self.world.scheduler.now
                # A claim that nobody gave back ends by itself.
                left = [step for step in sorted(partition.slots) if step != CLAIM and partition.get(step, now)]
                if left:
                    self.object(f"{who} is {row.running_status.value}, and its markers {left} are left")

    def _check_client(self, client: Client) -> None:
        row = None if client.transaction_id is None else self.shown.row(client.transaction_id)
        if row is not None and row.running_status.terminal and client.told is not row.running_status:
            assert client.transaction_id is not None
            told = "nothing" if client.told is None else client.told.value
            self.object(f"{self.world.short(client.transaction_id)} has ended, and its client is still told {told}")


class OneRequestAKey(Rule):
    """R17: a key belongs to one payload."""

    name = "R17"

    def answered(self, story: Story) -> None:
        if len(story.answered) > 1:
            self.object(f"{self.world.short(story.transaction_id)} answers requests with different payloads")


class OnlyTheDead(Rule):
    """R18: the finder goes on only with what the dead process was running."""

    name = "R18"

    def row_lands(self, by: By, write: WriteTransaction, before: Slot[TransactionRow] | None, story: Story) -> None:
        was = None if before is None else before.row
        if before is None or was is None or by.task.name != "finder" or was.epoch >= write.row.epoch:
            return
        if was.running_status in PAUSED and not self.is_news(story, before.timestamp):
            self.object(f"{by.task} takes over {self.world.short(story.transaction_id)}, which is paused")


class OverItsLifetime(Rule):
    """R12: what is found too old before its pivot is frozen, not run."""

    name = "R12"

    def call_begins(self, call: Asked, story: Story) -> None:
        written = story.written.get(call.task)
        if written is None or written.row.epoch == 0 or call.side is ExecutionType.REVERT:
            return
        row, settings = written.row, call.process.engine_settings
        if row.saga_name == "pivoted" and "charge" in row.committed_steps:
            return
        domain = settings.domain(row.saga_name)
        age = written.took_over - row.created_at - row.waited
        is_swept, lookback = call.task.name == "worker", (settings.lookback_days + 2) * DAY
        is_old = age > domain.transaction_lifetime + 2 * SECOND and not domain.try_after_lifetime
        if is_old or (is_swept and age > lookback):
            self.object(f"{call}, taken over {age / SECOND:.1f} s after it was started")


class TrustedClocks(Rule):
    """R14: who writes or arms has a clock within the skew margin of the store's."""

    name = "R14"

    def sent(self, by: By, operation: Operation) -> None:
        if isinstance(operation, WriteTransaction | Register):
            off = by.process.now - self.world.scheduler.now
            if abs(off) > 3 * by.process.engine_settings.clock_skew_margin // 2:
                self.object(f"{by.task} writes with a clock that is off by {off / SECOND:+.3f} s")
