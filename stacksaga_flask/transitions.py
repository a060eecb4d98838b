"""What a transaction does next: pure functions of its plan, its progress and the outcome of a step (R8, R9).

Nothing here knows a clock, a store or a framework. Progress is the part of a transaction's row that decides.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from stacksaga_flask.saga.outcome import FailedForNow, FailedUnexpectedly, Outcome, Succeeded, WasRejected
from stacksaga_flask.store.contract import ExecutionType, RunningStatus, TryoutStatus


class StepKind(enum.Enum):
    """What a step is to the saga."""

    COMMAND = "command"
    QUERY = "query"
    PIVOT = "pivot"
    """The point of no return."""
    RETRIABLE = "retriable"
    """After the pivot: never compensated, retried until it succeeds."""


class PlannedStep(NamedTuple):
    """A step as the transitions see it."""

    name: str
    kind: StepKind
    honours_keys: bool = True
    """Whether the participant answers every request under one idempotency key alike (asked of a pivot, R8)."""


class Progress(Struct, frozen=True):
    """How far a transaction is."""

    status: RunningStatus = RunningStatus.PROCESSING
    committed_steps: tuple[str, ...] = ()
    possibly_done: bool = False
    reverts: tuple[str, ...] = ()
    attempt: int = 0
    reason: str | None = None


class Execution(NamedTuple):
    """The execution that comes next."""

    step: PlannedStep
    execution_type: ExecutionType


class Action(enum.Enum):
    """What to do with a decision's progress."""

    RECORD = "record it and go on"
    TRY_AGAIN = "try again in this process"
    PAUSE = "register a retry pointer and record it"
    END = "record it as terminal"
    FREEZE = "freeze it for a person"


class Decision(NamedTuple):
    """What follows from an outcome."""

    action: Action
    progress: Progress
    note: str | None = None
    """Added to the tryout's error text where the outcome alone would mislead."""


_TRYOUT_STATUS: dict[type[Outcome], TryoutStatus] = {
    Succeeded: TryoutStatus.SUCCEEDED,
    WasRejected: TryoutStatus.REJECTED,
    FailedForNow: TryoutStatus.RETRYABLE,
    FailedUnexpectedly: TryoutStatus.FAILED,
}


def tryout_status(outcome: Outcome) -> TryoutStatus:
    """How a tryout with this outcome is recorded."""
    return _TRYOUT_STATUS[type(outcome)]


