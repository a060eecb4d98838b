"""The one loop that runs steps, live and recovered."""

from __future__ import annotations

import itertools
from typing import Any

from stacksaga_flask.engine.node import Node, logger
from stacksaga_flask.engine.record import Recorder, Result
from stacksaga_flask.engine.repeat import step_backoff
from stacksaga_flask.errors import RightEnded, StoreError
from stacksaga_flask.saga.definition import Execution as DeclaredExecution
from stacksaga_flask.saga.definition import Saga
from stacksaga_flask.saga.outcome import FailedForNow, Outcome, Succeeded
from stacksaga_flask.store.contract import ExecutionType, TransactionRow, Tryout
from stacksaga_flask.transitions import Action, Execution, Progress, tryout_status


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


def run(node: Node, saga: Saga[Any, Any], recorder: Recorder) -> bool:
    """Run a transaction until it ends, pauses or is frozen, and tell whether its last result was recorded.

    If not, the transaction stays reachable by its watchdog (R1), and somebody else goes on with it.
    """
    try:
        while recorder.row.running_status.running:
            if not recorder.record(_execute(node, saga, recorder)):
                return False
        recorder.give_back()
    except (RightEnded, StoreError) as error:
        logger.warning(
            "transaction_id=%s of %s is left to its watchdog: %s: %s",
            recorder.row.transaction_id,
            saga.name,
            type(error).__name__,
            error,
        )
        return False
    return True


def _execute(node: Node, saga: Saga[Any, Any], recorder: Recorder) -> Result:
    """Run the next execution, in as many in-process attempts as it may have."""
    progress = progress_of(recorder.row)
    execution = saga.plan.next_execution(progress)
    declared = _declared(saga, execution)
    attempts = declared.attempts or node.settings.step_attempts
    longest_wait = declared.backoff or node.settings.step_backoff
    tryouts: list[Tryout] = []
    for n in itertools.count(1):
        recorder.make_room(node.executor.budget(declared))
        attempt = node.executor.attempt(
            saga, recorder.row, execution.step.name, execution.execution_type, attempt=progress.attempt + 1
        )
        retry_after = _retry_after(attempt.outcome)
        decision = saga.plan.decide(
            progress, attempt.outcome, attempts_left=n < attempts and retry_after <= longest_wait
        )
        error = None if isinstance(attempt.outcome, Succeeded) else attempt.outcome.reason
        tryouts.append(
            Tryout(
                tryout_index=0,
                executor=execution.step.name,
                execution_type=execution.execution_type,
                status=tryout_status(attempt.outcome),
                created_at=attempt.created_at,
                finished_at=attempt.finished_at,
                instance_id=node.instance_id,
                error=f"{error} ({decision.note})" if decision.note else error,
            )
        )
        if decision.action is not Action.TRY_AGAIN:
            break
        progress = decision.progress
        node.clock.sleep(max(retry_after, step_backoff(n, longest_wait)))
    succeeded = isinstance(attempt.outcome, Succeeded)
    committed = succeeded and execution.execution_type is ExecutionType.PROCESS
    return Result(
        decision=decision,
        tryouts=tuple(tryouts),
        payload=attempt.outcome.payload if isinstance(attempt.outcome, Succeeded) else None,
        committed=execution.step.name if committed else None,
        retry_after=retry_after,
    )


def _declared(saga: Saga[Any, Any], execution: Execution) -> DeclaredExecution[Any]:
    step = saga.declared(execution.step.name)
    if execution.execution_type is ExecutionType.PROCESS:
        return step.process
    if step.reverting is None:
        raise AssertionError(f"{saga.name}: {step.name} was planned to be reverted but declares no revert")
    return step.reverting


def _retry_after(outcome: Outcome) -> int:
    return (outcome.retry_after or 0) if isinstance(outcome, FailedForNow) else 0
