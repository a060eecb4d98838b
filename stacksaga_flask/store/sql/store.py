"""The SQL store: the contract over one database. Reads go through a pool; writes too, or through the group."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from stacksaga_flask.clock import SECOND, TimeSource
from stacksaga_flask.errors import StoreUnavailable
from stacksaga_flask.store.calls import CallsUnderWay
from stacksaga_flask.store.columns import Values
from stacksaga_flask.store.contract import (
    LAST_WINDOW,
    FrozenRow,
    Grid,
    Marker,
    MarkerOutcome,
    Operation,
    Path,
    Scope,
    StoredTransaction,
    Tryout,
)
from stacksaga_flask.store.sql import rows
from stacksaga_flask.store.sql.backend import Backend, Cursor
from stacksaga_flask.store.sql.forking import HeldWriter
from stacksaga_flask.store.sql.greenlets import GreenletGroup
from stacksaga_flask.store.sql.group import Group
from stacksaga_flask.store.sql.plan import Planner, carry_out
from stacksaga_flask.store.sql.pooled import Pool, Pooled
from stacksaga_flask.store.sql.statements import Statement, Statements, statements_for
from stacksaga_flask.threads import threads_are_greenlets

T = TypeVar("T")


class SqlStore:
    """An event store of one scope in a SQL database, whose tables must be there."""

    transactional = True
    fences_by_epoch = True
    first_in_first_out = True

    def __init__(
        self, backend: Backend, scope: Scope, *, time_source: TimeSource, statements: Statements | None = None
    ) -> None:
        self.scope = scope
        self._key = scope._asdict()
        self._backend = backend
        self._statements = statements or statements_for(backend)
        self._planner = Planner(self._statements, scope)
        self._pool = Pool(backend)
        self._writes = self._writing(time_source)
        self._calls = CallsUnderWay()
        self._closed = False

    @property
    def commits(self) -> int:
        """How many database transactions this process has committed."""
        return self._writes.commits

    def close(self) -> None:
        """Give back connections. No call may be under way."""
        self._closed = True
        self._writes.close()
        self._backend.engine.dispose()

    def before_fork(self, timeout: float) -> None:
        """Wait for the calls under way and give back every connection; new calls wait (R2)."""
        with ExitStack() as goes_on:
            if not self._calls.hold_up(timeout):
                raise StoreUnavailable(f"{self._backend.name}: calls were still under way after {timeout:g} s")
            goes_on.callback(self._calls.go_on)
            if not self._writes.hold_up(timeout):
                raise StoreUnavailable(f"{self._backend.name}: a write was still under way after {timeout:g} s")
            goes_on.callback(self._writes.go_on)
            self._backend.engine.dispose()
            goes_on.pop_all()

    def after_fork_in_parent(self) -> None:
        """Let calls go on."""
        self._writes.go_on()
        self._calls.go_on()

    # -- writes ------------------------------------------------------------------------------------------------

    def apply(self, *operations: Operation) -> None:
        """Write all operations or none, in one database transaction that others' may share."""
        self._submit(partial(carry_out, self._planner.plan(operations)))

    def record_grid(self, grid: Grid) -> Grid:
        """Record the grid unless there is one, and return the one that is there (R15)."""
        statements = self._statements

        def work(cursor: Cursor) -> Grid:
            insert, select = statements.insert_settings, statements.select_settings
            cursor.execute(insert.sql, insert.order({**self._key, **rows.grid_values(grid)}))
            cursor.execute(select.sql, select.order(self._key))
            return rows.grid(cursor.fetchone())

        return self._submit(work)

    def insert_marker(self, transaction_id: UUID, marker: Marker, *, ttl: int | None) -> MarkerOutcome:
        """Insert the marker if there is none, or only an expired one, of its step id."""
        values = {**self._marker_key(transaction_id), **rows.marker_values(marker), "ttl": _microseconds(ttl)}
        return self._conditional(self._statements.insert_marker, values)

    def replace_marker(
        self, transaction_id: UUID, marker: Marker, *, expected_state: str, ttl: int | None
    ) -> MarkerOutcome:
        """Replace the marker if its execution state is the expected one."""
        values = {**self._marker_key(transaction_id), **rows.marker_values(marker), "ttl": _microseconds(ttl)}
        return self._conditional(self._statements.replace_marker, {**values, "expected_state": expected_state})

    def delete_marker(self, transaction_id: UUID, step_id: str, *, expected_state: str) -> MarkerOutcome:
        """Delete the marker if its execution state is the expected one."""
        values = {**self._marker_key(transaction_id), "step_id": step_id, "expected_state": expected_state}
        return self._conditional(self._statements.delete_marker, values)

    def marker(self, transaction_id: UUID, step_id: str) -> Marker | None:
        """One marker. The transaction writes its key first, and so waits for conditional writes under way."""
        values = {**self._marker_key(transaction_id), "step_id": step_id}
        hold, drop = self._statements.hold_marker, self._statements.drop_marker

        def work(cursor: Cursor) -> Marker | None:
            cursor.execute(hold.sql, hold.order(values))
            if cursor.rowcount == 1:
                cursor.execute(drop.sql, drop.order(values))
                return None
            return self._read_marker(cursor, values)

        return self._submit(work)

    # -- reads -------------------------------------------------------------------------------------------------

    def read(self, transaction_id: UUID) -> StoredTransaction | None:
        """The transaction's row, or None."""
        found = self._select(self._statements.select_row, transaction_id=str(transaction_id))
        if not found:
            return None
        return StoredTransaction(rows.transaction_row(transaction_id, found[0]), written_at=0)

    def tryouts(self, transaction_id: UUID) -> Iterator[Tryout]:
        """The transaction's tryouts by rising index."""
        found = self._select(self._statements.select_tryouts, transaction_id=str(transaction_id))
        return (rows.tryout(transaction_id, record) for record in found)

    def frozen(self) -> Iterator[FrozenRow]:
        """All frozen rows of the scope. A corrupt one raises in its turn, and the next call gives the one after it."""
        return map(rows.frozen_row, self._select(self._statements.select_frozen))

    def markers(self, transaction_id: UUID) -> tuple[Marker, ...]:
        """The whole marker partition by step id, without what has expired."""
        found = self._select(self._statements.select_markers, transaction_id=str(transaction_id))
        return tuple(rows.marker(record) for record in found)

    def days(self, year: int) -> Iterator[str]:
        """Tier 1: dates of the year, rising."""
        return self._column(self._statements.select_days, year=year)

    def windows(self, date: str, *, minimum: int = 0, maximum: int = LAST_WINDOW) -> Iterator[int]:
        """Tier 2: windows of the date from minimum to maximum, both included, rising."""
        return self._column(self._statements.select_windows, date_of_year=date, minimum=minimum, maximum=maximum)

    def instances(self, date: str, window: int, *, minimum: int, maximum: int) -> Iterator[tuple[int, str]]:
        """Tier 3: tokens and instance ids, both ends included, rising."""
        found = self._select(
            self._statements.select_instances,
            date_of_year=date,
            minute_of_day=window,
            minimum=minimum,
            maximum=maximum,
        )
        return ((token, instance_id) for token, instance_id in found)

    def buckets(self, date: str, window: int, instance_id: str) -> Iterator[int]:
        """Tier 4: buckets of the instance in the window, rising."""
        return self._column(
            self._statements.select_buckets, date_of_year=date, minute_of_day=window, instance_id=instance_id
        )

    def pointers(self, path: Path) -> Iterator[UUID]:
        """Tier 5: transaction ids of the bucket in order of registration."""
        return (UUID(text) for text in self._column(self._statements.select_pointers, **rows.path_values(path)))

    def has_pointer(self, path: Path, transaction_id: UUID) -> bool:
        """Whether the bucket holds this pointer."""
        values = rows.path_values(path)
        return bool(self._select(self._statements.select_pointer, **values, transaction_id=str(transaction_id)))

    def now(self) -> int:
        """The database's clock (R14)."""
        result: int = next(self._column(self._statements.select_now))
        return result

    def read_grid(self) -> Grid | None:
        """The grid that is recorded, or None."""
        found = self._select(self._statements.select_settings)
        return rows.grid(found[0]) if found else None

    # -- inside ------------------------------------------------------------------------------------------------

    def _writing(self, time_source: TimeSource) -> Group | Pooled:
        """How this process writes."""
        if not self._backend.single_writer:
            return Pooled(self._pool)
        writer = HeldWriter(self._backend)
        return GreenletGroup(writer, time_source) if threads_are_greenlets() else Group(writer)

    def _submit(self, work: Callable[[Cursor], T]) -> T:
        if self._closed:
            raise StoreUnavailable("this store was closed; nothing was written")
        with self._calls:
            return self._writes.submit(work)

    def _conditional(self, statement: Statement, values: Values) -> MarkerOutcome:
        bound = statement.order(values)

        def work(cursor: Cursor) -> MarkerOutcome:
            cursor.execute(statement.sql, bound)
            if cursor.rowcount == 1:
                return MarkerOutcome(applied=True, current=None)
            return MarkerOutcome(applied=False, current=self._read_marker(cursor, values))

        return self._submit(work)

    def _read_marker(self, cursor: Cursor, values: Values) -> Marker | None:
        select = self._statements.select_marker
        cursor.execute(select.sql, select.order(values))
        record = cursor.fetchone()
        return None if record is None else rows.marker(record)

    def _select(self, statement: Statement, **values: Any) -> Sequence[Any]:
        if self._closed:
            raise StoreUnavailable("this store was closed")
        bound = statement.order({**self._key, **values})

        def read(cursor: Cursor) -> Sequence[Any]:
            cursor.execute(statement.sql, bound)
            return cursor.fetchall()

        with self._calls:
            return self._pool.run(read)

    def _column(self, statement: Statement, **values: Any) -> Iterator[Any]:
        return (value for (value,) in self._select(statement, **values))

    def _marker_key(self, transaction_id: UUID) -> Values:
        return {**self._key, "transaction_id": str(transaction_id)}


def _microseconds(seconds: int | None) -> int | None:
    return None if seconds is None else seconds * SECOND
