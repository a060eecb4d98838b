"""The one loop that runs steps, live and recovered."""

from __future__ import annotations

import itertools

from stacksaga_flask.engine.node import logger
from stacksaga_flask.engine.owned import Owned, Result
from stacksaga_flask.engine.record import record
from stacksaga_flask.engine.repeat import step_backoff
from stacksaga_flask.engine.room import has_room, make_room
from stacksaga_flask.errors import ClockSkew, RightEnded, StoreError
from stacksaga_flask.saga.outcome import FailedForNow, Outcome, Succeeded
from stacksaga_flask.store.contract import ExecutionType, TransactionRow, Tryout
from stacksaga_flask.transitions import Action, Progress, StepKind, park, tryout_status


def progress_of(row: TransactionRow) -> Progress:
    """The part of a row that decides what comes next."""
    return Progress(
        status=row.running_status,
        committed_steps=row.committed_steps,
        possibly_done=row.possibly_done,
        reverts=row.reverts,
        attempt=row.attempt,
        reason=row.reason,
    )


def run(owned: Owned) -> bool:
    """Run a transaction until it ends, pauses or is frozen, and tell whether its last result was recorded.

    If not, the transaction stays reachable by its watchdog (R1), and somebody else goes on with it.
    """
    try:
        while owned.row.running_status.running:
            if not _record(owned, _parked(owned) if owned.node.in_flight.stopping else _execute(owned)):
                return False
        if not owned.row.running_status.terminal:
            # The batch that ends a transaction deletes the claim with the markers.
            owned.give_back()
    except (RightEnded, StoreError, ClockSkew) as error:
        _leave(owned, error)
        return False
    return True


def _record(owned: Owned, result: Result) -> bool:
    """Record a result. What interrupted the step goes on up afterwards, whatever became of the record.

    A server that loses patience interrupts the record too.
    """
    if result.interrupted is None:
        return record(owned, result)
    try:
        if record(owned, result):
            owned.give_back()
    except (RightEnded, StoreError, ClockSkew) as error:
        _leave(owned, error)
    except owned.node.executor.interruptions as error:
        _leave(owned, error)
    raise result.interrupted


def _leave(owned: Owned, error: BaseException) -> None:
    logger.warning(
        "transaction_id=%s of %s is left to its watchdog: %s: %s",
        owned.row.transaction_id,
        owned.saga.name,
        type(error).__name__,
        error,
    )


def _parked(owned: Owned) -> Result:
    """What to record in a process that is stopping: nothing was tried."""
    return Result(
        decision=park(progress_of(owned.row)), tryouts=(), payload=None, committed=None, retry_after=0, backs_off=False
    )


def _execute(owned: Owned) -> Result:
    """Run the next execution, in as many in-process attempts as it may have."""
    node, saga = owned.node, owned.saga
    progress = progress_of(owned.row)
    execution = saga.plan.next_execution(progress)
    declared = saga.declared(execution.step.name).execution(execution.execution_type)
    budget = node.executor.budget(declared)
    attempts = declared.attempts or node.settings.step_attempts
    longest_wait = declared.backoff or node.settings.step_backoff
    tryouts: list[Tryout] = []
    make_room(owned, budget)
    for n in itertools.count(1):
        attempt = node.executor.attempt(
            saga, owned.row, execution.step.name, execution.execution_type, attempt=progress.attempt + 1
        )
        outcome = attempt.outcome
        stopping = attempt.interrupted is not None or node.in_flight.stopping
        again = n < attempts and not stopping and _retry_after(outcome) <= longest_wait
        wait = max(_retry_after(outcome), step_backoff(n, longest_wait)) if again else 0
        # An attempt that does not fit any more is left to a later try, so that this one is recorded.
        decision = saga.plan.decide(progress, outcome, attempts_left=again and has_room(owned, wait + budget))
        error = None if isinstance(outcome, Succeeded) else outcome.reason
        tryouts.append(
            Tryout(
                tryout_index=0,
                executor=execution.step.name,
                execution_type=execution.execution_type,
                status=tryout_status(outcome),
                created_at=attempt.created_at,
                finished_at=attempt.finished_at,
                instance_id=node.instance_id,
                error=f"{error} ({decision.note})" if decision.note else error,
            )
        )
        if decision.action is not Action.TRY_AGAIN:
            break
        progress = decision.progress
        node.clock.sleep(wait)
        if node.in_flight.stopping:
            decision = park(progress)
            break
    payload = outcome.payload if isinstance(outcome, Succeeded) else None
    reverting = execution.execution_type is ExecutionType.REVERT
    return Result(
        decision=decision,
        tryouts=tuple(tryouts),
        payload=payload,
        committed=execution.step.name if payload is not None and not reverting else None,
        retry_after=_retry_after(outcome),
        backs_off=reverting or execution.step.kind is StepKind.RETRIABLE,
        interrupted=attempt.interrupted,
    )


def _retry_after(outcome: Outcome) -> int:
    return (outcome.retry_after or 0) if isinstance(outcome, FailedForNow) else 0
