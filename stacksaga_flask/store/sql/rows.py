"""Between the contract's rows and the values of columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from stacksaga_flask.store import columns
from stacksaga_flask.store.columns import Values
from stacksaga_flask.store.contract import FrozenRow, Grid, Marker, Path, TransactionRow, Tryout

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
    return dict(
        zip(columns.TRANSACTION_COLUMNS, columns.transaction_values(row, time=_same, names=_names), strict=True)
    )


def transaction_row(transaction_id: UUID, record: Sequence[Any]) -> TransactionRow:
    """A row of `es_transaction` from a record of `columns.TRANSACTION_COLUMNS`."""
    return columns.transaction_row(transaction_id, record, time=_same, names=_NAMES.decode)


def tryout_values(tryout: Tryout) -> Values:
    """The columns of `es_transaction_tryout` without the transaction's key."""
    return dict(zip(columns.TRYOUT_COLUMNS, columns.tryout_values(tryout, time=_same), strict=True))


def tryout(transaction_id: UUID, record: Sequence[Any]) -> Tryout:
    """A tryout from a record of `columns.TRYOUT_COLUMNS`."""
    return columns.tryout(transaction_id, record, time=_same)


def frozen_row(record: tuple[str, int | None, str | None]) -> FrozenRow:
    """A frozen row from a record of transaction id, time and reason."""
    transaction_id, frozen_at, reason = record
    return columns.frozen_row(UUID(transaction_id), frozen_at, reason, time=_same)


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


def _same(microseconds: int) -> int:
    return microseconds
