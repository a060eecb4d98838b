"""A harness for SQLite stores: a real file, whose faults are made at the connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

from stacksaga_flask.clock import SECOND, SystemTime
from stacksaga_flask.store.contract import Scope, Store
from stacksaga_flask.store.sql.setup import ensure_tables
from stacksaga_flask.store.sql.sqlite import sqlite_backend
from stacksaga_flask.store.sql.store import SqlStore
from stacksaga_flask.testing.conformance import StoreHarness

PATIENT, IMPATIENT = 3.0, 0.02
"""Seconds to wait for another connection that writes."""


class MovedTime(SystemTime):
    """The machine's clock, which can be put forward."""

    ahead = 0

    def wall(self) -> int:
        return super().wall() + self.ahead


class ConnectionFaults:
    """What the connections of one store have in common."""

    def __init__(self) -> None:
        self.loses_commit = False
        self.timeout = PATIENT
        self.connections: list[sqlite3.Connection] = []

    def wait_for(self, timeout: float) -> None:
        """Let open connections, and those still to be opened, wait so many seconds for another that writes."""
        self.timeout = timeout
        for connection in self.connections:
            connection.execute(f"PRAGMA busy_timeout = {round(timeout * 1000)}")


class FaultyConnection(sqlite3.Connection):
    """A connection that may lose the answer to its COMMIT."""

    faults: ConnectionFaults

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(factory or FaultyCursor)

    def close(self) -> None:
        self.faults.connections.remove(self)
        super().close()


class FaultyCursor(sqlite3.Cursor):
    """A cursor of such a connection."""

    connection: FaultyConnection

    def execute(self, sql: str, parameters: Any = (), /) -> FaultyCursor:
        super().execute(sql, parameters)
        faults = self.connection.faults
        if sql == "COMMIT" and faults.loses_commit:
            faults.loses_commit = False
            raise sqlite3.OperationalError("disk I/O error")
        return self


def connect(
    faults: ConnectionFaults, time: MovedTime, path: str, *, timeout: float, **options: Any
) -> FaultyConnection:
    """Connect with those faults and that clock; `timeout` is theirs."""
    connection = sqlite3.connect(path, timeout=faults.timeout, factory=FaultyConnection, **options)
    assert isinstance(connection, FaultyConnection)
    connection.faults = faults
    faults.connections.append(connection)
    # SQLite's clock is that of the machine; here julianday('now') is ours.
    connection.create_function("julianday", 1, lambda _: 2440587.5 + time.wall() / SECOND / 86400)
    return connection


class SqliteHarness(StoreHarness):
    """One SQLite file."""

    def __init__(self, folder: Path, kind: type[SqlStore] = SqlStore, *, more_than_a_page: int = 1200) -> None:
        self.more_than_a_page = more_than_a_page
        self._path = folder / "conformance.db"
        self._kind = kind
        self._time = MovedTime()
        self._faults: dict[int, ConnectionFaults] = {}

    def open(self, scope: Scope) -> Store:
        faults = ConnectionFaults()
        backend = sqlite_backend(
            self._path, timeout=PATIENT, time_source=self._time, connect=partial(connect, faults, self._time)
        )
        ensure_tables(backend)
        store = self._kind(backend, scope, time_source=self._time)
        self._faults[id(store)] = faults
        return store

    @contextmanager
    def _lose(self, faults: ConnectionFaults) -> Iterator[None]:
        faults.loses_commit = True
        yield
        faults.loses_commit = False

    def lose_acknowledgement(self, store: Store) -> AbstractContextManager[None]:
        return self._lose(self._faults[id(store)])

    @contextmanager
    def _lock(self, faults: ConnectionFaults) -> Iterator[None]:
        with closing(sqlite3.connect(self._path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            faults.wait_for(IMPATIENT)
            yield
            faults.wait_for(PATIENT)
            other.execute("ROLLBACK")

    def refuse(self, store: Store) -> AbstractContextManager[None]:
        return self._lock(self._faults[id(store)])

    def spoil_frozen(self, store: Store, transaction_id: UUID) -> bool:
        spoil = "UPDATE es_frozen_transaction SET reason = NULL WHERE transaction_id = ?"
        with closing(sqlite3.connect(self._path)) as other, other:
            other.execute(spoil, [str(transaction_id)])
        return True

    def advance(self, microseconds: int) -> None:
        self._time.ahead += microseconds

    def now(self) -> int:
        return self._time.wall()