class Plan:
    """The steps of a saga in order.

    Raises:
        ValueError: There is no step.
    """

    def __init__(self, steps: tuple[PlannedStep, ...]) -> None:
        if not steps:
            raise ValueError("a plan needs a step")
        self.steps = steps
        self._by_name = {step.name: step for step in steps}

    def step(self, name: str) -> PlannedStep:
        """The step of that name.

        Raises:
            KeyError: There is none; the saga has changed since.
        """
        return self._by_name[name]

    def next_execution(self, progress: Progress) -> Execution:
        """What to run next for a transaction that is running.

        Raises:
            ValueError: Nothing is left to run, or the transaction is not running.
        """
        if progress.status is RunningStatus.PROCESSING:
            for step in self.steps:
                if step.name not in progress.committed_steps:
                    return Execution(step, ExecutionType.PROCESS)
        elif progress.status is RunningStatus.REVERTING and progress.reverts:
            return Execution(self.step(progress.reverts[0]), ExecutionType.REVERT)
        raise ValueError(f"nothing is left to run in status {progress.status.value}")

    def decide(self, progress: Progress, outcome: Outcome, *, attempts_left: bool, gives_up: bool = False) -> Decision:
        """What follows from the outcome of the next execution.

        Args:
            progress: As it was when the execution began.
            outcome: Of that execution.
            attempts_left: Whether this process may try again at once.
            gives_up: Whether a passing failure before the pivot is compensated instead of tried again.
        """
        execution = self.next_execution(progress)
        if execution.execution_type is ExecutionType.REVERT:
            return self._after_revert(progress, outcome, attempts_left)
        if isinstance(outcome, Succeeded):
            return self._after_success(progress, execution.step)
        if execution.step.kind is StepKind.RETRIABLE:
            return _retry(progress, outcome, attempts_left)
        if execution.step.kind is StepKind.PIVOT:
            return self._after_failed_pivot(progress, execution.step, outcome, attempts_left)
        if isinstance(outcome, FailedForNow):
            if not gives_up:
                return _retry(progress, outcome, attempts_left)
            # What the attempts did is unknown, so the step is reverted too (C8).
            reason = f"the step {execution.step.name!r} kept failing: {outcome.reason}"
            return self._compensate(progress, reason, also=execution.step)
        if isinstance(outcome, WasRejected):
            also = execution.step if progress.possibly_done else None
            return self._compensate(progress, outcome.reason, also=also)
        # Clients are told the reason; what the step raised is for the tryout.
        reason = f"the step {execution.step.name!r} failed unexpectedly"
        return self._compensate(progress, reason, also=execution.step)

    def _after_success(self, progress: Progress, step: PlannedStep) -> Decision:
        committed = (*progress.committed_steps, step.name)
        done = len(committed) == len(self.steps)
        status = RunningStatus.PROCESS_COMPLETED if done else RunningStatus.PROCESSING
        return Decision(Action.END if done else Action.RECORD, Progress(status=status, committed_steps=committed))

    def _after_failed_pivot(
        self, progress: Progress, step: PlannedStep, outcome: Outcome, attempts_left: bool
    ) -> Decision:
        if not isinstance(outcome, WasRejected):
            return _retry(progress, outcome, attempts_left)
        if not progress.possibly_done:
            return self._compensate(progress, outcome.reason, also=None)
        if not step.honours_keys:
            reason = (
                f"the pivot {step.name!r} was rejected ({outcome.reason}) after an attempt whose outcome is unknown, "
                f"and its participant does not honour idempotency keys: find out at the participant whether the "
                f"pivot was done, then restore the transaction"
            )
            return freeze(progress, reason)
        # The answer belongs to the key, and so to every attempt under it (R8).
        decision = self._compensate(progress, outcome.reason, also=None)
        return decision._replace(note="an earlier attempt was unknown; this answer holds for it too (same key)")

    def _compensate(self, progress: Progress, reason: str, *, also: PlannedStep | None) -> Decision:
        """Turn to compensation: the possibly done step first, then the committed ones in reverse order (R8)."""
        done = [*progress.committed_steps, *([also.name] if also else [])]
        reverts = tuple(name for name in reversed(done) if self.step(name).kind is StepKind.COMMAND)
        after = Progress(
            status=RunningStatus.REVERTING if reverts else RunningStatus.REVERT_COMPLETED,
            committed_steps=progress.committed_steps,
            possibly_done=also is not None and also.name in reverts,
            reverts=reverts,
            reason=reason,
        )
        return Decision(Action.RECORD if reverts else Action.END, after)

    def _after_revert(self, progress: Progress, outcome: Outcome, attempts_left: bool) -> Decision:
        name = progress.reverts[0]
        if isinstance(outcome, Succeeded):
            left = progress.reverts[1:]
            after = replace(
                progress,
                status=RunningStatus.REVERTING if left else RunningStatus.REVERT_COMPLETED,
                possibly_done=progress.possibly_done and name in progress.committed_steps,
                reverts=left,
                attempt=0,
            )
            return Decision(Action.RECORD if left else Action.END, after)
        if isinstance(outcome, WasRejected):
            reason = (
                f"the revert of {name!r} was rejected ({outcome.reason}), so the transaction is only partly "
                f"compensated: undo {', '.join(progress.reverts)} by hand or mend the cause, then restore it"
            )
            return freeze(progress, reason)
        return _retry(progress, outcome, attempts_left)


def park(progress: Progress) -> Decision:
    """Leave a running transaction as it stands to a later try: the process is stopping."""
    return Decision(Action.PAUSE, replace(progress, status=_PAUSED[progress.status]))


def freeze(progress: Progress, reason: str) -> Decision:
    """Leave a running transaction to a person, who is told why."""
    return Decision(Action.FREEZE, replace(progress, status=RunningStatus.FROZEN, reason=reason))


_PAUSED = {
    RunningStatus.PROCESSING: RunningStatus.PROCESS_PAUSED,
    RunningStatus.REVERTING: RunningStatus.REVERT_PAUSED,
}


def _retry(progress: Progress, outcome: Outcome, attempts_left: bool) -> Decision:
    """Try the same execution again, here or later. Before that it counts as possibly done (R8)."""
    processing = progress.status is RunningStatus.PROCESSING
    after = replace(
        progress,
        possibly_done=progress.possibly_done or processing,
        attempt=progress.attempt + 1,
        reason=progress.reason if not processing else None,
    )
    if attempts_left:
        return Decision(Action.TRY_AGAIN, after)
    return Decision(Action.PAUSE, replace(after, status=_PAUSED[progress.status]))
