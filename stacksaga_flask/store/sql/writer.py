"""The one connection of a process that writes, and the transactions on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from sqlalchemy import PoolProxiedConnection
from sqlalchemy.exc import SQLAlchemyError

from stacksaga_flask.errors import StoreError, StoreUnavailable
from stacksaga_flask.store.sql.backend import Backend, Cursor


class Unit(Protocol):
    """One caller's part of a transaction."""

    work: Callable[[Cursor], Any]
    done: bool
    answer: Any
    error: BaseException | None


class Writer:
    """Runs the work of some callers in one database transaction. It is used by one thread at a time."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._connection: PoolProxiedConnection | None = None
        self._cursor: Cursor | None = None
        self._patient = True
        self.commits = 0
        """How many transactions were committed."""

    @property
    def connected(self) -> bool:
        """Whether the connection is open."""
        return self._cursor is not None

    def run(self, calls: Sequence[Unit], *, patient: bool = True) -> bool:
        """Write what the callers ask for and commit once; each learns its own answer or error.

        Returns:
            False if it was not to be patient and another process is writing; then nothing was done.
        """
        try:
            cursor = self._begin(patient)
        except connection_errors(self._backend) as error:
            if not patient and self._backend.is_contention(error):
                return False
            self._fail(calls, self._backend.refusal, error)
            return True
        try:
            written = self._work(cursor, calls)
            if written:
                self._commit(cursor, written)
            else:
                self._roll_back(cursor)
        except self._backend.driver_errors as error:
            # Of a savepoint, a rollback or a second begin: nothing was committed.
            self._fail([call for call in calls if not call.done], self._backend.refusal, error)
            self.close()
        except BaseException:
            self.close()
            raise
        return True

    def close(self) -> None:
        """Give up the connection; what was not committed is rolled back."""
        connection, self._connection, self._cursor = self._connection, None, None
        if connection is not None:
            connection.invalidate()

    def _begin(self, patient: bool) -> Cursor:
        if self._cursor is None:
            self._connection = self._backend.engine.raw_connection()
            self._cursor = self._connection.cursor()
            self._patient = True
        if patient is not self._patient:
            self._backend.be_patient(self._cursor, patient)
            self._patient = patient
        self._cursor.execute(self._backend.begin)
        return self._cursor

    def _work(self, cursor: Cursor, calls: Sequence[Unit]) -> list[Unit]:
        """Run each caller's work and return those that succeeded."""
        if len(calls) == 1:
            call = calls[0]
            try:
                call.answer = call.work(cursor)
            except Exception as error:  # noqa: BLE001 - it is raised where the call was made
                self._failed(call, error)
                return []
            return [call]
        try:
            for call in calls:
                call.answer = call.work(cursor)
        except Exception:  # noqa: BLE001 - who failed fails again and is told
            # Hardly any call fails, so the savepoints that keep others out of it, which are not cheap, come second.
            self._roll_back(cursor)
            cursor.execute(self._backend.begin)
            return self._work_one_by_one(cursor, calls)
        return list(calls)

    def _work_one_by_one(self, cursor: Cursor, calls: Sequence[Unit]) -> list[Unit]:
        """Run each caller's work so that one which fails leaves nothing behind."""
        written: list[Unit] = []
        for call in calls:
            cursor.execute("SAVEPOINT one_call")
            try:
                call.answer = call.work(cursor)
            except Exception as error:  # noqa: BLE001 - it is raised where the call was made
                self._failed(call, error)
                if not self._in_transaction():
                    # The database rolled back everything, those before included: a full disk, for one.
                    self._fail([call for call in calls if not call.done], self._backend.refusal, error)
                    return []
                cursor.execute("ROLLBACK TO one_call")
            else:
                written.append(call)
            cursor.execute("RELEASE one_call")
        return written

    def _commit(self, cursor: Cursor, written: Sequence[Unit]) -> None:
        try:
            cursor.execute("COMMIT")
        except self._backend.driver_errors as error:
            self._fail(written, self._backend.commit_failure, error)
            self.close()
            return
        self.commits += 1
        for call in written:
            call.done = True

    def _roll_back(self, cursor: Cursor) -> None:
        if self._in_transaction():
            cursor.execute("ROLLBACK")

    def _in_transaction(self) -> bool:
        connection = self._connection
        return connection is not None and self._backend.in_transaction(connection.driver_connection)

    def _failed(self, call: Unit, error: Exception) -> None:
        if isinstance(error, self._backend.driver_errors):
            self._fail([call], self._backend.refusal, error)
        else:
            call.error, call.done = error, True

    def _fail(self, calls: Sequence[Unit], read: Callable[[Exception], StoreError], error: Exception) -> None:
        # Each caller gets an error of its own, since raising one adds to its traceback.
        for call in calls:
            call.error = explained(read, error)
            call.done = True


def explained(read: Callable[[Exception], StoreError], error: Exception) -> StoreError:
    """The store's error for a driver's, or for SQLAlchemy's around it, with the driver's as its cause."""
    cause = getattr(error, "orig", None) or error
    if isinstance(cause, SQLAlchemyError):
        result: StoreError = StoreUnavailable(f"no connection to the database: {cause}")
    else:
        result = read(cause)
    result.__cause__ = cause
    return result


def connection_errors(backend: Backend) -> tuple[type[Exception], ...]:
    """What opening a connection raises: the driver's errors, and those of the pool."""
    return (*backend.driver_errors, SQLAlchemyError)
