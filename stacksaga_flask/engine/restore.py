"""Restoring a frozen transaction, in the design's order (Unfreeze; R1, R6, R9, R12).

Claim → read → retry pointer ∥ a later watchdog → one batch of the whole row and the deletion of the frozen row, within
trust and before the retry pointer's fence → claim given back. A row that lands later than that has lost already: a
sweeper that finds the new pointers beside a frozen row confirms it with a higher timestamp.
"""

from __future__ import annotations

import enum
from typing import NamedTuple
from uuid import UUID

from msgspec.structs import replace

from stacksaga_flask.clock import SECOND
from stacksaga_flask.engine.claims import Claim
from stacksaga_flask.engine.node import Node, logger
from stacksaga_flask.engine.takeover import PausePointers, apply_checked, arm_pause, claimed_right, why_compensated
from stacksaga_flask.errors import ClockSkew, CorruptRow, OutcomeUnknown, RightEnded, StoreError
from stacksaga_flask.store.contract import (
    Register,
    RunningStatus,
    StoredTransaction,
    TransactionRow,
    WriteTransaction,
)

_REQUESTS_UNDER_THE_CLAIM = 3
_PAUSED_FORM = {
    RunningStatus.PROCESSING: RunningStatus.PROCESS_PAUSED,
    RunningStatus.PROCESS_PAUSED: RunningStatus.PROCESS_PAUSED,
    RunningStatus.PROCESS_WAITING: RunningStatus.PROCESS_WAITING,
    RunningStatus.REVERTING: RunningStatus.REVERT_PAUSED,
    RunningStatus.REVERT_PAUSED: RunningStatus.REVERT_PAUSED,
}
_PAUSED = (RunningStatus.PROCESS_PAUSED, RunningStatus.REVERT_PAUSED)


class Verdict(str, enum.Enum):
    """What came of something that a person asked for."""

    DONE = "done"
    NOTHING_TO_DO = "nothing to do"
    REFUSED = "refused"
    """Its state does not allow it, or another process is at it; nothing was changed."""
    FAILED = "failed"
    """It could not be done now; nothing was changed that counts."""
    UNKNOWN = "unknown"
    """It may have been done: it was not acknowledged."""

    @property
    def as_wanted(self) -> bool:
        """Whether the transaction stands as the person wanted it to."""
        return self in (Verdict.DONE, Verdict.NOTHING_TO_DO)


class Answer(NamedTuple):
    """What a person is told.

    Attributes:
        verdict: What came of it.
        told: What happened, and what to do about it.
    """

    verdict: Verdict
    told: str


def no_such_transaction(node: Node) -> Answer:
    """The answer for an id that nothing has."""
    scope = "/".join(node.store.scope)
    return Answer(Verdict.REFUSED, f"there is no such transaction in {scope}: see whether it is another service's")


def restore(node: Node, transaction_id: UUID) -> Answer:
    """Let a frozen transaction go on: it is paused, and tried in the next window. Its lifetime begins anew (R12).

    If what it was frozen for still stands, the sweep freezes it again with its reason.
    """
    claim: Claim | None = None
    try:
        claim = node.claims.take(transaction_id, trust=_REQUESTS_UNDER_THE_CLAIM * node.write_timeout).claim
        stored = node.store.read(transaction_id)
    except (StoreError, ClockSkew) as error:
        _give_back(node, claim)
        return Answer(Verdict.REFUSED if isinstance(error, CorruptRow) else Verdict.FAILED, f"not restored: {error}")
    refusal = no_such_transaction(node) if stored is None else _refusal(stored.row)
    if stored is None or refusal is not None:
        _give_back(node, claim)
        return refusal or no_such_transaction(node)
    if claim is None:
        return Answer(
            Verdict.REFUSED,
            f"not restored: another process holds its claim. Repeat it in {node.settings.claim_ttl // SECOND} s",
        )
    return _unfreeze(node, claim, stored)


def _refusal(row: TransactionRow) -> Answer | None:
    """Why the row needs no restoring, or cannot be; None if it can."""
    status = row.running_status
    if status in _PAUSED:
        return Answer(Verdict.NOTHING_TO_DO, f"it is {status.value} and will be tried: nothing to restore")
    if status is not RunningStatus.FROZEN:
        return Answer(Verdict.REFUSED, f"it is {status.value}: only a frozen transaction is restored")
    if row.status_before_freezing not in _PAUSED_FORM:
        return Answer(
            Verdict.REFUSED,
            f"its row says {row.status_before_freezing!r} for the status before freezing, which nothing is frozen "
            f"from: mend the column status_before_freezing, then restore it",
        )
    return None


def _unfreeze(node: Node, claim: Claim, stored: StoredTransaction) -> Answer:
    right = claimed_right(node, claim, stored)
    together: tuple[Register, ...] = ()
    try:
        pointers = arm_pause(node, stored.row, delay_windows=1)
        right.shrink(node.grid.fence(pointers.retry))
        if node.store.transactional:
            together = pointers.registrations
        else:
            apply_checked(node, right, *pointers.registrations)
        row = _restored(node, stored.row, pointers)
        write = WriteTransaction(
            row=row, timestamp=right.timestamp(), expected_epoch=stored.row.epoch, delete_frozen=True
        )
    except (StoreError, RightEnded, ClockSkew) as error:
        # The row was not sent, so pointers that lead to a frozen transaction are all that there may be.
        return _not_restored(node, claim, error)
    try:
        apply_checked(node, right, *together, write)
    except (OutcomeUnknown, RightEnded) as error:
        return Answer(
            Verdict.UNKNOWN,
            f"whether it was restored is not known: {error}. Look at it again in {claim.ttl} s, when its claim has "
            f"expired; restoring it again does no harm",
        )
    except StoreError as error:
        return _not_restored(node, claim, error)
    node.recorded(RunningStatus.FROZEN, row)
    _give_back(node, claim)
    return Answer(Verdict.DONE, f"restored: it is {row.running_status.value} and is tried in the next window")


def _restored(node: Node, row: TransactionRow, pointers: PausePointers) -> TransactionRow:
    assert row.status_before_freezing is not None
    status, now = _PAUSED_FORM[row.status_before_freezing], node.clock.now()
    return replace(
        row,
        running_status=status,
        epoch=row.epoch + 1,
        retry=pointers.retry,
        watchdog=pointers.watchdog,
        status_before_freezing=None,
        reason=why_compensated(row) if status is RunningStatus.REVERT_PAUSED else None,
        # The time until now counts as time spent waiting, so the lifetime begins anew.
        waited=now - row.created_at,
        updated_at=now,
    )


def _not_restored(node: Node, claim: Claim, error: Exception) -> Answer:
    _give_back(node, claim)
    return Answer(Verdict.FAILED, f"not restored, it is still frozen: {error}")


def _give_back(node: Node, claim: Claim | None) -> None:
    if claim is None:
        return
    try:
        node.claims.give_back(claim)
    except StoreError as error:
        logger.info("the claim of transaction_id=%s is left to its TTL: %s", claim.transaction_id, error)
