"""Work on connections of the pool: all of it where the database takes many writers, reads only where it takes one."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from sqlalchemy import PoolProxiedConnection

from stacksaga_flask.errors import StoreError, StoreUnavailable
from stacksaga_flask.store.sql.backend import Backend, Cursor, Failure
from stacksaga_flask.store.sql.deadline import CALL, Deadline
from stacksaga_flask.store.sql.writer import connection_errors, explained

T = TypeVar("T")
REPEATS: Final = {Failure.CONFLICT: 3, Failure.LOST: 1}
"""How often work is done again after such a failure."""
GENERATION: Final = "stacksaga.generation"


class Pool:
    """Runs each caller's work on a connection that it has to itself.

    A server that restarts ends all connections, and the pool learns it of one. Each has a *generation*: once one is
    lost, those of its generation that wait in the pool are not used again.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._generation = 0
        # Here and not in the pool of connections, whose wait is the same for all.
        self._free = threading.Semaphore(backend.connections)

    def run(self, work: Callable[[Cursor], T], *, commits: bool = False) -> T:
        """Do some work, as one transaction if it is to be committed, before the backend's time-out has passed.

        What failed before its COMMIT was sent is done again if `REPEATS` says so. A COMMIT never is.

        Raises:
            StoreError: Nothing was written, or the commit was not acknowledged.
        """
        backend = self._backend
        deadline = Deadline(backend.name, backend.timeout, backend.time_source)
        if not self._free.acquire(timeout=deadline.left()):
            raise StoreUnavailable(
                f"{backend.name}: all {backend.connections} connections of this process were in use for "
                f"{backend.timeout:g} s; nothing was written: run more processes with fewer threads or greenlets each"
            )
        call = CALL.set(deadline)
        try:
            return self._run(work, deadline, commits=commits)
        finally:
            CALL.reset(call)
            self._free.release()

    def _run(self, work: Callable[[Cursor], T], deadline: Deadline, *, commits: bool) -> T:
        repeats = dict(REPEATS)
        while True:
            connection = self._take()
            try:
                cursor: Cursor = connection.cursor()
                if commits:
                    cursor.execute(self._backend.begin)
                answer = work(cursor)
            except self._backend.driver_errors as error:
                failure = self._backend.failure(error)
                self._give_up(connection, failure)
                if not repeats.get(failure) or deadline.over:
                    raise explained(self._backend.refusal, error) from error
                repeats[failure] -= 1
                continue
            except StoreError:
                # Ours, so it came between two statements. After anything else an answer may still be under way.
                self._give_up(connection, Failure.REFUSED)
                raise
            except BaseException:
                connection.invalidate()
                raise
            if commits:
                self._commit(connection, cursor)
            connection.close()
            return answer

    def _take(self) -> PoolProxiedConnection:
        while True:
            try:
                connection = self._backend.engine.raw_connection()
            except connection_errors(self._backend) as error:
                raise explained(self._backend.refusal, error) from error
            if connection.info.setdefault(GENERATION, self._generation) == self._generation:
                return connection
            connection.invalidate()

    def _commit(self, connection: PoolProxiedConnection, cursor: Cursor) -> None:
        try:
            cursor.execute("COMMIT")
        except self._backend.driver_errors as error:
            self._give_up(connection, self._backend.failure(error))
            raise explained(self._backend.commit_failure, error) from error
        except BaseException:
            connection.invalidate()
            raise

    def _give_up(self, connection: PoolProxiedConnection, failure: Failure) -> None:
        """Roll back, and keep the connection if it is good."""
        if failure is Failure.LOST and connection.info.get(GENERATION) == self._generation:
            self._generation += 1
        good = failure in (Failure.REFUSED, Failure.CONFLICT) and self._roll_back(connection)
        if good:
            connection.close()
        else:
            connection.invalidate()

    def _roll_back(self, connection: PoolProxiedConnection) -> bool:
        try:
            if self._backend.in_transaction(connection.driver_connection):
                connection.cursor().execute("ROLLBACK")
        except self._backend.driver_errors:
            return False
        except StoreUnavailable:
            # No time is left to the call.
            return False
        except BaseException:
            connection.invalidate()
            raise
        return True


class Pooled:
    """Submits each caller's work as one database transaction of its own, so that none waits for another's row."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._mutex = threading.Lock()
        self.commits = 0
        """How many database transactions were committed."""

    def submit(self, work: Callable[[Cursor], T]) -> T:
        """Have the work written, and return what it returned.

        Raises:
            StoreError: Nothing was written, or the commit was not acknowledged.
        """
        answer = self._pool.run(work, commits=True)
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
