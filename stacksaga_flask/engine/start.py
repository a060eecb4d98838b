"""Starting a transaction, without and with a key (R2, R17).

* Start: tiers 1-5 ∥ row → all acknowledged before the fence → run. Failed: closed, or "unknown".
* Keyed start: read row → claim with the hash → tiers 1-5, read row again → row, last → run. The claim is left to its
  TTL. A row that was not acknowledged is not closed: the same key goes on with it.
"""

from __future__ import annotations

import uuid
from typing import Any, NamedTuple
from uuid import UUID

from msgspec.structs import replace

from stacksaga_flask.clock import SECOND
from stacksaga_flask.directory.writer import PointerKind
from stacksaga_flask.engine.claims import Claim
from stacksaga_flask.engine.node import Node, logger
from stacksaga_flask.engine.owned import HARMLESS_TO_REPEAT
from stacksaga_flask.engine.ownership import Right
from stacksaga_flask.engine.repeat import repeatedly
from stacksaga_flask.engine.takeover import apply_checked, arm, as_it_may_be_told, confirm, drop_pointer
from stacksaga_flask.errors import (
    ClockSkew,
    Fenced,
    KeyConflict,
    NotStarted,
    OutcomeUnknown,
    RightEnded,
    StartUnknown,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from stacksaga_flask.saga.definition import Saga
from stacksaga_flask.saga.payload import canonical_hash
from stacksaga_flask.store.contract import (
    Expected,
    IndexStart,
    Register,
    RunningStatus,
    StoredTransaction,
    TransactionRow,
    WriteTransaction,
)

KEY_NAMESPACE = uuid.UUID("8f0b6f6a-3f0d-5d7e-9b57-3b4a8d1a6f11")
_WAIT_FOR_ROW = SECOND // 20


class Started(NamedTuple):
    """What a start came to.

    Attributes:
        row: The transaction as recorded.
        right: The right to run it; None if it is not the caller's to run.
        claim: The claim of a keyed start, which is left to its TTL.
    """

    row: TransactionRow
    right: Right | None
    claim: Claim | None = None


class Prepared(NamedTuple):
    """A start that was not sent yet."""

    row: TransactionRow
    registrations: tuple[Register, ...]
    listing: tuple[IndexStart, ...]
    fence: int


def transaction_id_of(key: str) -> UUID:
    """The transaction id of an `Idempotency-Key` (R17)."""
    return uuid.uuid5(KEY_NAMESPACE, key)


def prepare(
    node: Node, saga: Saga[Any, Any], data: bytes, transaction_id: UUID, *, start_hash: str | None, leave: bool
) -> Prepared:
    """The row and the pointers of a new transaction.

    Args:
        node: This process.
        saga: The saga.
        data: The encoded payload.
        transaction_id: Of the new transaction.
        start_hash: Of a keyed start.
        leave: Leave the run to the daemon: the row is paused from the beginning and has a retry pointer too.

    Raises:
        ClockSkew, StoreError: The clock could not be compared with the store's (R14).
    """
    domain = node.settings.domain(saga.name)
    now, retry = node.clock.now(), None
    registrations: tuple[Register, ...]
    if leave:
        window = node.grid.write_window(now, delay_windows=1, not_before=0, write_timeout=node.write_timeout)
        retry = node.writer.path(window, PointerKind.RETRY)
        # The watchdog lies behind the retry pointer (R1), however few windows ahead the domain wants it.
        later = node.grid.ahead(node.grid.opens(window), domain.restore_delay_windows)
        watchdog = node.writer.path(later, PointerKind.WATCHDOG)
        registrations = (node.writer.register(watchdog, transaction_id), node.writer.register(retry, transaction_id))
    else:
        watchdog, registration = arm(node, transaction_id, saga.name)
        registrations = (registration,)
    row = TransactionRow(
        transaction_id=transaction_id,
        running_status=RunningStatus.PROCESS_PAUSED if leave else RunningStatus.PROCESSING,
        created_at=now,
        updated_at=now,
        payload=data,
        watchdog=watchdog,
        retry=retry,
        saga_name=saga.name,
        saga_version=saga.version,
        payload_version=saga.codec.version,
        start_hash=start_hash,
        protection_mode=domain.write_protection_mode,
    )
    keep_for = node.settings.history_retention // SECOND
    listing = (node.writer.index_start(row, keep_for=keep_for),) if node.settings.start_index else ()
    return Prepared(row, registrations, listing, node.grid.fence(retry or watchdog))


def start(node: Node, saga: Saga[Any, Any], data: bytes, *, leave: bool = False) -> Started:
    """Start a transaction without a key (R2).

    Raises:
        NotStarted: It was not; no step ran.
        StartUnknown: Whether it was is unknown; no step ran here.
    """
    transaction_id = uuid.uuid4()
    try:
        prepared = prepare(node, saga, data, transaction_id, start_hash=None, leave=leave)
    except StoreError as error:
        raise _not_started(transaction_id, error) from error
    row = prepared.row
    right = Right(node.clock, ends_at=prepared.fence)
    try:
        write = WriteTransaction(row=row, timestamp=right.timestamp(), expected=Expected.ABSENT)
    except RightEnded as error:
        # The process stood still until the fence; nothing was sent.
        raise _not_started(transaction_id, error) from error
    try:
        apply_checked(node, right, *prepared.registrations, *prepared.listing, write)
    except (OutcomeUnknown, RightEnded) as error:
        _close(node, right, row, error)
    except StoreError as error:
        raise _not_started(row.transaction_id, error) from error
    node.recorded(None, row)
    return Started(row, None if leave else right)


def _not_started(transaction_id: UUID, error: Exception) -> NotStarted:
    return NotStarted(f"the transaction was not started and no step ran: {error}", transaction_id=transaction_id)


def _close(node: Node, right: Right, row: TransactionRow, error: Exception) -> None:
    """Close a start that failed, so that nobody runs it later; if that fails too, the answer is "unknown" (R2).

    Raises:
        NotStarted: It is closed.
        StartUnknown: It may not be.
    """
    closed = replace(
        row,
        running_status=RunningStatus.REVERT_COMPLETED,
        retry=None,
        updated_at=node.clock.now(),
        reason=f"the start was not acknowledged, so no step ran: {error}",
    )
    try:
        write = WriteTransaction(
            row=closed,
            timestamp=right.timestamp(),
            expected=Expected.EPOCH_OR_ABSENT,
            expected_epoch=row.epoch,
            delete_markers=True,
        )
        apply_checked(node, right, write)
    except (StoreError, RightEnded) as second:
        raise StartUnknown(
            f"whether the transaction {row.transaction_id} was started is unknown ({error}), and it could not be "
            f"closed ({second}); no step ran here. If it was, its watchdog finds it",
            transaction_id=row.transaction_id,
        ) from error
    if row.watchdog is not None:
        drop_pointer(node, row.watchdog, row.transaction_id)
    raise _not_started(row.transaction_id, error) from error


# -- with a key ------------------------------------------------------------------------------------------------


def start_keyed(node: Node, saga: Saga[Any, Any], data: bytes, key: str, *, leave: bool = False) -> Started:
    """Start a transaction once per key, or find the one that the key started (R17).

    Raises:
        KeyConflict: The key was used with another saga or payload.
        NotStarted: Nothing was started; the key may be used again at once.
        StartUnknown: Whether it was started is unknown; repeat with the same key.
        ClockSkew: Nothing was started.
    """
    transaction_id = transaction_id_of(key)
    start_hash = start_hash_of(saga, data)
    try:
        stored = node.store.read(transaction_id)
        if stored is not None:
            return _answered(node, stored, start_hash)
        attempt = node.claims.take(transaction_id, start_hash=start_hash)
    except StoreError as error:
        raise _not_started(transaction_id, error) from error
    if attempt.claim is None:
        if _differs(attempt.holder_hash, start_hash):
            raise _conflict(transaction_id)
        return _answered(node, _wait_for_row(node, transaction_id), start_hash)
    return _claimed_start(node, saga, data, attempt.claim, start_hash, leave)


def start_hash_of(saga: Saga[Any, Any], data: bytes) -> str:
    """Hash of a start, with the payload version, as payloads of different versions cannot be compared."""
    return f"{saga.codec.version}:{canonical_hash(saga.name, data)}"


def _differs(known: str | None, start_hash: str) -> bool:
    """Whether a start with one hash was certainly another request than one with the other."""
    return known is not None and known.split(":")[0] == start_hash.split(":")[0] and known != start_hash


def _claimed_start(
    node: Node, saga: Saga[Any, Any], data: bytes, claim: Claim, start_hash: str, leave: bool
) -> Started:
    transaction_id = claim.transaction_id
    try:
        prepared = prepare(node, saga, data, transaction_id, start_hash=start_hash, leave=leave)
        right = Right(node.clock, ends_at=min(claim.trusted_until, prepared.fence))
        apply_checked(node, right, *prepared.registrations, *prepared.listing)
        stored = node.store.read(transaction_id)
    except (StoreError, RightEnded) as error:
        # The row was never sent, so the claim may go; the pointer, if it is there, has none (R2).
        _give_back(node, claim)
        raise _not_started(transaction_id, error) from error
    except ClockSkew:
        _give_back(node, claim)
        raise
    if stored is not None:
        _give_back(node, claim)
        return _answered(node, stored, start_hash)
    try:
        _write_row(node, right, prepared.row)
        right.extend(prepared.fence)
    except Fenced:
        return _answered(node, _wait_for_row(node, transaction_id), start_hash)
    except (StoreUnavailable, StoreRefused) as error:
        _give_back(node, claim)
        raise _not_started(transaction_id, error) from error
    except (OutcomeUnknown, RightEnded) as error:
        raise StartUnknown(
            f"whether the transaction {transaction_id} was started is unknown ({error}); no step ran here: repeat "
            f"the request with the same Idempotency-Key",
            transaction_id=transaction_id,
            keyed=True,
        ) from error
    node.recorded(None, prepared.row)
    return Started(prepared.row, None if leave else right, claim)


def _write_row(node: Node, right: Right, row: TransactionRow) -> None:
    """Write the row within trust; what was not acknowledged is repeated with a higher timestamp while that lasts.

    Raises:
        StoreUnavailable, StoreRefused: Nothing was written, by any attempt.
        Fenced: Another start of the same key has written a row.
        OutcomeUnknown, RightEnded: It may have been written.
    """
    unknown: list[OutcomeUnknown] = []

    def write() -> None:
        batch = WriteTransaction(row=row, timestamp=right.timestamp(), expected=Expected.ABSENT)
        try:
            apply_checked(node, right, batch)
        except OutcomeUnknown as error:
            unknown.append(error)
            raise
        except Fenced:
            # Where a store fences, the row of an attempt whose answer was lost stands in the way of the next.
            stored = node.store.read(row.transaction_id)
            right.check()
            if stored is None or stored.row != row:
                raise

    try:
        repeatedly(write, HARMLESS_TO_REPEAT, node.clock, at_most=2 * node.write_timeout)
    except (StoreUnavailable, StoreRefused) as error:
        if unknown:
            raise OutcomeUnknown(f"{unknown[-1]}; then: {error}") from error
        raise


def _give_back(node: Node, claim: Claim) -> None:
    try:
        node.claims.give_back(claim)
    except StoreError as error:
        logger.info("the claim of transaction_id=%s is left to its TTL: %s", claim.transaction_id, error)


def _wait_for_row(node: Node, transaction_id: UUID) -> StoredTransaction:
    """The row that the holder of the claim is about to write.

    Raises:
        StartUnknown: It did not come.
    """
    deadline = node.clock.boot() + node.write_timeout
    try:
        while (stored := node.store.read(transaction_id)) is None:
            if node.clock.boot() >= deadline:
                break
            node.clock.sleep(_WAIT_FOR_ROW)
        else:
            return stored
    except StoreError as error:
        raise StartUnknown(transaction_id=transaction_id, keyed=True) from error
    raise StartUnknown(
        f"another request with this Idempotency-Key is starting the transaction {transaction_id}: repeat this one",
        transaction_id=transaction_id,
        keyed=True,
    )


def _answered(node: Node, stored: StoredTransaction, start_hash: str) -> Started:
    """What the row says, which is the ledger of the key (R17).

    Raises:
        KeyConflict: It was started with another saga or payload.
    """
    row = stored.row
    if row.start_hash is None or _differs(row.start_hash, start_hash):
        raise _conflict(row.transaction_id)
    try:
        told = as_it_may_be_told(node, row)
        if told is not row and _confirmed(node, row.transaction_id):
            told = row
    except (StoreError, RightEnded, ClockSkew) as error:
        logger.info("transaction_id=%s is not confirmed yet: %s", row.transaction_id, error)
        told = replace(row, running_status=RunningStatus.PROCESSING)
    return Started(told, None)


def _confirmed(node: Node, transaction_id: UUID) -> bool:
    """Confirm a terminal status under a claim (R4); False if that is another's business now."""
    claim = node.claims.take(transaction_id).claim
    if claim is None:
        return False
    stored = node.store.read(transaction_id)
    if stored is None or not stored.row.running_status.terminal:
        node.claims.give_back(claim)
        return False
    confirm(node, claim, stored)
    return True


def _conflict(transaction_id: UUID) -> KeyConflict:
    return KeyConflict(
        f"this Idempotency-Key started the transaction {transaction_id} with another saga or payload: use a new key "
        f"for a new request",
        transaction_id=transaction_id,
    )
