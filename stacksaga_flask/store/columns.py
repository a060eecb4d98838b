"""Between the contract's rows and the values of columns, for every store that has the seed's tables.

What is stored may have been written by another version, by hand or not as a whole. A value that no version of ours
writes becomes `CorruptRow`, with the transaction and the column.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

from stacksaga_flask.errors import CorruptRow
from stacksaga_flask.store.contract import (
    ExecutionType,
    FrozenRow,
    Path,
    ProtectionMode,
    RunningStatus,
    TransactionRow,
    Tryout,
    TryoutStatus,
)

Values: TypeAlias = dict[str, Any]
E = TypeVar("E", bound=enum.Enum)

TRANSACTION_COLUMNS: Final = (
    "running_status",
    "created_at",
    "updated_at",
    "payload",
    "restore_date",
    "restore_window",
    "restore_instance_id",
    "restore_bucket",
    "saga_name",
    "saga_version",
    "payload_version",
    "epoch",
    "committed_steps",
    "possibly_done",
    "reverts",
    "retry_date",
    "retry_window",
    "retry_instance_id",
    "retry_bucket",
    "attempt",
    "start_hash",
    "protection_mode",
    "waited",
    "status_before_freezing",
    "reason",
    "public_result",
)
"""Columns of `es_transaction` without the key, in the order of `transaction_values`."""

TRYOUT_COLUMNS: Final = (
    "tryout_index",
    "executor",
    "execution_type",
    "status",
    "created_at",
    "error",
    "finished_at",
    "instance_id",
)
"""Columns of `es_transaction_tryout` without the transaction's key."""

NULLABLE: Final = frozenset({"start_hash", "status_before_freezing", "reason", "public_result"})

_NO_PATH: Final = (None, None, None, None)


def transaction_values(
    row: TransactionRow, *, time: Callable[[int], Any], names: Callable[[tuple[str, ...]], Any]
) -> tuple[Any, ...]:
    """The values of `TRANSACTION_COLUMNS`.

    Args:
        row: The row.
        time: From microseconds to what the store keeps.
        names: From a list of steps to what the store keeps.
    """
    before_freezing = row.status_before_freezing
    return (
        row.running_status.value,
        time(row.created_at),
        time(row.updated_at),
        row.payload,
        *(row.watchdog or _NO_PATH),
        row.saga_name,
        row.saga_version,
        row.payload_version,
        row.epoch,
        names(row.committed_steps),
        row.possibly_done,
        names(row.reverts),
        *(row.retry or _NO_PATH),
        row.attempt,
        row.start_hash,
        row.protection_mode.value,
        row.waited,
        before_freezing.value if before_freezing else None,
        row.reason,
        row.public_result,
    )


def transaction_row(
    transaction_id: UUID,
    record: Sequence[Any],
    *,
    time: Callable[[Any], int],
    names: Callable[[Any], tuple[str, ...]],
) -> TransactionRow:
    """A row from the values of `TRANSACTION_COLUMNS`.

    Raises:
        CorruptRow: A value is one that no version of ours writes.
    """
    found = dict(zip(TRANSACTION_COLUMNS, record, strict=True))
    watchdog, retry = _path(found, "restore", transaction_id), _path(found, "retry", transaction_id)
    for column, value in found.items():
        if value is None and column not in NULLABLE and not column.startswith(("restore_", "retry_")):
            raise _corrupt(transaction_id, "es_transaction", column, None)
    before_freezing = found["status_before_freezing"]

    def known(kind: type[E], column: str) -> E:
        return _known(kind, found[column], transaction_id, "es_transaction", column)

    return TransactionRow(
        transaction_id=transaction_id,
        running_status=known(RunningStatus, "running_status"),
        created_at=time(found["created_at"]),
        updated_at=time(found["updated_at"]),
        payload=found["payload"],
        watchdog=watchdog,
        saga_name=found["saga_name"],
        saga_version=found["saga_version"],
        payload_version=found["payload_version"],
        epoch=found["epoch"],
        committed_steps=names(found["committed_steps"]),
        possibly_done=bool(found["possibly_done"]),
        reverts=names(found["reverts"]),
        retry=retry,
        attempt=found["attempt"],
        start_hash=found["start_hash"],
        protection_mode=known(ProtectionMode, "protection_mode"),
        waited=found["waited"],
        status_before_freezing=known(RunningStatus, "status_before_freezing") if before_freezing else None,
        reason=found["reason"],
        public_result=found["public_result"],
    )


def tryout_values(tryout: Tryout, *, time: Callable[[int], Any]) -> tuple[Any, ...]:
    """The values of `TRYOUT_COLUMNS`."""
    return (
        tryout.tryout_index,
        tryout.executor,
        tryout.execution_type.value,
        tryout.status.value,
        time(tryout.created_at),
        tryout.error,
        time(tryout.finished_at),
        tryout.instance_id,
    )


def tryout(transaction_id: UUID, record: Sequence[Any], *, time: Callable[[Any], int]) -> Tryout:
    """A tryout from the values of `TRYOUT_COLUMNS`.

    Raises:
        CorruptRow: A value is one that no version of ours writes.
    """
    index, executor, execution_type, status, created_at, error, finished_at, instance_id = record
    table = "es_transaction_tryout"
    for column, value in zip(TRYOUT_COLUMNS, record, strict=True):
        if value is None and column != "error":
            raise _corrupt(transaction_id, table, column, None)
    return Tryout(
        tryout_index=index,
        executor=executor,
        execution_type=_known(ExecutionType, execution_type, transaction_id, table, "execution_type"),
        status=_known(TryoutStatus, status, transaction_id, table, "status"),
        created_at=time(created_at),
        finished_at=time(finished_at),
        instance_id=instance_id,
        error=error,
    )


def frozen_row(transaction_id: UUID, frozen_at: Any, reason: str | None, *, time: Callable[[Any], int]) -> FrozenRow:
    """A row of `es_frozen_transaction`.

    Raises:
        CorruptRow: A value is missing, which no version of ours leaves out.
    """
    if frozen_at is None or reason is None:
        raise _corrupt(transaction_id, "es_frozen_transaction", "frozen_at" if frozen_at is None else "reason", None)
    return FrozenRow(transaction_id=transaction_id, frozen_at=time(frozen_at), reason=reason)


def _path(found: Mapping[str, Any], kind: str, transaction_id: UUID) -> Path | None:
    date, window = found[f"{kind}_date"], found[f"{kind}_window"]
    instance_id, bucket = found[f"{kind}_instance_id"], found[f"{kind}_bucket"]
    if date is None and window is None and instance_id is None and bucket is None:
        return None
    if date is None or window is None or instance_id is None or bucket is None:
        raise _corrupt(transaction_id, "es_transaction", f"{kind}_*", (date, window, instance_id, bucket))
    return Path(date, window, instance_id, bucket)


def _known(kind: type[E], value: Any, transaction_id: UUID, table: str, column: str) -> E:
    try:
        return kind(value)
    except ValueError:
        raise _corrupt(transaction_id, table, column, value) from None


def _corrupt(transaction_id: UUID, table: str, column: str, value: object) -> CorruptRow:
    return CorruptRow(
        f"transaction {transaction_id}: {table}.{column} is {'NULL' if value is None else repr(value)}, which this "
        f"version does not write: it was written by hand, by a newer version or not as a whole; look at the row, and "
        f"put it right or delete it",
        transaction_id=transaction_id,
    )
