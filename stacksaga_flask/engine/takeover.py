"""Going on with a transaction under a claim: takeover and confirmation (R4, R6, R13).

Everyone but the starter claims first and reads second. The whole row is then written with a timestamp above the one
read, so that older writes still under way can no longer show.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from msgspec.structs import replace

from stacksaga_flask.directory.writer import PointerKind
from stacksaga_flask.engine.claims import Claim
from stacksaga_flask.engine.node import Node, logger
from stacksaga_flask.engine.ownership import Right
from stacksaga_flask.errors import StoreError
from stacksaga_flask.store.contract import (
    FrozenRow,
    Operation,
    Path,
    Register,
    RunningStatus,
    StoredTransaction,
    TransactionRow,
    WriteTransaction,
)


class Taken(NamedTuple):
    """A transaction that was taken over."""

    row: TransactionRow
    right: Right


def claimed_right(node: Node, claim: Claim, stored: StoredTransaction, *, above: int = 0) -> Right:
    """The right that a claim gives over a row that was read under it (R13).

    Args:
        node: This process.
        claim: The claim.
        stored: The row that was read.
        above: A timestamp that writes must be above: the last one that this process gave the transaction, or what the
            pointer that was found or a death found by lock demands.
    """
    return Right(node.clock, ends_at=claim.trusted_until, above=max(above, stored.written_at))


def compare_clock(node: Node) -> None:
    """See that this machine's clock may be trusted, as before anything is started or armed (R14).

    Raises:
        ClockSkew: It is too far from the store's.
        StoreError: The store did not tell its time.
    """
    node.clock.compare(node.store.now)


def arm(node: Node, transaction_id: UUID, saga_name: str) -> tuple[Path, Register]:
    """A path for a new watchdog, and the operation that registers it.

    Raises:
        ClockSkew, StoreError: See `compare_clock`.
    """
    compare_clock(node)
    window = node.grid.write_window(
        node.clock.now(),
        delay_windows=node.settings.domain(saga_name).restore_delay_windows,
        not_before=0,
        write_timeout=node.write_timeout,
    )
    path = node.writer.path(window, PointerKind.WATCHDOG)
    return path, node.writer.register(path, transaction_id)


class PausePointers(NamedTuple):
    """The pointers that a pause names, and the operations that register those which are new."""

    retry: Path
    watchdog: Path
    registrations: tuple[Register, ...]


def arm_pause(node: Node, row: TransactionRow, *, delay_windows: int, wait: int = 0) -> PausePointers:
    """A retry pointer, and a later watchdog if the present one does not lie after it (R1, R3).

    Args:
        node: This process.
        row: The transaction.
        delay_windows: How many windows ahead, at least 1.
        wait: Microseconds before which it must not be tried (`Retry-After`).

    Raises:
        ClockSkew, StoreError: See `compare_clock`.
    """
    compare_clock(node)
    now = node.clock.now()
    window = node.grid.write_window(
        now, delay_windows=delay_windows, not_before=now + wait, write_timeout=node.write_timeout
    )
    retry, watchdog = node.writer.path(window, PointerKind.RETRY), row.watchdog
    registrations = [node.writer.register(retry, row.transaction_id)]
    if watchdog is None or node.grid.opens(watchdog) <= node.grid.opens(retry):
        later = node.grid.ahead(node.grid.opens(retry), node.settings.domain(row.saga_name).restore_delay_windows)
        watchdog = node.writer.path(later, PointerKind.WATCHDOG)
        registrations.append(node.writer.register(watchdog, row.transaction_id))
    return PausePointers(retry, watchdog, tuple(registrations))


def take_over(
    node: Node,
    claim: Claim,
    stored: StoredTransaction,
    *,
    above: int = 0,
    resume: bool = False,
    found: Path | None = None,
    about_to_send: Callable[[TransactionRow], None] | None = None,
) -> Taken:
    """Take over a running or paused transaction that was read under the claim (R6).

    A running one is armed with a watchdog of our own first, unless it is at a later epoch than its starter's and the
    sweep holds the pointer that it was found by. A takeover from PROCESSING makes the next step possibly done (R8).

    Args:
        node, claim, stored, above: Those of `claimed_right`.
        resume: Let a paused transaction run.
        found: The pointer that a sweep found it by, which stays until the outcome is durable.
        about_to_send: Is told the row before it is sent.

    Raises:
        RightEnded: The claim is no longer trusted, or an acknowledgement came too late.
        StoreError: The takeover was not acknowledged.
    """
    row = stored.row
    right = claimed_right(node, claim, stored, above=above)
    registrations: tuple[Register, ...] = ()
    watchdog = row.watchdog
    if row.running_status.running and (row.epoch == 0 or found is None):
        watchdog, registration = arm(node, row.transaction_id, row.saga_name)
        registrations = (registration,)
    taken = replace(
        row,
        running_status=_RESUMED.get(row.running_status, row.running_status) if resume else row.running_status,
        epoch=row.epoch + 1,
        watchdog=watchdog,
        possibly_done=row.possibly_done or row.running_status is RunningStatus.PROCESSING,
        updated_at=node.clock.now(),
    )

    def write() -> WriteTransaction:
        if about_to_send is not None:
            about_to_send(taken)
        return WriteTransaction(row=taken, timestamp=right.timestamp(), expected_epoch=row.epoch, delete_frozen=True)

    if node.store.transactional:
        apply_checked(node, right, *registrations, write())
    else:
        apply_checked(node, right, *registrations)
        apply_checked(node, right, write())
    if row.watchdog is not None and row.watchdog not in (watchdog, found):
        drop_superseded(node, row.watchdog, taken)
    return Taken(taken, right)


_RESUMED = {
    RunningStatus.PROCESS_PAUSED: RunningStatus.PROCESSING,
    RunningStatus.REVERT_PAUSED: RunningStatus.REVERTING,
}


def drop_pointer(node: Node, path: Path, transaction_id: UUID) -> None:
    """Delete a pointer that the row no longer needs. If that fails a sweeper finds it superseded and drops it."""
    try:
        node.store.apply(node.writer.delete(path, transaction_id))
    except StoreError as error:
        logger.warning("pointer %s of transaction_id=%s is left to the sweep: %s", path, transaction_id, error)


def drop_superseded(node: Node, watchdog: Path, row: TransactionRow) -> None:
    """Delete a watchdog that the row names no longer, unless one that is armed from now on may have its path.

    A delete wins over whatever is registered in the same path afterwards (R13), so such a watchdog would not be there.
    What is not deleted is found superseded when its window opens, and dropped unrun (R4).
    """
    slowest = node.clock.now() - 2 * node.settings.clock_skew_margin
    nearest = node.grid.ahead(slowest, node.settings.domain(row.saga_name).restore_delay_windows)
    if node.grid.opens(watchdog) < node.grid.opens(nearest):
        drop_pointer(node, watchdog, row.transaction_id)


def apply_checked(node: Node, right: Right, *operations: Operation) -> None:
    """Write, and count an acknowledgement after the right's end as none (R6). Acknowledged tiers are remembered (R3).

    Raises:
        RightEnded: It was acknowledged too late, so its outcome is unknown.
        StoreError: It was not acknowledged.
    """
    if not operations:
        return
    node.store.apply(*operations)
    right.check()
    for operation in operations:
        if isinstance(operation, Register):
            node.writer.acknowledged(operation, node.clock.now())


def as_it_may_be_told(node: Node, row: TransactionRow) -> TransactionRow:
    """The row, with a terminal status only once it counts: its watchdog is gone (R4).

    Raises:
        StoreError: The store could not be asked.
    """
    if not row.running_status.terminal or row.watchdog is None:
        return row
    if not node.store.has_pointer(row.watchdog, row.transaction_id):
        return row
    return replace(row, running_status=_BEFORE_THE_END[row.running_status])


_BEFORE_THE_END = {
    RunningStatus.PROCESS_COMPLETED: RunningStatus.PROCESSING,
    RunningStatus.REVERT_COMPLETED: RunningStatus.REVERTING,
}


def confirm(node: Node, claim: Claim, stored: StoredTransaction, *, above: int = 0) -> None:
    """Make a terminal or frozen status that was read count (R4): write it again, clean up, give the claim back.

    Arguments are those of `claimed_right`.

    Raises:
        RightEnded, StoreError: It could not be confirmed now.
    """
    row = stored.row
    terminal = row.running_status.terminal
    right = claimed_right(node, claim, stored, above=above)
    write = WriteTransaction(
        row=row,
        timestamp=right.timestamp(),
        expected_epoch=row.epoch,
        delete_markers=terminal,
        delete_frozen=terminal,
        frozen=None if terminal else frozen_row(row),
    )
    apply_checked(node, right, write)
    if terminal and row.watchdog is not None:
        node.store.apply(node.writer.delete(row.watchdog, row.transaction_id))
    node.claims.give_back(claim)


def frozen_row(row: TransactionRow) -> FrozenRow:
    """What `es_frozen_transaction` says of a frozen transaction."""
    return FrozenRow(
        transaction_id=row.transaction_id, frozen_at=row.updated_at, reason=row.reason or "no reason was given"
    )


_COMPENSATED = " (it was being compensated: "


def why_frozen(reason: str, row: TransactionRow) -> str:
    """Why the transaction is frozen, and behind it why it was being compensated, if it was."""
    return f"{reason}{_COMPENSATED}{row.reason})" if row.reason else reason


def why_compensated(frozen: TransactionRow) -> str | None:
    """Why a frozen transaction was being compensated, out of what `why_frozen` made."""
    _, found, reason = (frozen.reason or "").partition(_COMPENSATED)
    return reason.removesuffix(")") if found else frozen.reason


def freeze(node: Node, claim: Claim, stored: StoredTransaction, reason: str, *, above: int = 0) -> TransactionRow:
    """Freeze a transaction that was read under the claim: one batch of row and frozen row → claim given back (R9).

    Args:
        node, claim, stored, above: Those of `claimed_right`.
        reason: What happened, and what to do.

    Returns:
        The row as written.

    Raises:
        RightEnded, StoreError: It was not acknowledged.
    """
    row = stored.row
    right = claimed_right(node, claim, stored, above=above)
    frozen = replace(
        row,
        running_status=RunningStatus.FROZEN,
        status_before_freezing=row.running_status,
        epoch=row.epoch + 1,
        possibly_done=row.possibly_done or row.running_status is RunningStatus.PROCESSING,
        updated_at=node.clock.now(),
        reason=why_frozen(reason, row),
    )
    write = WriteTransaction(
        row=frozen, timestamp=right.timestamp(), expected_epoch=row.epoch, frozen=frozen_row(frozen)
    )
    apply_checked(node, right, write)
    node.recorded(row.running_status, frozen)
    node.claims.give_back(claim)
    return frozen
