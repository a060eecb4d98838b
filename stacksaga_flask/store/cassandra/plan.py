"""From operations to bound statements: one a table and partition, or one logged batch over tables that share it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cassandra.query import BatchStatement, BatchType, Statement

from stacksaga_flask.store.cassandra.statements import Statements
from stacksaga_flask.store.columns import transaction_values, tryout_values
from stacksaga_flask.store.contract import (
    DeletePointer,
    DeleteTransaction,
    Drop,
    IndexStart,
    Operation,
    Register,
    Scope,
    WriteTransaction,
)


def to_milliseconds(microseconds: int) -> int:
    """A time as Cassandra keeps it."""
    return microseconds // 1000


def plan(statements: Statements, scope: Scope, operations: tuple[Operation, ...]) -> list[Statement]:
    """The statements of all operations, which may go out together."""
    return [statement for operation in operations for statement in _of(statements, scope, operation)]


def _of(statements: Statements, scope: Scope, operation: Operation) -> Iterator[Statement]:
    if isinstance(operation, WriteTransaction):
        yield _write_transaction(statements, scope, operation)
    elif isinstance(operation, Register):
        yield from _register(statements, scope, operation)
    elif isinstance(operation, DeletePointer):
        key = (*scope, *operation.path, operation.transaction_id)
        yield statements.delete_pointer((operation.timestamp, *key))
    elif isinstance(operation, Drop):
        yield _drop(statements, scope, operation)
    elif isinstance(operation, IndexStart):
        yield _index_start(statements, scope, operation)
    elif isinstance(operation, DeleteTransaction):
        yield statements.delete_row((operation.timestamp, *scope, operation.transaction_id))


def _write_transaction(statements: Statements, scope: Scope, operation: WriteTransaction) -> Statement:
    timestamp = operation.timestamp
    key: tuple[Any, ...] = (*scope, operation.row.transaction_id)
    values = transaction_values(operation.row, time=to_milliseconds, names=list)
    row = statements.write_row((*key, *values, timestamp))
    others = list(_others(statements, key, operation, timestamp))
    if not others:
        return row
    # One partition key, so one mutation: atomic and isolated, without the batch log (design, section 3).
    batch = BatchStatement(BatchType.LOGGED)
    batch.add(row)
    for other in others:
        batch.add(other)
    batch.is_idempotent = True
    return batch


def _others(
    statements: Statements, key: tuple[Any, ...], operation: WriteTransaction, timestamp: int
) -> Iterator[Statement]:
    for tryout in operation.tryouts:
        values = tryout_values(tryout, time=to_milliseconds)
        yield statements.write_tryout((*key, *values, timestamp))
    for marker in operation.markers:
        yield statements.write_marker((*key, marker.step_id, marker.execution_state, marker.result, timestamp))
    if operation.delete_markers:
        yield statements.delete_markers((timestamp, *key))
    if operation.frozen is not None:
        frozen = operation.frozen
        yield statements.write_frozen((*key, to_milliseconds(frozen.frozen_at), frozen.reason, timestamp))
    if operation.delete_frozen:
        yield statements.delete_frozen((timestamp, *key))


def _register(statements: Statements, scope: Scope, operation: Register) -> Iterator[Statement]:
    date, window, instance_id, bucket = operation.path
    timestamp, tiers = operation.timestamp, operation.tiers
    if 1 in tiers:
        yield statements.write_day((*scope, int(date[:4]), date, operation.day_timestamp))
    if 2 in tiers:
        yield statements.write_window((*scope, date, window, timestamp))
    if 3 in tiers:
        instance = (operation.instance_token, instance_id)
        yield statements.write_instance((*scope, date, window, *instance, timestamp))
    if 4 in tiers:
        yield statements.write_bucket((*scope, date, window, instance_id, bucket, timestamp))
    if 5 in tiers:
        yield statements.write_pointer((*scope, *operation.path, operation.transaction_id, timestamp))


def _drop(statements: Statements, scope: Scope, operation: Drop) -> Statement:
    (date, window, instance_id, bucket), timestamp = operation.path, operation.timestamp
    if operation.tier == 1:
        return statements.drop_day((timestamp, *scope, int(date[:4]), date))
    if operation.tier == 2:
        return statements.drop_window((timestamp, *scope, date, window))
    if operation.tier == 3:
        return statements.drop_instance((timestamp, *scope, date, window, operation.instance_token, instance_id))
    if operation.tier == 4:
        return statements.drop_bucket((timestamp, *scope, date, window, instance_id, bucket))
    return statements.drop_pointers((timestamp, *scope, *operation.path))


def _index_start(statements: Statements, scope: Scope, operation: IndexStart) -> Statement:
    return statements.write_start(
        (
            *scope,
            operation.date,
            operation.window,
            operation.shard,
            operation.transaction_id,
            operation.saga_name,
            to_milliseconds(operation.created_at),
            operation.timestamp,
            operation.keep_for,
        )
    )
