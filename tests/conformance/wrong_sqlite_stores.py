"""SQLite stores, each of which is wrong in one way that only a store fencing by epoch can be."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from msgspec.structs import replace

from stacksaga_flask.store.contract import (
    DeletePointer,
    DeleteTransaction,
    Drop,
    Expected,
    FrozenRow,
    Operation,
    Path,
    WriteTransaction,
)
from stacksaga_flask.store.sql.store import SqlStore


class NeverFences(SqlStore):
    """Expects whatever epoch it finds, so the later write wins."""

    def apply(self, *operations: Operation) -> None:
        super().apply(*map(self._as_found, operations))

    def _as_found(self, operation: Operation) -> Operation:
        if not isinstance(operation, WriteTransaction):
            return operation
        stored = self.read(operation.row.transaction_id)
        if stored is None:
            return replace(operation, expected=Expected.ABSENT)
        return replace(operation, expected=Expected.EPOCH, expected_epoch=stored.row.epoch)


class DeletesNoRowAndFencesNone(SqlStore):
    """Takes the row of a pointer for granted, there or not."""

    def apply(self, *operations: Operation) -> None:
        super().apply(*(o for o in operations if not isinstance(o, DeleteTransaction)))


class CommitsEachOperation(SqlStore):
    """Leaves what came before the operation that was fenced."""

    def apply(self, *operations: Operation) -> None:
        for operation in operations:
            super().apply(operation)


class SortsItsPointers(SqlStore):
    """Declares the order of registration and gives another."""

    def pointers(self, path: Path) -> Iterator[UUID]:
        return iter(sorted(super().pointers(path)))


class StopsAtACorruptRow(SqlStore):
    """Lists nothing after the first frozen row that is corrupt."""

    def frozen(self) -> Iterator[FrozenRow]:
        yield from super().frozen()


class DropsWhatIsNotEmpty(SqlStore):
    """Empties a bucket of whatever it holds by then, read or not, when its place is dropped."""

    def apply(self, *operations: Operation) -> None:
        for operation in operations:
            if isinstance(operation, Drop) and operation.tier == 4:
                path = operation.path
                super().apply(*(DeletePointer(path=path, transaction_id=p, timestamp=0) for p in self.pointers(path)))
        super().apply(*operations)
