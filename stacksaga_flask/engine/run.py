"""The one loop that runs steps, live and recovered."""

from __future__ import annotations

import itertools

from stacksaga_flask.engine.circuit import Called, Circuit
from stacksaga_flask.engine.node import logger
from stacksaga_flask.engine.owned import Owned, Result
from stacksaga_flask.engine.record import record
from stacksaga_flask.engine.repeat import step_backoff
from stacksaga_flask.engine.room import has_room, make_room
from stacksaga_flask.errors import ClockSkew, OutcomeUnknown, RightEnded, StoreError, StoreUnavailable
from stacksaga_flask.saga.outcome import FailedForNow, Outcome, Succeeded
from stacksaga_flask.store.contract import ExecutionType, TransactionRow, Tryout
from stacksaga_flask.transitions import Action, Progress, StepKind, freeze, park, tryout_status
from stacksaga_flask.transitions import Execution as PlannedExecution

UNTIL_THE_STORE_ANSWERS = (StoreUnavailable, OutcomeUnknown, RightEnded, ClockSkew)
"""Errors after which a result may still be recorded later."""


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


def run(owned: Owned, circuit: Circuit | None = None) -> bool:
    """Run a transaction until it ends, pauses or is frozen, and tell whether its last result was recorded.

    If not, the transaction stays reachable by its watchdog (R1), and somebody else goes on with it; a result that the
    store did not take is kept by this process until it does.

    Args:
        owned: The transaction.
        circuit: Of a sweep.
    """
    result = None
    try:
        while owned.row.running_status.running:
            result = _parked(owned) if _is_held_off(owned, circuit) else _execute(owned, circuit)
            if not _record(owned, result):
                return False
            result = None
    except (RightEnded, StoreError, ClockSkew) as error:
        _leave(owned, error)
        if isinstance(error, UNTIL_THE_STORE_ANSWERS):
            _keep(owned, result or _parked(owned))
        return False
    if not owned.row.running_status.terminal:
        # The batch that ends a transaction deletes the claim with the markers.
        give_back(owned)
    return True


def give_back(owned: Owned) -> None:
    """Give the claim back; if the store does not answer, its time to live ends it."""
    try:
        owned.give_back()
    except StoreError as error:
        logger.info("the claim of transaction_id=%s is left to its TTL: %s", owned.row.transaction_id, error)


def called_next(owned: Owned) -> Called:
    """What comes next for a transaction that is running."""
    execution = owned.saga.plan.next_execution(progress_of(owned.row))
    return owned.saga.name, execution.step.name, execution.execution_type


def _is_held_off(owned: Owned, circuit: Circuit | None) -> bool:
    """Whether nothing is to be called now: the process is stopping, or a sweep has seen the execution fail enough."""
    return owned.node.in_flight.stopping or (circuit is not None and circuit.is_open(called_next(owned)))


def _record(owned: Owned, result: Result) -> bool:
    """Record a result. What interrupted the step goes on up afterwards, whatever became of the record.

    A server that loses patience interrupts the record too.
    """
    if result.interrupted is None:
        return record(owned, result)
    try:
        if record(owned, result):
            give_back(owned)
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


def _keep(owned: Owned, result: Result) -> None:
    """Keep a result that the store did not take; once it does, the transaction is parked with a retry pointer."""
    left = [result]

    def settle() -> bool:
        try:
            while left:
                if not record(owned, left[0]):
                    break
                left[:] = [_parked(owned)] if owned.row.running_status.running else []
        except UNTIL_THE_STORE_ANSWERS:
            return False
        except StoreError as error:
            _leave(owned, error)
        if not left:
            logger.info("transaction_id=%s was recorded after all", owned.row.transaction_id)
            give_back(owned)
        owned.node.lock_file.ended(owned.row.transaction_id)
        return True

    if not owned.node.kept.keep(owned.row.transaction_id, settle):
        logger.warning("transaction_id=%s is not kept: too many are, or the process ends", owned.row.transaction_id)


def _parked(owned: Owned) -> Result:
    """What to record if nothing is tried now."""
    progress = progress_of(owned.row)
    execution = owned.saga.plan.next_execution(progress)
    return Result(
        decision=park(progress),
        tryouts=(),
        payload=None,
        committed=None,
        retry_after=0,
        backs_off=_backs_off(execution) and progress.attempt > 0,
    )


def _backs_off(execution: PlannedExecution) -> bool:
    return execution.execution_type is ExecutionType.REVERT or execution.step.kind is StepKind.RETRIABLE


def _execute(owned: Owned, circuit: Circuit | None) -> Result:
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
        decision = saga.plan.decide(
            progress,
            outcome,
            attempts_left=again and has_room(owned, wait + budget),
            gives_up=not stopping and _gives_up(owned, outcome),
        )
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
    if circuit is not None and not stopping:
        _count(circuit, (saga.name, execution.step.name, execution.execution_type), outcome)
    if owned.last_try and decision.action is Action.PAUSE and not stopping:
        decision = freeze(progress, f"{owned.last_try}, and its last try failed: {error}")
    payload = outcome.payload if isinstance(outcome, Succeeded) else None
    reverting = execution.execution_type is ExecutionType.REVERT
    return Result(
        decision=decision,
        tryouts=tuple(tryouts),
        payload=payload,
        committed=execution.step.name if payload is not None and not reverting else None,
        retry_after=_retry_after(outcome),
        backs_off=_backs_off(execution),
        interrupted=attempt.interrupted,
    )


def _gives_up(owned: Owned, outcome: Outcome) -> bool:
    """Whether a passing failure is compensated by now, as the domain wants it."""
    row, settings = owned.row, owned.node.settings
    windows = settings.domain(row.saga_name).compensate_after_windows
    if not windows or not isinstance(outcome, FailedForNow):
        return False
    return owned.node.clock.now() - row.created_at - row.waited >= windows * settings.window_interval


def _count(circuit: Circuit, called: Called, outcome: Outcome) -> None:
    if isinstance(outcome, FailedForNow):
        circuit.failed(called)
    elif isinstance(outcome, Succeeded):
        circuit.succeeded(called)


def _retry_after(outcome: Outcome) -> int:
    return (outcome.retry_after or 0) if isinstance(outcome, FailedForNow) else 0
