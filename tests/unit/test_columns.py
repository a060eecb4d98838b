"""Rows from columns, and what no version of ours writes."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from stacksaga_flask.errors import CorruptRow
from stacksaga_flask.store.columns import (
    NULLABLE,
    TRANSACTION_COLUMNS,
    TRYOUT_COLUMNS,
    frozen_row,
    transaction_row,
    transaction_values,
    tryout,
    tryout_values,
)
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

ID = uuid4()
ROW = TransactionRow(
    transaction_id=ID,
    running_status=RunningStatus.FROZEN,
    created_at=1,
    updated_at=2,
    payload=b"{}",
    watchdog=Path("2026-01-02", 3, "host-1", 1),
    saga_name="order",
    saga_version=4,
    payload_version=5,
    epoch=6,
    committed_steps=("reserve", "charge"),
    possibly_done=True,
    reverts=("charge",),
    retry=Path("2026-01-02", 2, "host-2", 0),
    attempt=7,
    start_hash="hash",
    protection_mode=ProtectionMode.RELAXED_WITH_DEDUP,
    waited=8,
    status_before_freezing=RunningStatus.REVERTING,
    reason="why",
    public_result=b"1",
)
TRYOUT = Tryout(
    tryout_index=10_001,
    executor="charge",
    execution_type=ExecutionType.REVERT,
    status=TryoutStatus.FAILED,
    created_at=1,
    finished_at=2,
    instance_id="host-1",
    error="no",
)


def same(value: Any) -> Any:
    return value


def read(**changed: object) -> TransactionRow:
    found = dict(zip(TRANSACTION_COLUMNS, transaction_values(ROW, time=same, names=same), strict=True))
    return transaction_row(ID, tuple({**found, **changed}.values()), time=same, names=tuple)


def test_a_row_comes_back_as_it_was() -> None:
    assert read() == ROW


def test_a_tryout_comes_back_as_it_was() -> None:
    assert tryout(ID, tryout_values(TRYOUT, time=same), time=same) == TRYOUT


def test_paths_may_be_missing_as_a_whole() -> None:
    nothing = dict.fromkeys(("date", "window", "instance_id", "bucket"))
    row = read(**{f"{kind}_{name}": None for kind in ("restore", "retry") for name in nothing})
    assert (row.watchdog, row.retry) == (None, None)


@pytest.mark.parametrize("column", [column for column in TRANSACTION_COLUMNS if column not in NULLABLE])
def test_a_missing_value_that_every_writer_writes_is_told_with_the_transaction_and_the_column(column: str) -> None:
    with pytest.raises(CorruptRow, match=f"transaction {ID}: es_transaction.") as failure:
        read(**{column: None})
    assert column.split("_")[0] in str(failure.value)
    assert failure.value.transaction_id == ID


@pytest.mark.parametrize("column", sorted(NULLABLE))
def test_what_may_be_missing_may(column: str) -> None:
    assert getattr(read(**{column: None}), column) is None


@pytest.mark.parametrize("column", ["running_status", "protection_mode", "status_before_freezing"])
def test_an_unknown_name_is_told(column: str) -> None:
    with pytest.raises(CorruptRow, match=f"es_transaction.{column} is 'LOST', which this version does not write"):
        read(**{column: "LOST"})


@pytest.mark.parametrize(
    ("column", "value"), [("status", "LOST"), ("execution_type", "UNDO"), ("status", None), ("executor", None)]
)
def test_a_tryout_that_no_version_of_ours_writes_is_told(column: str, value: object) -> None:
    found = dict(zip(TRYOUT_COLUMNS, tryout_values(TRYOUT, time=same), strict=True))
    with pytest.raises(CorruptRow, match=f"transaction {ID}: es_transaction_tryout.{column} is"):
        tryout(ID, tuple({**found, column: value}.values()), time=same)


def test_a_frozen_row_comes_back_as_it_was() -> None:
    assert frozen_row(ID, 3, "why", time=same) == FrozenRow(transaction_id=ID, frozen_at=3, reason="why")


@pytest.mark.parametrize(("frozen_at", "reason", "column"), [(None, "why", "frozen_at"), (3, None, "reason")])
def test_a_frozen_row_that_lacks_a_value_is_told(frozen_at: int | None, reason: str | None, column: str) -> None:
    with pytest.raises(CorruptRow, match=f"transaction {ID}: es_frozen_transaction.{column} is NULL") as failure:
        frozen_row(ID, frozen_at, reason, time=same)
    assert failure.value.transaction_id == ID
