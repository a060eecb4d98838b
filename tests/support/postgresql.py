"""One database of a real PostgreSQL server, its stores, and what goes over their connections."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from stacksaga_flask import SystemTime
from stacksaga_flask.store.contract import Scope
from stacksaga_flask.store.sql.backend import Backend
from stacksaga_flask.store.sql.backend import Cursor as SqlCursor
from stacksaga_flask.store.sql.postgresql import CONNECTIONS, postgresql_backend
from stacksaga_flask.store.sql.postgresql_connection import Connection, Cursor
from stacksaga_flask.store.sql.store import SqlStore
from tests.services.postgresql import PASSWORD, USERNAME, Server
from tests.support.opening import SHOP, init_url
from tests.support.waiting import wait_until

T = TypeVar("T")


class Wire:
    """Watches the statements of a store, and may do something before one is sent."""

    def __init__(self) -> None:
        self.statements: list[str] = []
        self.before: Callable[[Connection, str], None] = lambda connection, statement: None

    def connect(self, **options: Any) -> Connection:
        """A connection that is watched."""
        connection = WatchedConnection(**options)
        connection.wire = self
        return connection


class WatchedConnection(Connection):
    """A connection whose statements a `Wire` watches."""

    wire: Wire

    def cursor(self) -> Cursor:
        return WatchedCursor(self)


class WatchedCursor(Cursor):
    """A cursor of such a connection."""

    def execute(self, operation: str, args: Sequence[Any] = (), stream: Any = None) -> None:
        wire = self._c.wire
        wire.statements.append(operation)
        wire.before(self._c, operation)
        super().execute(operation, args, stream)


class Database:
    """A database of its own, whose stores are closed by `close`."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.name = server.create_database()
        self._stores: list[SqlStore] = []
        self._threads = ThreadPoolExecutor(max_workers=32)

    @property
    def url(self) -> str:
        """The URL without credentials."""
        return f"postgresql://127.0.0.1:{self.server.port}/{self.name}"

    def init(self, scope: Scope = SHOP, **settings: object) -> list[str]:
        """What ``init-schema`` applies."""
        login: dict[str, object] = {"store_username": USERNAME, "store_password": PASSWORD}
        return init_url(self.url, scope, setup=None, **{**login, **settings})

    def backend(self, *, timeout: float = 5, **options: Any) -> Backend:
        """A backend for it."""
        login = {"host": "127.0.0.1", "port": self.server.port, "username": USERNAME, "password": PASSWORD}
        given = {**login, "database": self.name, "ssl_context": None, **options}
        return postgresql_backend(timeout=timeout, time_source=SystemTime(), **given)

    def store(self, scope: Scope = SHOP, **options: Any) -> SqlStore:
        """A store in it."""
        store = SqlStore(self.backend(**options), scope, time_source=SystemTime())
        self._stores.append(store)
        return store

    def sql(self, statement: str, values: Sequence[Any] = ()) -> Sequence[Any]:
        """Run one statement beside the stores."""
        return self.server.sql(self.name, statement, values)

    @contextmanager
    def cursor(self) -> Iterator[SqlCursor]:
        """A cursor of a store's connection, beside the stores."""
        connection = self.backend().engine.raw_connection()
        try:
            yield connection.cursor()
        finally:
            connection.invalidate()

    @contextmanager
    def used_up(self, store: SqlStore) -> Iterator[Callable[[], None]]:
        """Have all connections of a store in use, until the end or until what is given is called."""
        in_use, free = threading.Barrier(CONNECTIONS + 1, timeout=20), threading.Event()

        def hold(_: SqlCursor) -> None:
            in_use.wait()
            free.wait()

        holders = [self.meanwhile(store._pool.run, hold) for _ in range(CONNECTIONS)]
        in_use.wait()
        try:
            yield free.set
        finally:
            free.set()
            for each in holders:
                each.result()

    def meanwhile(self, work: Callable[..., T], *arguments: Any) -> Future[T]:
        """Begin to do it in a thread."""
        return self._threads.submit(work, *arguments)

    def connections(self) -> int:
        """How many connections to it the stores have open."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND application_name = 'stacksaga'"
        ((count,),) = self.server.sql("postgres", query, (self.name,))
        return int(count)

    def wait_for_blocked(self, count: int = 1) -> None:
        """Return once so many connections wait for a lock."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
        wait_until(lambda: self.server.sql("postgres", query, (self.name,)) == [[count]])

    def end_connections(self) -> None:
        """Have the server end every connection of the stores."""
        query = (
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE datname = %s AND application_name = 'stacksaga'"
        )
        self.server.sql("postgres", query, (self.name,))

    def close(self) -> None:
        """Close the stores and drop the database."""
        for store in self._stores:
            store.close()
        self._threads.shutdown()
        with suppress(OSError):
            self.server.sql("postgres", f"DROP DATABASE {self.name} WITH (FORCE)")
