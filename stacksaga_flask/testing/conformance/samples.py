"""Rows and operations for the suite.

Times in rows are whole milliseconds, since that is all that the column type of Cassandra keeps. Transaction ids are
UUIDs of one version, since Cassandra sorts those of different versions otherwise than others do.
"""

from __future__ import annotations

from uuid import UUID, uuid4

from msgspec.structs import replace

from stacksaga_flask.clock import SECOND
from stacksaga_flask.store.contract import (
    DeletePointer,
    DeleteTransaction,
    ExecutionType,
    Expected,
    Grid,
    Marker,
    Path,
    ProtectionMode,
    Register,
    RunningStatus,
    Scope,
    Store,
    TransactionRow,
    Tryout,
    TryoutStatus,
    WriteTransaction,
)

DATE = "2023-11-14"
WINDOW = 863
OPENS_AT = 1_699_971_780 * SECOND
"""The first second of that window, 14:23:00 UTC."""
DAY_STARTS_AT = 1_699_920_000 * SECOND
T = OPENS_AT - 600 * SECOND
"""A timestamp; tests count up and down from it."""
ALL_TIERS = frozenset({1, 2, 3, 4, 5})
PATH = Path(DATE, WINDOW, "web-1", 0)
GRID = Grid(schema_version=1, window_interval=60, clock_skew_margin=SECOND)


def fresh_scope() -> Scope:
    """A scope that nobody has used."""
    return Scope("default", "default", f"conformance-{uuid4().hex}")


def row(transaction_id: UUID | None = None, *, attempt: int = 0, epoch: int = 0) -> TransactionRow:
    """A plain running row; `attempt` tells two of them apart."""
    return TransactionRow(
        transaction_id=transaction_id or uuid4(),
        running_status=RunningStatus.PROCESSING,
        created_at=T,
        updated_at=T,
        payload=b'{"order": 1}',
        watchdog=Path(DATE, WINDOW, "web-1", 1),
        saga_name="order",
        saga_version=1,
        payload_version=1,
        epoch=epoch,
        attempt=attempt,
    )


def full_row() -> TransactionRow:
    """A row with something in every field."""
    return TransactionRow(
        transaction_id=uuid4(),
        running_status=RunningStatus.REVERT_PAUSED,
        created_at=T,
        updated_at=T + 5000,
        payload=b"\x00\xff payload \x00",
        watchdog=Path(DATE, WINDOW, "web-1", 1),
        saga_name="order",
        saga_version=3,
        payload_version=2,
        epoch=4,
        committed_steps=("reserve", "charge", "ship"),
        possibly_done=True,
        reverts=("charge", "reserve"),
        retry=Path("2023-11-15", 0, "web-2", 2),
        attempt=7,
        start_hash="9f86d081884c7d65",
        protection_mode=ProtectionMode.STRICT,
        waited=12_345_678,
        status_before_freezing=RunningStatus.PROCESS_WAITING,
        reason="Karte abgelehnt: Betrag über dem Limit \N{CREDIT CARD} \N{SNOWMAN}",
        public_result=b'{"total": "9.90"}',
    )


def first(row: TransactionRow, at: int = T) -> WriteTransaction:
    """The write of a start."""
    return WriteTransaction(row=row, timestamp=at, expected=Expected.ABSENT)


def then(row: TransactionRow, at: int, *, epoch: int = 0) -> WriteTransaction:
    """A write of the owner of this epoch."""
    return WriteTransaction(row=row, timestamp=at, expected=Expected.EPOCH, expected_epoch=epoch)


def delete(transaction_id: UUID, at: int) -> DeleteTransaction:
    """The write of a sweeper that found a pointer without a row."""
    return DeleteTransaction(transaction_id=transaction_id, timestamp=at)


def tryout(index: int, *, error: str | None = None) -> Tryout:
    """One attempt."""
    return Tryout(
        tryout_index=index,
        executor="charge",
        execution_type=ExecutionType.PROCESS,
        status=TryoutStatus.SUCCEEDED if error is None else TryoutStatus.RETRYABLE,
        created_at=T,
        finished_at=T + 3000,
        instance_id="web-1",
        error=error,
    )


def claim(holder: str = "holder-1", result: bytes | None = None) -> Marker:
    """A claim of one holder."""
    return Marker(step_id="#claim", execution_state=holder, result=result)


def committed(step_id: str, result: bytes | None = None) -> Marker:
    """A plain marker of a committed step."""
    return Marker(step_id=step_id, execution_state="COMMITTED", result=result)


def register(
    path: Path = PATH,
    transaction_id: UUID | None = None,
    *,
    token: int = 0,
    tiers: frozenset[int] = ALL_TIERS,
    at: int = OPENS_AT - 2,
    day_at: int = DAY_STARTS_AT,
) -> Register:
    """The registration of a pointer."""
    return Register(
        path=path,
        transaction_id=transaction_id or uuid4(),
        instance_token=token,
        tiers=tiers,
        timestamp=at,
        day_timestamp=day_at,
    )


def drop(transaction_id: UUID, path: Path = PATH, *, at: int = OPENS_AT - 1) -> DeletePointer:
    """The deletion of a pointer."""
    return DeletePointer(path=path, transaction_id=transaction_id, timestamp=at)


def read_row(store: Store, transaction_id: UUID) -> TransactionRow | None:
    """The transaction's row without its timestamp."""
    stored = store.read(transaction_id)
    return None if stored is None else stored.row


def with_status(row: TransactionRow, status: RunningStatus) -> TransactionRow:
    """The row in another status."""
    return replace(row, running_status=status)
