"""Where a child may kill itself: at each operation of the store, each call of a participant, each SQL statement."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from stacksaga_flask.errors import OutcomeUnknown
from stacksaga_flask.store.contract import (
    DirectoryStore,
    IndexStart,
    MarkerStore,
    Store,
    TransactionStore,
)
from tests.support.faults import described

OPERATIONS: Final = frozenset(
    name
    for part in (TransactionStore, MarkerStore, DirectoryStore, Store)
    for name, value in vars(part).items()
    if callable(value) and not name.startswith("_") and name not in ("close", "before_fork", "after_fork_in_parent")
)
"""What the contract has that talks to the database."""


WRITES: Final = frozenset({"apply", "insert_marker", "replace_marker", "delete_marker"})


class Points:
    """Counts the points that a process reaches, and kills it at one of them.

    Args:
        log: Gets one line for each point, written before the process may die of it.
        kill_at: The number of the point, from 0; None lets the process live.
    """

    def __init__(self, log: Path, kill_at: int | None) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._kill_at = kill_at
        self._next = 0

    def reach(self, name: str) -> None:
        """Die here, if here is where to die."""
        os.write(self._log, f"{name}\n".encode())
        if self._next == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self._next += 1

    @contextmanager
    def around(self, name: str) -> Iterator[None]:
        """A point before something, and one after it has returned."""
        self.reach(f"before {name}")
        yield
        self.reach(f"after {name}")

    def close(self) -> None:
        """Close the log."""
        os.close(self._log)


class KillingStore:
    """Wraps a store with points around every operation of the contract, and may lose the answer to one write.

    Args:
        inner: The store.
        points: To reach before and after each operation.
        ahead: How many microseconds the process's clock was put forward, which the store's clock shares.
        lose_at: The number of the write that is applied and whose answer is lost, from 0.
    """

    def __init__(self, inner: Store, points: Points, ahead: Callable[[], int], *, lose_at: int | None = None) -> None:
        self._lose_at = lose_at
        self._writes = 0
        self._inner = inner
        self._points = points
        self._ahead = ahead

    def __getattr__(self, name: str) -> Any:
        inner = getattr(self._inner, name)
        if name not in OPERATIONS:
            return inner

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._points.around(_written(args) if name == "apply" else name):
                answer = inner(*args, **kwargs)
                if name in WRITES:
                    self._count_a_write()
                return answer + self._ahead() if name == "now" else answer

        return call

    def _count_a_write(self) -> None:
        self._writes += 1
        if self._writes - 1 == self._lose_at:
            raise OutcomeUnknown("the answer was lost")


def _written(operations: tuple[object, ...]) -> str:
    return " + ".join(described(each) for each in operations if not isinstance(each, IndexStart))


class KillingConnection(sqlite3.Connection):
    """A connection with a point before each statement, once it was given points."""

    points: Points | None = None

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(factory or KillingCursor)


class KillingCursor(sqlite3.Cursor):
    """A cursor of such a connection."""

    connection: KillingConnection

    def execute(self, sql: str, parameters: Any = (), /) -> KillingCursor:
        if self.connection.points is not None:
            self.connection.points.reach(f"before {' '.join(sql.split()[:3])}")
        super().execute(sql, parameters)
        return self
