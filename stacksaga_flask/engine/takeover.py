"""Going on with a transaction under a claim: takeover and confirmation (R4, R6, R13).

Everyone but the starter claims first and reads second. The whole row is then written with a timestamp above the one
read, so that older writes still under way can no longer show.
"""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from msgspec.structs import replace

from stacksaga_flask.directory.writer import PointerKind
from stacksaga_flask.engine.claims import Claim
from stacksaga_flask.engine.node import Node, logger
from stacksaga_flask.engine.ownership import Right
from stacksaga_flask.errors import StoreError
from stacksaga_flask.store.contract import (
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
        above: The last timestamp that this process gave the transaction, if it wrote it before.
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


def take_over(node: Node, claim: Claim, stored: StoredTransaction, *, above: int = 0) -> Taken:
    """Take over a running or paused transaction that was read under the claim (R6).

    A running one is armed with a watchdog of our own first. A takeover from PROCESSING makes the next step possibly
    done (R8). Arguments are those of `claimed_right`.

    Raises:
        RightEnded: The claim is no longer trusted, or an acknowledgement came too late.
        StoreError: The takeover was not acknowledged.
    """
    row = stored.row
    right = claimed_right(node, claim, stored, above=above)
    registrations: tuple[Register, ...] = ()
    watchdog = row.watchdog
    if row.running_status.running:
        watchdog, registration = arm(node, row.transaction_id, row.saga_name)
        registrations = (registration,)
    taken = replace(
        row,
        epoch=row.epoch + 1,
        watchdog=watchdog,
        possibly_done=row.possibly_done or row.running_status is RunningStatus.PROCESSING,
        updated_at=node.clock.now(),
    )

    def write() -> WriteTransaction:
        return WriteTransaction(row=taken, timestamp=right.timestamp(), expected_epoch=row.epoch, delete_frozen=True)

    if node.store.transactional:
        apply_checked(node, right, *registrations, write())
    else:
        apply_checked(node, right, *registrations)
        apply_checked(node, right, write())
    if row.watchdog is not None and row.watchdog != watchdog:
        drop_pointer(node, row.watchdog, row.transaction_id)
    return Taken(taken, right)


def drop_pointer(node: Node, path: Path, transaction_id: UUID) -> None:
    """Delete a pointer that the row no longer needs. If that fails a sweeper finds it superseded and drops it."""
    try:
        node.store.apply(node.writer.delete(path, transaction_id))
    except StoreError as error:
        logger.warning("pointer %s of transaction_id=%s is left to the sweep: %s", path, transaction_id, error)


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
    """Make a terminal status that was read count (R4): write it again, clean up, give the claim back.

    Arguments are those of `claimed_right`.

    Raises:
        RightEnded, StoreError: It could not be confirmed now.
    """
    row = stored.row
    right = claimed_right(node, claim, stored, above=above)
    write = WriteTransaction(
        row=row, timestamp=right.timestamp(), expected_epoch=row.epoch, delete_markers=True, delete_frozen=True
    )
    apply_checked(node, right, write)
    if row.watchdog is not None:
        node.store.apply(node.writer.delete(row.watchdog, row.transaction_id))
    node.claims.give_back(claim)
