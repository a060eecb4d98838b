"""What the store really executes for one saga, read off its connection, so that the comparison cannot drift."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from tests.benchmarks.empty_saga import Order, engine_on, saga
from tests.benchmarks.replay import Recording, Statement

Executed: TypeAlias = list[tuple[str, tuple[Any, ...]]]
"""Statements and their values, in order."""


def record(file: Path) -> Recording:
    """Record one saga on a new SQLite file, which has the store's tables afterwards."""
    executed: Executed = []
    with engine_on(file, watched_connect(executed)) as (engine, _):
        # The first one also writes the upper tiers of the directory, and asks for the clock.
        engine.run(saga, Order())
        executed.clear()
        transaction_id = str(engine.run(saga, Order()).transaction_id)
    return recording_of(executed, transaction_id)


def watched_connect(executed: Executed) -> Callable[..., sqlite3.Connection]:
    """A `sqlite3.connect` whose connections tell what their cursors execute."""

    class Cursor(sqlite3.Cursor):
        def execute(self, sql: str, parameters: Any = (), /) -> Cursor:
            executed.append((sql, tuple(parameters)))
            super().execute(sql, parameters)
            return self

    class Connection(sqlite3.Connection):
        def cursor(self, *_: Any) -> Any:
            return super().cursor(Cursor)

    def connect(path: str, **options: Any) -> sqlite3.Connection:
        return sqlite3.connect(path, factory=Connection, **options)

    return connect


def recording_of(executed: Executed, transaction_id: str) -> Recording:
    """What was executed for one transaction, ready to be done for others."""
    return Recording([_cut(sql, values, transaction_id) for sql, values in executed])


def _cut(sql: str, values: tuple[Any, ...], transaction_id: str) -> Statement:
    named = values.count(transaction_id)
    if not named:
        return Statement(sql, values, None)
    if named > 1:
        raise NotImplementedError(f"the transaction is named {named} times in {sql!r}: cut its parameters more often")
    at = values.index(transaction_id)
    return Statement(sql, values[:at], values[at + 1 :])
