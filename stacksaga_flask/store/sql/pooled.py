"""Writes and reads where the database takes many writers: each call has a connection of the pool to itself."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from sqlalchemy import PoolProxiedConnection

from stacksaga_flask.store.sql.backend import Backend, Cursor
from stacksaga_flask.store.sql.writer import connection_errors, explained

T = TypeVar("T")
ATTEMPTS: Final = 4
"""How often a call is made whose failure is passing: deadlocks do not last, and a new connection is not stale."""


class Pooled:
    """Submits each caller's work as one database transaction."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._mutex = threading.Lock()
        self.commits = 0
        """How many database transactions were committed."""

    def submit(self, work: Callable[[Cursor], T]) -> T:
        """Have the work written, and return what it returned.

        Raises:
            StoreError: Nothing was written, or the commit was not acknowledged.
        """
        answer = on_a_connection(self._backend, work, commits=True)
        with self._mutex:
            self.commits += 1
        return answer

    def hold_up(self, timeout: float) -> bool:
        """Nobody writes: a fork waits for all calls, and the pool is emptied."""
        return True

    def go_on(self) -> None:
        """Nobody waits."""

    def close(self) -> None:
        """Nothing is kept outside the pool."""


def on_a_connection(backend: Backend, work: Callable[[Cursor], T], *, commits: bool = False) -> T:
    """Do some work on a connection of the pool, as one transaction if it is to be committed.

    What failed before its COMMIT was sent, for a passing reason, is done again. A COMMIT never is.

    Raises:
        StoreError: Nothing was written, or the commit was not acknowledged.
    """
    for attempt in range(1, ATTEMPTS + 1):
        try:
            connection = backend.engine.raw_connection()
        except connection_errors(backend) as error:
            raise explained(backend.refusal, error) from error
        try:
            cursor: Cursor = connection.cursor()
            if commits:
                cursor.execute(backend.begin)
            answer = work(cursor)
        except backend.driver_errors as error:
            _give_up(backend, connection)
            if attempt < ATTEMPTS and backend.is_passing(error):
                continue
            raise explained(backend.refusal, error) from error
        except Exception:
            # Ours, between two statements: the connection is good.
            if commits:
                cursor.execute("ROLLBACK")
            connection.close()
            raise
        except BaseException:
            connection.invalidate()
            raise
        if commits:
            _commit(backend, connection, cursor)
        connection.close()
        return answer
    raise AssertionError("the last attempt returns or raises")


def _commit(backend: Backend, connection: PoolProxiedConnection, cursor: Cursor) -> None:
    try:
        cursor.execute("COMMIT")
    except backend.driver_errors as error:
        _give_up(backend, connection)
        raise explained(backend.commit_failure, error) from error
    except BaseException:
        connection.invalidate()
        raise


def _give_up(backend: Backend, connection: PoolProxiedConnection) -> None:
    """Close the connection, which rolls back, and those that wait in the pool: they may be as stale as this one."""
    connection.invalidate()
    backend.engine.dispose()
