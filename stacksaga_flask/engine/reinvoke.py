"""Re-invocation: going on with a transaction that was found, in the order of R6.

Claim → read → leave it, confirm it, freeze it, or write the whole row with the next epoch → go on. What a pointer that
was found led to decides whether its bucket may be dropped (R4).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from uuid import UUID

from stacksaga_flask.config_values import told
from stacksaga_flask.directory.windows import DAY
from stacksaga_flask.directory.writer import PointerKind
from stacksaga_flask.engine.circuit import Circuit
from stacksaga_flask.engine.claims import Claim
from stacksaga_flask.engine.node import Node, logger
from stacksaga_flask.engine.owned import Owned, longest_trust
from stacksaga_flask.engine.ownership import Right
from stacksaga_flask.engine.run import run
from stacksaga_flask.engine.takeover import apply_checked, confirm, freeze, take_over
from stacksaga_flask.errors import PayloadError, StoreError
from stacksaga_flask.saga.definition import Saga
from stacksaga_flask.store.contract import (
    DeleteTransaction,
    Path,
    RunningStatus,
    StoredTransaction,
    TransactionRow,
)
from stacksaga_flask.transitions import StepKind

CLAIMED = "claimed by another"
NO_ROW = "no row"
SUPERSEDED = "superseded"
ITS_OWNERS = "left to its owner"
NOT_RECORDED = "not recorded"
STANDS = {
    RunningStatus.PROCESS_COMPLETED: "completed",
    RunningStatus.REVERT_COMPLETED: "compensated",
    RunningStatus.PROCESS_PAUSED: "paused",
    RunningStatus.REVERT_PAUSED: "paused",
    RunningStatus.PROCESS_WAITING: "waiting",
    RunningStatus.FROZEN: "frozen",
}


class Reinvocation(NamedTuple):
    """What became of a transaction that was found.

    Attributes:
        durable: Whether the outcome is durable, so that the pointer that was found may go (R4).
        outcome: What was found or done, for logs and counters.
    """

    durable: bool
    outcome: str


class Found(NamedTuple):
    """How a transaction was found.

    Attributes:
        path: The pointer that a sweep found; None if an operator or the finder of dead processes names it.
        dead_instance: An instance that is known to be dead by its lock (R18).
        circuit: Of the sweep.
    """

    path: Path | None = None
    dead_instance: str | None = None
    circuit: Circuit | None = None


def reinvoke(node: Node, sagas: Mapping[str, Saga[Any, Any]], transaction_id: UUID, found: Found) -> Reinvocation:
    """Go on with a transaction, if it is nobody else's.

    Args:
        node: This process.
        sagas: The service's sagas by name.
        transaction_id: The transaction.
        found: How it was found.

    Raises:
        StoreError, RightEnded, ClockSkew: It is not known how it stands; the pointer stays.
    """
    trust = max((longest_trust(node, saga) for saga in sagas.values()), default=0)
    attempt = node.claims.take(transaction_id, trust=trust, dead_instance=found.dead_instance)
    claim = attempt.claim
    if claim is None:
        return Reinvocation(False, CLAIMED)
    try:
        stored = node.store.read(transaction_id)
        is_dead = found.dead_instance is not None
        if is_dead and (stored is None or not _was_of_the_dead(stored.row, found, from_dead=attempt.from_dead)):
            _give_back(node, claim)
            return Reinvocation(True, ITS_OWNERS)
    except StoreError:
        # Nothing was written under it, so another may have it.
        _give_back(node, claim)
        raise
    if stored is None:
        return _without_a_row(node, claim, found)
    return _with_a_row(node, sagas, claim, stored, found)


def _was_of_the_dead(row: TransactionRow, found: Found, *, from_dead: bool) -> bool:
    """Whether the dead process was running it: the row's watchdog or the claim names it (R18)."""
    named = row.watchdog is not None and row.watchdog.instance_id == found.dead_instance
    return row.running_status.running and (named or from_dead)


def _without_a_row(node: Node, claim: Claim, found: Found) -> Reinvocation:
    """A pointer without a row: the row is deleted at the fence, so that a start under way stays invisible (R2)."""
    if found.path is not None:
        right = Right(node.clock, ends_at=claim.trusted_until)
        delete = DeleteTransaction(transaction_id=claim.transaction_id, timestamp=node.grid.fence(found.path))
        apply_checked(node, right, delete)
    _give_back(node, claim)
    return Reinvocation(True, NO_ROW)


def _with_a_row(
    node: Node, sagas: Mapping[str, Saga[Any, Any]], claim: Claim, stored: StoredTransaction, found: Found
) -> Reinvocation:
    row, above = stored.row, _above(node, found)
    if row.running_status.terminal or row.running_status is RunningStatus.FROZEN:
        confirm(node, claim, stored, above=above)
        return Reinvocation(True, STANDS[row.running_status])
    if _is_superseded(node, row, found.path):
        _give_back(node, claim)
        return Reinvocation(True, SUPERSEDED)
    if _is_its_starters(node, row, found):
        _give_back(node, claim)
        return Reinvocation(False, ITS_OWNERS)
    saga = sagas.get(row.saga_name)
    why = _why_frozen(node, saga, row, found)
    if saga is None or why is not None:
        freeze(node, claim, stored, why or "", above=above)
        return Reinvocation(True, STANDS[RunningStatus.FROZEN])
    return _go_on(node, saga, claim, stored, found, above)


