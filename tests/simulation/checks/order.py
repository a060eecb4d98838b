"""R8 and the calls themselves: steps in order, reverts in reverse, and no call more than there is a cause for."""

from __future__ import annotations

from typing import Any

import msgspec

from stacksaga_flask.saga.definition import Saga
from stacksaga_flask.store.contract import ExecutionType, RunningStatus, TransactionRow
from tests.simulation.checks.rule import Rule
from tests.simulation.checks.story import Story
from tests.simulation.participants import Answer, Asked, Payload


class ReverseOrder(Rule):
    """R8: steps in order; reverts as the row lists them, once that is acknowledged; all is done or all undone."""

    name = "R8"

    def call_begins(self, call: Asked, story: Story) -> None:
        row = self.shown.row(call.transaction_id)
        if row is None or call.late:
            return
        if call.side is ExecutionType.REVERT:
            if row.running_status is not RunningStatus.REVERTING or row.reverts[:1] != (call.step,):
                self.object(f"{call}, while the row says {row.running_status.value} and {row.reverts}")
            return
        earlier = self.world.participants.calls_of(call.transaction_id)
        if any(other.side is ExecutionType.REVERT for other in earlier):
            self.object(f"{call} after a revert")
        todo = [step.name for step in self._saga(row).steps if step.name not in row.committed_steps]
        if todo[:1] != [call.step]:
            self.object(f"{call}, while the row says that {row.committed_steps} are committed")

    def ends(self) -> None:
        for story in self.watch.stories.values():
            row = self.shown.row(story.transaction_id)
            effects = self.world.participants.effects.get(story.transaction_id, [])
            if row is None:
                if effects:
                    self.object(f"{self.world.short(story.transaction_id)} has no row, and was done: {effects}")
            elif row.running_status is RunningStatus.PROCESS_COMPLETED:
                self._check_completed(row, effects)
            elif row.running_status is RunningStatus.REVERT_COMPLETED:
                self._check_compensated(row, effects)

    def _check_completed(self, row: TransactionRow, effects: list[tuple[str, ExecutionType]]) -> None:
        steps = [step.name for step in self._saga(row).steps]
        who = self.world.short(row.transaction_id)
        if effects != [(step, ExecutionType.PROCESS) for step in steps] or list(row.committed_steps) != steps:
            self.object(f"{who} is completed, and this was done: {_told(effects)}")
        payload = msgspec.json.decode(row.payload, type=Payload)
        if payload.done != steps:
            self.object(f"{who} is completed, and its payload tells of {payload.done}")

    def _check_compensated(self, row: TransactionRow, effects: list[tuple[str, ExecutionType]]) -> None:
        who = self.world.short(row.transaction_id)
        revertible = [step.name for step in self._saga(row).steps if step.reverting is not None]
        done = [step for step, side in effects if side is ExecutionType.PROCESS and step in revertible]
        undone = [step for step, side in effects if side is ExecutionType.REVERT]
        if [step for step in undone if step in done] != done[::-1]:
            self.object(f"{who} is compensated, and this was done: {_told(effects)}")
        if any(step == "charge" for step, _ in effects) and row.saga_name == "pivoted":
            self.object(f"{who} is compensated, and its pivot was done")

    def _saga(self, row: TransactionRow) -> Saga[Any, Any]:
        return self.world.saga(row.saga_name)


def _told(effects: list[tuple[str, ExecutionType]]) -> str:
    return ", ".join(f"{side.value.lower()} {step}" for step, side in effects)


class NoCallTooMany(Rule):
    """Calls per key once, except where a kill, a stop, a lost answer or an expired claim lies between two."""

    name = "CALLS"

    def ends(self) -> None:
        last: dict[str, Asked] = {}
        for call in self.world.participants.calls:
            before = last.get(call.key)
            if before is not None and not self._cause(before, call):
                self.object(f"{call} again, after {before}, and nothing lies between them")
            last[call.key] = call

    def _cause(self, before: Asked, after: Asked) -> str | None:
        if before.answer is not Answer.DONE:
            return "the participant"
        process = before.process
        if process.dead and before.began <= process.died_at <= after.began:
            return "a kill"
        if after.late or any(since <= after.began and until >= before.began for since, until in process.stops):
            return "a stop"
        if any(before.began <= when <= after.began for when in process.faults):
            return "a lost answer"
        return None
