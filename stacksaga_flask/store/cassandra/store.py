"""The Cassandra store: the contract over one keyspace (design, section 4)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Final
from uuid import UUID

from cassandra.cluster import ResponseFuture, ResultSet, Session
from cassandra.query import Statement

from stacksaga_flask.errors import OutcomeUnknown, StoreError, StoreRefused, StoreUnavailable
from stacksaga_flask.store.calls import CallsUnderWay
from stacksaga_flask.store.cassandra.binding import Bind
from stacksaga_flask.store.cassandra.connection import (
    CONDITIONAL,
    READ,
    SERIAL_READ,
    WRITE,
    Connected,
    where,
)
from stacksaga_flask.store.cassandra.failures import Kind, found_no_node, meaning
from stacksaga_flask.store.cassandra.link import Link
from stacksaga_flask.store.cassandra.place import Place
from stacksaga_flask.store.cassandra.plan import plan
from stacksaga_flask.store.columns import frozen_row, transaction_row, tryout
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

APPLIED: Final = "[applied]"


class CassandraStore:
    """An event store of one scope in a keyspace, whose tables must be there.

    Args:
        place: The keyspace.
        scope: Part of every key.
        connected: An open connection to it, which the store closes.
    """

    transactional = False
    fences_by_epoch = False
    first_in_first_out = False

    def __init__(self, place: Place, scope: Scope, connected: Connected) -> None:
        self.scope = scope
        self._place = place
        self._link = Link(place, connected)
        self._calls = CallsUnderWay()
        self._pid = os.getpid()

    def close(self) -> None:
        """Give back connections. No call may be under way."""
        self._link.close()

    def before_fork(self, timeout: float) -> None:
        """Wait for the calls under way and close every connection; new calls wait (R11)."""
        if not self._calls.hold_up(timeout):
            raise StoreUnavailable(f"{where(self._place)}: calls were still under way after {timeout:g} s")
        try:
            self._link.rest()
        except BaseException:
            self._calls.go_on()
            raise

    def after_fork_in_parent(self) -> None:
        """Let calls go on, with connections that are opened when the first one needs them."""
        self._calls.go_on()

    # -- writes ------------------------------------------------------------------------------------------------

    def apply(self, *operations: Operation) -> None:
        """Send all operations together and return once all are acknowledged."""
        with self._calls:
            connected = self._connection()
            statements = plan(connected.statements, self.scope, operations)
            sent = [self._send(connected.session, statement) for statement in statements]
            # The last one first: it is mostly answered last, and then nobody has to be waited for again.
            errors = [error for future in reversed(sent) if (error := self._error_of(future)) is not None]
        if errors:
            raise _together(errors, len(sent))

    def insert_marker(self, transaction_id: UUID, marker: Marker, *, ttl: int | None) -> MarkerOutcome:
        """Insert the marker if none of its step id is there."""
        values = (ttl or 0, marker.execution_state, marker.result, *self.scope, transaction_id, marker.step_id)
        found = self._conditionally("insert_marker", values)
        if found[APPLIED]:
            return MarkerOutcome(applied=True, current=None)
        return MarkerOutcome(False, _marker(marker.step_id, found["execution_state"], found["result"]))

    def replace_marker(
        self, transaction_id: UUID, marker: Marker, *, expected_state: str, ttl: int | None
    ) -> MarkerOutcome:
        """Replace the marker if its execution state is the expected one."""
        key = (*self.scope, transaction_id, marker.step_id)
        values = (ttl or 0, marker.execution_state, marker.result, *key, expected_state)
        if self._conditionally("replace_marker", values)[APPLIED]:
            return MarkerOutcome(applied=True, current=None)
        # The answer has the state alone.
        return MarkerOutcome(False, self.marker(transaction_id, marker.step_id))

    def delete_marker(self, transaction_id: UUID, step_id: str, *, expected_state: str) -> MarkerOutcome:
        """Delete the marker if its execution state is the expected one."""
        values = (*self.scope, transaction_id, step_id, expected_state)
        if self._conditionally("delete_marker", values)[APPLIED]:
            return MarkerOutcome(applied=True, current=None)
        return MarkerOutcome(False, self.marker(transaction_id, step_id))

    def record_grid(self, grid: Grid) -> Grid:
        """Record the grid unless there is one, and return the one that is there (R15)."""
        values = (*self.scope, grid.schema_version, grid.window_interval, grid.clock_skew_margin)
        found = self._conditionally("insert_grid", values)
        return grid if found[APPLIED] else _grid(found)

    def replace_grid(self, grid: Grid, *, expected: Grid) -> bool:
        """Replace the grid if it is the expected one, and tell whether it was."""
        values = (grid.schema_version, grid.window_interval, grid.clock_skew_margin)
        before = (expected.schema_version, expected.window_interval, expected.clock_skew_margin)
        return bool(self._conditionally("replace_grid", (*values, *self.scope, *before))[APPLIED])

    # -- reads -------------------------------------------------------------------------------------------------

    def read(self, transaction_id: UUID) -> StoredTransaction | None:
        """The transaction's row, or None."""
        record = self._one("read_row", (*self.scope, transaction_id))
        if record is None:
            return None
        *values, written_at = record
        row = transaction_row(transaction_id, values, time=_microseconds, names=_names)
        return StoredTransaction(row, written_at)

    def tryouts(self, transaction_id: UUID) -> Iterator[Tryout]:
        """The transaction's tryouts by rising index."""
        for record in self._rows("read_tryouts", (*self.scope, transaction_id)):
            yield tryout(transaction_id, record, time=_microseconds)

    def frozen(self) -> Iterator[FrozenRow]:
        """All frozen rows of the scope, in no order. A corrupt one raises in its turn; the next call goes on."""
        ours = (record[3:] for record in self._rows("read_all_frozen", ()) if record[:3] == self.scope)
        return map(_frozen_row, ours)

    def marker(self, transaction_id: UUID, step_id: str) -> Marker | None:
        """One marker, after every conditional write that was answered or is under way (R16)."""
        record = self._one("read_marker", (*self.scope, transaction_id, step_id), profile=SERIAL_READ)
        return None if record is None else _marker(step_id, *record)

    def markers(self, transaction_id: UUID) -> tuple[Marker, ...]:
        """The whole marker partition by step id."""
        found = (_marker(*record) for record in self._rows("read_markers", (*self.scope, transaction_id)))
        return tuple(marker for marker in found if marker is not None)

    def days(self, year: int) -> Iterator[str]:
        """Tier 1: dates of the year, rising."""
        return self._column("read_days", (*self.scope, year))

    def windows(self, date: str, *, minimum: int = 0, maximum: int = LAST_WINDOW) -> Iterator[int]:
        """Tier 2: windows of the date from minimum to maximum, both included, rising."""
        return self._column("read_windows", (*self.scope, date, minimum, maximum))

    def instances(self, date: str, window: int, *, minimum: int, maximum: int) -> Iterator[tuple[int, str]]:
        """Tier 3: tokens and instance ids, both ends included, rising."""
        values = (*self.scope, date, window, minimum, maximum)
        return ((token, instance_id) for token, instance_id in self._rows("read_instances", values))

    def buckets(self, date: str, window: int, instance_id: str) -> Iterator[int]:
        """Tier 4: buckets of the instance in the window, rising."""
        return self._column("read_buckets", (*self.scope, date, window, instance_id))

    def pointers(self, path: Path) -> Iterator[UUID]:
        """Tier 5: transaction ids of the bucket, in the order of Cassandra's uuids."""
        return self._column("read_pointers", (*self.scope, *path))

    def has_pointer(self, path: Path, transaction_id: UUID) -> bool:
        """Whether the bucket holds this pointer."""
        return self._one("read_pointer", (*self.scope, *path, transaction_id)) is not None

    def now(self) -> int:
        """The clock of one node (R14)."""
        record = self._one("read_now", ())
        if record is None:
            raise StoreUnavailable(f"{where(self._place)}: the node did not tell its time")
        return _microseconds(record[0])

    def read_grid(self) -> Grid | None:
        """The grid that is recorded, or None. It is written conditionally, so it is read as such (R16)."""
        record = self._one("read_grid", self.scope, profile=SERIAL_READ)
        if record is None:
            return None
        schema_version, window_interval, clock_skew_margin = record
        return Grid(schema_version=schema_version, window_interval=window_interval, clock_skew_margin=clock_skew_margin)

    # -- inside ------------------------------------------------------------------------------------------------

    def _connection(self) -> Connected:
        self._refuse_child()
        connected = self._link.get()
        # Again: a child gets copies of the greenlets that were connecting.
        self._refuse_child()
        return connected

    def _refuse_child(self) -> None:
        if self._pid != os.getpid():
            raise StoreRefused(
                "a forked child may not use the store of its parent, whose connections it does not have (R11); nothing "
                "was written"
            )

    def _send(self, session: Session, statement: Statement) -> ResponseFuture | StoreError:
        try:
            return session.execute_async(statement, execution_profile=WRITE)
        except Exception as error:  # noqa: BLE001 - told to the caller, after what was sent beside it was answered
            return self._meaning(error, Kind.WRITE)

    def _error_of(self, sent: ResponseFuture | StoreError) -> StoreError | None:
        if isinstance(sent, StoreError):
            return sent
        try:
            sent.result()
        except Exception as error:  # noqa: BLE001 - the driver may put any into a future; it is told to the caller
            return self._meaning(error, Kind.WRITE)
        self._link.answered()
        return None

    def _meaning(self, error: Exception, kind: Kind) -> StoreError:
        if found_no_node(error):
            self._link.found_no_node()
        else:
            self._link.answered()
        return meaning(error, kind, where(self._place))

    def _conditionally(self, name: str, values: Sequence[Any]) -> dict[str, Any]:
        """Run a conditional statement; what it answers, by column."""
        result = self._execute(name, values, CONDITIONAL, Kind.CONDITIONAL_WRITE)
        return dict(zip(result.column_names, result.one(), strict=True))

    def _one(self, name: str, values: Sequence[Any], *, profile: str = READ) -> Any:
        return self._execute(name, values, profile, Kind.READ).one()

    def _rows(self, name: str, values: Sequence[Any]) -> Iterator[Any]:
        """All rows, page by page. A page may be empty and not the last."""
        paging_state = None
        while True:
            page = self._execute(name, values, READ, Kind.READ, paging_state)
            yield from page.current_rows
            paging_state = page.paging_state
            if paging_state is None:
                return

    def _column(self, name: str, values: Sequence[Any]) -> Iterator[Any]:
        return (value for (value,) in self._rows(name, values))

    def _execute(
        self, name: str, values: Sequence[Any], profile: str, kind: Kind, paging_state: bytes | None = None
    ) -> ResultSet:
        with self._calls:
            connected = self._connection()
            bind: Bind = getattr(connected.statements, name)
            bound = bind(values)
            try:
                result = connected.session.execute(bound, execution_profile=profile, paging_state=paging_state)
            except Exception as error:
                raise self._meaning(error, kind) from error
            self._link.answered()
            return result


def _together(errors: list[StoreError], sent: int) -> StoreError:
    """The error of a call whose statements went out together: nothing of it was written, or nobody knows what."""
    unknown = next((error for error in errors if isinstance(error, OutcomeUnknown)), None)
    if unknown is not None or len(errors) == sent:
        return unknown or errors[0]
    result = OutcomeUnknown(f"a part of the call was written and another was not: {errors[0]}")
    result.__cause__ = errors[0]
    return result


def _frozen_row(record: Any) -> FrozenRow:
    transaction_id, frozen_at, reason = record
    return frozen_row(transaction_id, frozen_at, reason, time=_microseconds)


def _marker(step_id: str, execution_state: str | None, result: bytes | None) -> Marker | None:
    # A row without a state is what is left where a time to live was shortened.
    if execution_state is None:
        return None
    return Marker(step_id=step_id, execution_state=execution_state, result=result)


def _grid(found: dict[str, Any]) -> Grid:
    return Grid(
        schema_version=found["schema_version"],
        window_interval=found["window_interval"],
        clock_skew_margin=found["clock_skew_margin"],
    )


def _microseconds(milliseconds: int) -> int:
    return milliseconds * 1000


def _names(found: Sequence[str]) -> tuple[str, ...]:
    return tuple(found)
