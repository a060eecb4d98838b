"""Recording what became of a step: every write of a running transaction, in the design's order (section 5).

What may not be written under the present right goes through a claim: claim, read, take over if nobody else did,
record (R6).
"""

from __future__ import annotations

from msgspec.structs import replace

from stacksaga_flask.engine.claims import Claim
from stacksaga_flask.engine.node import logger
from stacksaga_flask.engine.owned import HARMLESS_TO_REPEAT, Owned, Result
from stacksaga_flask.engine.repeat import window_backoff
from stacksaga_flask.engine.takeover import (
    apply_checked,
    arm_pause,
    claimed_right,
    confirm,
    drop_pointer,
    drop_superseded,
    frozen_row,
    take_over,
    why_frozen,
)
from stacksaga_flask.errors import Fenced, OutcomeUnknown, RightEnded, StoreUnavailable
from stacksaga_flask.store.contract import RunningStatus, StoredTransaction, TransactionRow
from stacksaga_flask.transitions import Action


def record(owned: Owned, result: Result) -> bool:
    """Record a result, and tell whether it stands. If not, somebody else goes on with the transaction.

    Raises:
        StoreError, RightEnded, ClockSkew: It was not acknowledged. The watchdog finds the transaction.
    """
    before = owned.row.running_status
    try:
        stands = _record(owned, result)
    except (Fenced, RightEnded, OutcomeUnknown) as error:
        logger.info("transaction_id=%s is settled under a claim: %s", owned.row.transaction_id, error)
        stands = _settle(owned, result)
    if stands:
        owned.node.recorded(before, owned.row, result.tryouts)
    return stands


def _record(owned: Owned, result: Result) -> bool:
    """Record by what was decided. Whether a pause or an end was written must be known before anything else is.

    A plain step's write may be repeated with a higher timestamp while the right lasts. The others are repeated only
    if they were certainly not applied.
    """
    action = result.decision.action
    if action is Action.FREEZE:
        return owned.repeated(lambda: _freeze(owned, result), (StoreUnavailable,))
    if action is Action.PAUSE:
        owned.repeated(lambda: _pause(owned, result), (StoreUnavailable,))
        return True
    row = owned.after(result)
    if action is Action.END:
        owned.repeated(lambda: _end(owned, row, result), (StoreUnavailable,))
    else:
        owned.repeated(lambda: _write(owned, row, result), HARMLESS_TO_REPEAT)
    return True


def _write(owned: Owned, row: TransactionRow, result: Result) -> None:
    apply_checked(owned.node, owned.right, owned.batch(row, result))
    owned.acknowledged(row, result)


def _end(owned: Owned, row: TransactionRow, result: Result) -> None:
    """Terminal row, tryout and marker-partition delete in one batch → watchdog deleted, last (R9)."""
    node, watchdog = owned.node, row.watchdog
    batch = owned.batch(row, result, delete_markers=True)
    if node.store.transactional and watchdog is not None:
        apply_checked(node, owned.right, batch, node.writer.delete(watchdog, row.transaction_id))
        owned.acknowledged(row, result)
        return
    apply_checked(node, owned.right, batch)
    owned.acknowledged(row, result)
    owned.right.end()
    if watchdog is not None:
        drop_pointer(node, watchdog, row.transaction_id)


def _pause(owned: Owned, result: Result) -> None:
    """Retry pointer ∥ a later watchdog if the present one does not lie after it → row naming both (R1, R3)."""
    node, old = owned.node, owned.row.watchdog
    domain = node.settings.domain(owned.row.saga_name)
    windows = domain.retry_delay_windows
    if result.backs_off:
        windows = window_backoff(result.decision.progress.attempt, domain.backoff_cap_windows)
    pointers = arm_pause(
        node, owned.row, delay_windows=windows, wait=min(result.retry_after, domain.transaction_lifetime)
    )
    owned.right.shrink(node.grid.fence(pointers.retry))
    row = replace(owned.after(result), retry=pointers.retry, watchdog=pointers.watchdog)
    owned.in_order(pointers.registrations, lambda: owned.batch(row, result))
    owned.acknowledged(row, result)
    if owned.claim is None:
        owned.right.end()
    if old is not None and old != pointers.watchdog:
        drop_superseded(node, old, row)


