"""From operations to statements with their values, before the writer is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

from stacksaga_flask.clock import SECOND
from stacksaga_flask.errors import Fenced
from stacksaga_flask.store.columns import Values
from stacksaga_flask.store.contract import (
    DeletePointer,
    DeleteTransaction,
    Drop,
    Expected,
    IndexStart,
    Operation,
    Register,
    Scope,
    WriteTransaction,
)
from stacksaga_flask.store.sql import rows
from stacksaga_flask.store.sql.backend import Cursor
from stacksaga_flask.store.sql.statements import Statement, Statements


class Fence(NamedTuple):
    """How many rows a statement must hit."""

    hits: int
    operation: WriteTransaction | DeleteTransaction


# One statement to run, its values, and what it must hit; a plain tuple, as a step makes several.
Write: TypeAlias = tuple[str, tuple[Any, ...], Fence | None]


def carry_out(writes: list[Write], cursor: Cursor) -> None:
    """Run the statements inside the transaction that is open.

    Raises:
        Fenced: A statement did not hit what it must; the caller rolls back.
    """
    for sql, values, fence in writes:
        cursor.execute(sql, values)
        if fence is not None and cursor.rowcount != fence.hits:
            raise _fenced(fence.operation)


class Planner:
    """Plans operations of one scope."""

    def __init__(self, statements: Statements, scope: Scope) -> None:
        self._statements = statements
        self._scope = scope._asdict()

    def plan(self, operations: tuple[Operation, ...]) -> list[Write]:
        """The statements of all operations: the registrations first, then the others in order."""
        registrations = [operation for operation in operations if isinstance(operation, Register)]
        return [
            *self._registrations(registrations),
            *(write for other in operations if not isinstance(other, Register) for write in self._of(other)),
        ]

    def _of(
        self, operation: WriteTransaction | DeleteTransaction | DeletePointer | Drop | IndexStart
    ) -> Iterator[Write]:
        if isinstance(operation, WriteTransaction):
            return self._write_transaction(operation)
        if isinstance(operation, DeletePointer):
            return self._delete_pointer(operation)
        if isinstance(operation, Drop):
            return self._drop(operation)
        if isinstance(operation, IndexStart):
            return self._index_start(operation)
        return self._delete_transaction(operation)

    def _write_transaction(self, operation: WriteTransaction) -> Iterator[Write]:
        statements = self._statements
        key = {**self._scope, "transaction_id": str(operation.row.transaction_id)}
        yield self._row(operation, key)
        for tryout in operation.tryouts:
            yield _write(statements.upsert_tryout, {**key, **rows.tryout_values(tryout)})
        # In one batch a delete wins over an insert, as it does with equal timestamps.
        if operation.delete_markers:
            yield _write(statements.delete_markers, key)
        else:
            for marker in operation.markers:
                yield _write(statements.put_marker, {**key, **rows.marker_values(marker), "ttl": None})
        if operation.delete_frozen:
            yield _write(statements.delete_frozen, key)
        elif operation.frozen is not None:
            frozen = operation.frozen
            yield _write(statements.upsert_frozen, {**key, "frozen_at": frozen.frozen_at, "reason": frozen.reason})

    def _row(self, operation: WriteTransaction, key: Values) -> Write:
        expected = operation.expected
        if expected is Expected.EPOCH:
            statement = self._statements.update_row
        elif expected is Expected.ABSENT:
            statement = self._statements.insert_row
        else:
            statement = self._statements.upsert_row
        values = rows.transaction_values(operation.row)
        values.update(key)
        values["expected_epoch"] = operation.expected_epoch
        return statement.sql, statement.order(values), Fence(1, operation)

    def _delete_transaction(self, operation: DeleteTransaction) -> Iterator[Write]:
        hold = self._statements.hold_row
        key = {**self._scope, "transaction_id": str(operation.transaction_id)}
        yield hold.sql, hold.order(key), Fence(1, operation)
        yield _write(self._statements.drop_row, key)

    def _registrations(self, registrations: list[Register]) -> Iterator[Write]:
        """The rows of the tiers, in one order everywhere, so that two processes never wait for each other."""
        statements = self._statements
        tiers = (
            statements.insert_day,
            statements.insert_window,
            statements.insert_instance,
            statements.insert_bucket,
            statements.insert_pointer,
        )
        in_order = sorted(registrations, key=lambda registration: registration.path)
        for number, insert in enumerate(tiers, start=1):
            for registration in in_order:
                if number in registration.tiers:
                    yield _write(insert, self._values(registration))

    def _values(self, registration: Register) -> Values:
        return {
            **self._scope,
            **rows.path_values(registration.path),
            "transaction_id": str(registration.transaction_id),
            "instance_id_token": registration.instance_token,
            "year": int(registration.path.date[:4]),
        }

    def _delete_pointer(self, operation: DeletePointer) -> Iterator[Write]:
        key = {**self._scope, **rows.path_values(operation.path), "transaction_id": str(operation.transaction_id)}
        yield _write(self._statements.delete_pointer, key)

    def _drop(self, operation: Drop) -> Iterator[Write]:
        statement = self._statements.drops.get(operation.tier)
        if statement is not None:
            path = operation.path
            key = {
                **self._scope,
                **rows.path_values(path),
                "instance_id_token": operation.instance_token,
                "year": int(path.date[:4]),
            }
            yield _write(statement, key)

    def _index_start(self, operation: IndexStart) -> Iterator[Write]:
        values = {
            **self._scope,
            "date_of_year": operation.date,
            "minute_of_day": operation.window,
            "shard": operation.shard,
            "transaction_id": str(operation.transaction_id),
            "saga_name": operation.saga_name,
            "created_at": operation.created_at,
            "keep_for": operation.keep_for * SECOND,
        }
        yield _write(self._statements.insert_start, values)


def _write(statement: Statement, values: Values) -> Write:
    return statement.sql, statement.order(values), None


def _fenced(operation: WriteTransaction | DeleteTransaction) -> Fenced:
    if isinstance(operation, DeleteTransaction):
        return Fenced(f"transaction {operation.transaction_id}: there is a row by now, so it is not deleted (R2)")
    return Fenced(
        f"transaction {operation.row.transaction_id}: expected {operation.expected.value} "
        f"({operation.expected_epoch}) and found otherwise, so another owner has written it; nothing of this was "
        f"written (R6, R13)"
    )
