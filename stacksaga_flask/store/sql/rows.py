"""Between the contract's rows and the values of columns."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from stacksaga_flask.store.contract import (
    ExecutionType,
    Grid,
    Marker,
    Path,
    ProtectionMode,
    RunningStatus,
    TransactionRow,
    Tryout,
    TryoutStatus,
)

Values: TypeAlias = dict[str, Any]

_NAMES = msgspec.json.Decoder(tuple[str, ...])
_encode = msgspec.json.Encoder().encode


def path_values(path: Path) -> Values:
    """The part of a key that says where in the directory."""
    return {
        "date_of_year": path.date,
        "minute_of_day": path.window,
        "instance_id": path.instance_id,
        "bucket_index": path.bucket,
    }


def transaction_values(row: TransactionRow) -> Values:
    """The columns of `es_transaction` without the key."""
    restore_date, restore_window, restore_instance, restore_bucket = row.watchdog or (None, None, None, None)
    retry_date, retry_window, retry_instance, retry_bucket = row.retry or (None, None, None, None)
    before_freezing = row.status_before_freezing
    return {
        "running_status": row.running_status.value,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "payload": row.payload,
        "restore_date": restore_date,
        "restore_window": restore_window,
        "restore_instance_id": restore_instance,
        "restore_bucket": restore_bucket,
        "saga_name": row.saga_name,
        "saga_version": row.saga_version,
        "payload_version": row.payload_version,
        "epoch": row.epoch,
        "committed_steps": _names(row.committed_steps),
        "possibly_done": row.possibly_done,
        "reverts": _names(row.reverts),
        "retry_date": retry_date,
        "retry_window": retry_window,
        "retry_instance_id": retry_instance,
        "retry_bucket": retry_bucket,
        "attempt": row.attempt,
        "start_hash": row.start_hash,
        "protection_mode": row.protection_mode.value,
        "waited": row.waited,
        "status_before_freezing": before_freezing.value if before_freezing else None,
        "reason": row.reason,
        "public_result": row.public_result,
    }


def transaction_row(transaction_id: UUID, names: tuple[str, ...], record: tuple[Any, ...]) -> TransactionRow:
    """A row of `es_transaction` from a record of the named columns."""
    found = dict(zip(names, record, strict=True))
    before_freezing = found["status_before_freezing"]
    return TransactionRow(
        transaction_id=transaction_id,
        running_status=RunningStatus(found["running_status"]),
        created_at=found["created_at"],
        updated_at=found["updated_at"],
        payload=found["payload"],
        watchdog=_path(found, "restore"),
        saga_name=found["saga_name"],
        saga_version=found["saga_version"],
        payload_version=found["payload_version"],
        epoch=found["epoch"],
        committed_steps=_NAMES.decode(found["committed_steps"]),
        possibly_done=bool(found["possibly_done"]),
        reverts=_NAMES.decode(found["reverts"]),
        retry=_path(found, "retry"),
        attempt=found["attempt"],
        start_hash=found["start_hash"],
        protection_mode=ProtectionMode(found["protection_mode"]),
        waited=found["waited"],
        status_before_freezing=RunningStatus(before_freezing) if before_freezing else None,
        reason=found["reason"],
        public_result=found["public_result"],
    )


def tryout_values(tryout: Tryout) -> Values:
    """The columns of `es_transaction_tryout` without the transaction's key."""
    return {
        "tryout_index": tryout.tryout_index,
        "executor": tryout.executor,
        "execution_type": tryout.execution_type.value,
        "status": tryout.status.value,
        "created_at": tryout.created_at,
        "error": tryout.error,
        "finished_at": tryout.finished_at,
        "instance_id": tryout.instance_id,
    }


def tryout(names: tuple[str, ...], record: tuple[Any, ...]) -> Tryout:
    """A tryout from a record of the named columns."""
    found = dict(zip(names, record, strict=True))
    found["execution_type"] = ExecutionType(found["execution_type"])
    found["status"] = TryoutStatus(found["status"])
    return Tryout(**found)


def marker_values(marker: Marker) -> Values:
    """The columns of `es_execution_markers` without the transaction's key and the expiry."""
    return {"step_id": marker.step_id, "execution_state": marker.execution_state, "result": marker.result}


def marker(record: tuple[str, str, bytes | None]) -> Marker:
    """A marker from a record of step id, state and result."""
    step_id, execution_state, result = record
    return Marker(step_id=step_id, execution_state=execution_state, result=result)


def grid_values(grid: Grid) -> Values:
    """The columns of `es_settings` without the scope."""
    return msgspec.structs.asdict(grid)


def grid(record: tuple[int, int, int]) -> Grid:
    """A grid from a record of schema version, window interval and margin."""
    schema_version, window_interval, clock_skew_margin = record
    return Grid(schema_version=schema_version, window_interval=window_interval, clock_skew_margin=clock_skew_margin)


@lru_cache(maxsize=1024)
def _names(names: tuple[str, ...]) -> str:
    return _encode(names).decode()


def _path(found: Values, kind: str) -> Path | None:
    if found[f"{kind}_date"] is None:
        return None
    return Path(
        date=found[f"{kind}_date"],
        window=found[f"{kind}_window"],
        instance_id=found[f"{kind}_instance_id"],
        bucket=found[f"{kind}_bucket"],
    )