def _freeze(owned: Owned, result: Result) -> bool:
    """Freezing is a takeover: claim → read → one batch of row and frozen row → claim given back."""
    held = _claim_and_read(owned, result)
    if held is None:
        return False
    claim, stored = held
    right = claimed_right(owned.node, claim, stored, above=owned.right.last_timestamp)
    row = owned.after(result)
    row = replace(
        row,
        epoch=stored.row.epoch + 1,
        status_before_freezing=owned.row.running_status,
        reason=why_frozen(row.reason or "", owned.row),
    )
    apply_checked(owned.node, right, owned.batch(row, result, right=right, frozen=frozen_row(row)))
    owned.acknowledged(row, result)
    owned.right = right
    return True


# -- when the right has ended ----------------------------------------------------------------------------------


def _settle(owned: Owned, result: Result) -> bool:
    """Record under a claim what could not be recorded, unless somebody else has gone on meanwhile (R6)."""
    if owned.right.left() <= 0:
        owned.node.clock.sleep(owned.node.settings.clock_skew_margin)
    # From here on nothing is written but under a claim, also if this fails and the result is kept (R6).
    owned.right.end()
    owned.drop_claim()
    held = _claim_and_read(owned, result)
    if held is None:
        return False
    claim, stored = held
    above = owned.right.last_timestamp
    if stored.row.running_status is RunningStatus.FROZEN:
        owned.acknowledged(stored.row, result)
        return True
    if stored.row.running_status.terminal:
        confirm(owned.node, claim, stored, above=above)
        owned.row, owned.claim = stored.row, None
        return True
    if _was_sent(owned, stored):
        # The attempts are in the history already, under the former epoch.
        result = result._replace(tryouts=())
    owned.take(*take_over(owned.node, claim, stored, above=above, about_to_send=owned.is_taken_as))
    return _record(owned, result)


def _claim_and_read(owned: Owned, result: Result) -> tuple[Claim, StoredTransaction] | None:
    """The row as it stands under a claim of ours; None, after logging it, if it isn't ours to write any more."""
    claim = owned.claimed()
    if claim is None:
        _late(owned, result, "another owner holds the claim")
        return None
    stored = owned.node.store.read(owned.row.transaction_id)
    if stored is not None and (_is_ours(owned, stored) or _was_sent(owned, stored) or _was_taken(owned, stored)):
        return claim, stored
    _late(owned, result, "another owner has taken it over" if stored else "its row is gone")
    owned.give_back()
    return None


def _is_ours(owned: Owned, stored: StoredTransaction) -> bool:
    """Whether nobody has taken the transaction over or frozen it."""
    return stored.row.epoch == owned.row.epoch and stored.row.running_status is not RunningStatus.FROZEN


def _was_sent(owned: Owned, stored: StoredTransaction) -> bool:
    """Whether the row that was read is the one that was sent last with a result."""
    return _is_same(owned.sent, stored.row)


def _was_taken(owned: Owned, stored: StoredTransaction) -> bool:
    """Whether the row that was read is that of a takeover of ours which was not acknowledged."""
    return _is_same(owned.taken_as, stored.row)


def _is_same(sent: TransactionRow | None, row: TransactionRow) -> bool:
    """Whether a row is what was sent. Stores may cut its times to milliseconds."""
    return sent is not None and replace(sent, created_at=0, updated_at=sent.updated_at // 1000) == replace(
        row, created_at=0, updated_at=row.updated_at // 1000
    )


def _late(owned: Owned, result: Result, why: str) -> None:
    for tryout in result.tryouts:
        logger.warning(
            "late result not recorded, %s: transaction_id=%s %s %s %s %s",
            why,
            owned.row.transaction_id,
            tryout.executor,
            tryout.execution_type.value,
            tryout.status.value,
            tryout.error or "",
        )
