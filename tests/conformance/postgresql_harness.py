"""A harness for PostgreSQL stores: a real server, whose faults are made at the connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID

from stacksaga_flask import SystemTime
from stacksaga_flask.store.contract import Scope, Store
from stacksaga_flask.store.sql.backend import Backend
from stacksaga_flask.store.sql.postgresql import NOW, postgresql_backend
from stacksaga_flask.store.sql.postgresql_connection import Connection
from stacksaga_flask.store.sql.statements import Statements
from stacksaga_flask.store.sql.store import SqlStore
from stacksaga_flask.testing.conformance import StoreHarness
from tests.services.postgresql import PASSWORD, USERNAME, Server


def backend_of(server: Server, database: str, *, timeout: float = 5, **options: Any) -> Backend:
    """A backend for a database of the server."""
    given = {"username": USERNAME, "password": PASSWORD, "ssl_context": None, "host": "127.0.0.1", **options}
    return postgresql_backend(port=server.port, database=database, timeout=timeout, time_source=SystemTime(), **given)


class Faults:
    """What is to happen to the connections of one store."""

    loses_commit = False
    refuses = False


class FaultyCursor:
    """A cursor whose COMMIT may lose its answer, and whose BEGIN may find the connection gone."""

    def __init__(self, cursor: Any, faults: Faults) -> None:
        self._cursor = cursor
        self._faults = faults

    def execute(self, statement: str, values: Any = ()) -> None:
        if self._faults.refuses and statement == "BEGIN":
            raise ConnectionResetError("reset by the test")
        self._cursor.execute(statement, values)
        if self._faults.loses_commit and statement == "COMMIT":
            self._faults.loses_commit = False
            raise ConnectionResetError("reset by the test")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursor, name)


class FaultyConnection:
    """A connection with such cursors."""

    def __init__(self, connection: Any, faults: Faults) -> None:
        self._connection = connection
        self._faults = faults

    def cursor(self) -> FaultyCursor:
        return FaultyCursor(self._connection.cursor(), self._faults)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def _connect(faults: Faults, **options: Any) -> FaultyConnection:
    return FaultyConnection(Connection(**options), faults)


class PostgresqlHarness(StoreHarness):
    """One database, with a clock that can be put forward: a table in it says by how much."""

    def __init__(self, server: Server, database: str) -> None:
        self._server = server
        self._database = database
        self._faults: dict[int, Faults] = {}
        self._sql("CREATE TABLE IF NOT EXISTS moved (ahead bigint)")
        self._sql("INSERT INTO moved SELECT 0 WHERE NOT EXISTS (SELECT FROM moved)")

    def open(self, scope: Scope) -> Store:
        faults = Faults()
        moved = f"({NOW} + (SELECT ahead FROM moved))"
        connect = partial(_connect, faults)
        backend = replace(backend_of(self._server, self._database, connect=connect), now=moved)
        store = SqlStore(backend, scope, time_source=SystemTime(), statements=Statements(backend))
        self._faults[id(store)] = faults
        return store

    @contextmanager
    def lose_acknowledgement(self, store: Store) -> Iterator[None]:
        self._faults[id(store)].loses_commit = True
        yield
        self._faults[id(store)].loses_commit = False

    @contextmanager
    def refuse(self, store: Store) -> Iterator[None]:
        self._faults[id(store)].refuses = True
        yield
        self._faults[id(store)].refuses = False

    def spoil_frozen(self, store: Store, transaction_id: UUID) -> bool:
        self._sql(f"UPDATE es_frozen_transaction SET reason = NULL WHERE transaction_id = '{transaction_id}'")
        return True

    def advance(self, microseconds: int) -> None:
        self._sql(f"UPDATE moved SET ahead = ahead + {microseconds}")

    def now(self) -> int:
        ((ahead,),) = self._sql("SELECT ahead FROM moved")
        return SystemTime().wall() + int(ahead)

    def _sql(self, statement: str) -> Any:
        return self._server.sql(self._database, statement)
