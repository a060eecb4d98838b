"""What differs between databases, in one value: a further database is another one of these."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import Engine, Insert, Table
from stacksaga_schema import SqlDialect

from stacksaga_flask.clock import TimeSource
from stacksaga_flask.errors import StoreError


class Cursor(Protocol):
    """The part of a DBAPI cursor that is used."""

    @property
    def rowcount(self) -> int:
        """How many rows the last statement wrote."""

    def execute(self, statement: str, values: Sequence[Any] = (), /) -> object:
        """Run one statement."""

    def fetchone(self) -> Any:
        """The next record, or None."""

    def fetchall(self) -> Sequence[Any]:
        """All records."""


class UpsertInsert(Protocol):
    """An INSERT that knows ON CONFLICT, which SQLAlchemy has once a dialect."""

    def values(self, values: dict[str, Any]) -> Any:
        """The same with values."""


class Failure(enum.Enum):
    """What an error before a COMMIT means for the connection, and for doing the same again."""

    REFUSED = "the connection is good, and the same would fail again"
    CONFLICT = "the connection is good, and the same may succeed: a deadlock"
    LOST = "the connection is gone or leads to a standby by now, and so may all that are as old"
    BROKEN = "the connection cannot be used, as an answer may still come on it: a time-out"


@dataclass(frozen=True, kw_only=True)
class Backend:
    """A database, its dialect, and how its driver's errors are read."""

    name: str
    """What messages call the database: the file."""
    engine: Engine
    """Owns the pool and the dialect. Its connections begin no transaction by themselves."""
    dialect: SqlDialect
    insert: Callable[[Table], Insert]
    """The dialect's INSERT with ON CONFLICT."""
    now: str
    """SQL of the database's clock in microseconds; it must move within a transaction."""
    arrival: str
    """SQL that orders pointers by their registration."""
    begin: str
    """Begin a transaction that writes."""
    tables: str
    """SQL that lists the tables that a statement would find."""
    driver_errors: tuple[type[Exception], ...]
    """The roots of what the driver raises."""
    timeout: float
    """Seconds that a call may take."""
    time_source: TimeSource
    """Whose time passes meanwhile."""
    connections: int
    """How many calls may have a connection of their own at once, besides a single writer's."""
    single_writer: bool
    """Whether the database has one writer at a time, so that a process gathers its writes into groups."""
    failure: Callable[[Exception], Failure]
    """What an error means for a connection of the pool."""
    setup_lock: str | None
    """SQL that keeps two processes from setting up the schema at once, where `begin` does not."""
    table_lock: str | None
    """SQL with {} for a table that waits for those who write to it and lets no others, where `begin` does not."""
    is_contention: Callable[[Exception], bool]
    """Whether another writer stood in the way for as long as was waited."""
    be_patient: Callable[[Cursor, bool], None]
    """Whether a begin waits for another writer, up to the time-out, or gives up at once."""
    in_transaction: Callable[[Any], bool]
    """Whether a driver's connection is inside a transaction: some errors end it."""
    refusal: Callable[[Exception], StoreError]
    """The error to raise where nothing was written."""
    commit_failure: Callable[[Exception], StoreError]
    """The error to raise where a COMMIT failed."""