def _go_on(
    node: Node, saga: Saga[Any, Any], claim: Claim, stored: StoredTransaction, found: Found, above: int
) -> Reinvocation:
    before = stored.row.running_status
    taken = take_over(node, claim, stored, above=above, resume=True, found=found.path)
    node.recorded(before, taken.row)
    owned = Owned(node, saga, taken.row, taken.right, claim=claim)
    if _is_over_its_lifetime(node, saga, stored.row):
        owned.last_try = _lifetime_reason(node, stored.row)
    durable = run(owned, found.circuit)
    return Reinvocation(durable, STANDS.get(owned.row.running_status, NOT_RECORDED) if durable else NOT_RECORDED)


def _above(node: Node, found: Found) -> int:
    """What the timestamps of a takeover must be above (R13)."""
    now = node.clock.now()
    if found.dead_instance is not None:
        return now + node.settings.clock_skew_margin
    if found.path is None or node.grid.opens(found.path) > now:
        return 0
    return node.grid.opens(found.path) - 1


def _is_superseded(node: Node, row: TransactionRow, found: Path | None) -> bool:
    """Whether the row names a pointer of the same kind in a window that is not open yet (R4)."""
    if found is None:
        return False
    named = row.watchdog if found.bucket % 2 == PointerKind.WATCHDOG else row.retry
    return named is not None and named != found and node.grid.opens(named) > node.clock.now()


def _is_its_starters(node: Node, row: TransactionRow, found: Found) -> bool:
    """Whether the starter runs it and may go on: it is not known to be dead, and no pointer's window has opened."""
    if row.epoch > 0 or not row.running_status.running or found.dead_instance is not None:
        return False
    pointers = [path for path in (row.watchdog, row.retry, found.path) if path is not None]
    return all(node.grid.opens(path) > node.clock.now() for path in pointers)


def _give_back(node: Node, claim: Claim) -> None:
    try:
        node.claims.give_back(claim)
    except StoreError as error:
        logger.info("the claim of transaction_id=%s is left to its TTL: %s", claim.transaction_id, error)


# -- what is frozen --------------------------------------------------------------------------------------------


def _why_frozen(node: Node, saga: Saga[Any, Any] | None, row: TransactionRow, found: Found) -> str | None:
    """Why a person has to look at it, and what to do; None if it can go on."""
    if saga is None:
        return (
            f"the saga {row.saga_name!r} is not registered with this application (renamed or removed?): deploy a "
            f"release that has it, then restore the transaction"
        )
    problem = _unknown_step(saga, row) or _unreadable_payload(saga, row)
    if problem is not None:
        return problem
    if found.path is not None and _ages(saga, row) and _is_overdue(node, row):
        return (
            f"it was found more than {node.settings.lookback_days} days (STACKSAGA_LOOKBACK_DAYS) after it was to be "
            f"tried: see whether it is still to be finished, then restore it"
        )
    if _is_over_its_lifetime(node, saga, row) and not node.settings.domain(row.saga_name).try_after_lifetime:
        return _lifetime_reason(node, row) + ": see whether it is still to be finished, then restore it"
    return None


def _is_overdue(node: Node, row: TransactionRow) -> bool:
    """Whether the date by which it was to be tried is older than the lookback days (R12).

    That is the row's word. The pointer that was found tells nothing: it may be superseded, or that of an earlier start
    which never came to its row.
    """
    due = row.retry if row.running_status is RunningStatus.PROCESS_PAUSED else row.watchdog
    oldest = node.grid.at(node.clock.now() - node.settings.lookback_days * DAY).date
    return due is not None and due.date < oldest


def _unknown_step(saga: Saga[Any, Any], row: TransactionRow) -> str | None:
    steps = {step.name: step for step in saga.steps}
    unknown = [name for name in (*row.committed_steps, *row.reverts) if name not in steps]
    without_revert = [name for name in row.reverts if name in steps and steps[name].reverting is None]
    if unknown or without_revert:
        what = f"has no step {unknown[0]!r}" if unknown else f"has no revert of {without_revert[0]!r}"
        return (
            f"the saga {saga.name!r} {what} any more (renamed or removed?), which this transaction needs: deploy a "
            f"release that has it, then restore the transaction"
        )
    forward = row.running_status in (RunningStatus.PROCESSING, RunningStatus.PROCESS_PAUSED)
    if forward and all(name in row.committed_steps for name in steps):
        return (
            f"every step that the saga {saga.name!r} still has is committed, so nothing is left to run (was the last "
            f"step removed?): deploy a release that has it, then restore the transaction"
        )
    return None


def _unreadable_payload(saga: Saga[Any, Any], row: TransactionRow) -> str | None:
    try:
        saga.codec.decode(row.payload, row.payload_version)
    except PayloadError as error:
        return f"the payload cannot be read: {error}; mend it or deploy a release that reads it, then restore it"
    return None


def _is_over_its_lifetime(node: Node, saga: Saga[Any, Any], row: TransactionRow) -> bool:
    """Whether it is too old; waiting does not count (R12)."""
    age = node.clock.now() - row.created_at - row.waited
    return _ages(saga, row) and age > node.settings.domain(row.saga_name).transaction_lifetime


def _ages(saga: Saga[Any, Any], row: TransactionRow) -> bool:
    """Whether it may become too old: not once it is compensating, past its pivot, or while it waits (R12)."""
    if row.running_status not in (RunningStatus.PROCESSING, RunningStatus.PROCESS_PAUSED):
        return False
    return not any(step.plan.kind is StepKind.PIVOT and step.name in row.committed_steps for step in saga.steps)


def _lifetime_reason(node: Node, row: TransactionRow) -> str:
    lifetime = node.settings.domain(row.saga_name).transaction_lifetime
    age = node.clock.now() - row.created_at - row.waited
    return f"it is {told(age)} old, over the lifetime of {told(lifetime)} (transaction_lifetime)"
