"""An event store in memory that keeps and loses writes as Cassandra does.

The write with the highest timestamp stands, whichever came last; deletes leave tombstones that hide late writes of
lower timestamps and are never forgotten (R13). The tryouts and markers of a batch whose row loses survive it.
Conditional writes on markers carry a ballot of the store's own clock, and a deletion ahead of that clock hides them:
the store shows what a cluster would show, wanted or not.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TypeVar
from uuid import UUID

from stacksaga_flask.clock import TimeSource
from stacksaga_flask.store.contract import (
    LAST_WINDOW,
    DeletePointer,
    DeleteTransaction,
    Drop,
    FrozenRow,
    Grid,
    Marker,
    MarkerOutcome,
    Operation,
    Path,
    Register,
    Scope,
    StoredTransaction,
    Tryout,
    WriteTransaction,
)
from stacksaga_flask.store.last_write import Tables, live

S = TypeVar("S", bound="MemoryStore")


class MemoryStore:
    """A store whose data live as long as the object, or the last one opened `beside` it.

    Threads, and engines that stand for processes in a test, may share one object.

    Args:
        scope: Part of every key.
        time_source: The store's clock, which gives ballots and ends times to live.
    """

    transactional = False
    fences_by_epoch = False
    first_in_first_out = False

    def __init__(self, scope: Scope, time_source: TimeSource) -> None:
        self.scope = scope
        self._time_source = time_source
        self._lock = threading.Lock()
        self._tables = Tables()
        self._scopes = {scope: self._tables}

    def beside(self: S, scope: Scope) -> S:
        """Another store object on the same data and clock, of this scope or of another."""
        store = type(self)(scope, self._time_source)
        with self._lock:
            store._lock, store._scopes = self._lock, self._scopes
            store._tables = self._scopes.setdefault(scope, store._tables)
        return store

    def apply(self, *operations: Operation) -> None:
        """Write the operations. None is ever refused: what comes too late loses by its timestamp."""
        with self._lock:
            for operation in operations:
                if isinstance(operation, WriteTransaction):
                    self._tables.write(operation)
                elif isinstance(operation, Register):
                    self._tables.register(operation)
                elif isinstance(operation, DeletePointer):
                    self._tables.delete_pointer(operation)
                elif isinstance(operation, Drop):
                    self._tables.drop(operation)
                elif isinstance(operation, DeleteTransaction):
                    self._tables.delete(operation)
                # An IndexStart leaves nothing behind, since nothing reads the index.

    # -- transactions ------------------------------------------------------------------------------------------

    def read(self, transaction_id: UUID) -> StoredTransaction | None:
        """The transaction's row, or None."""
        with self._lock:
            slot = self._tables.rows.get(transaction_id)
            return None if slot is None or slot.row is None else StoredTransaction(slot.row, slot.timestamp)

    def tryouts(self, transaction_id: UUID) -> Iterator[Tryout]:
        """The transaction's tryouts by rising index."""
        with self._lock:
            slots = sorted(self._tables.tryouts.get(transaction_id, {}).items())
            return iter([slot.row for _, slot in slots if slot.row is not None])

    def frozen(self) -> Iterator[FrozenRow]:
        """All frozen rows of the scope."""
        with self._lock:
            return iter([slot.row for slot in self._tables.frozen.values() if slot.row is not None])

    # -- markers -----------------------------------------------------------------------------------------------

    def insert_marker(self, transaction_id: UUID, marker: Marker, *, ttl: int | None) -> MarkerOutcome:
        """Insert the marker if none of its step id is seen."""
        return self._conditional(transaction_id, marker.step_id, marker, expected_state=None, ttl=ttl)

    def replace_marker(
        self, transaction_id: UUID, marker: Marker, *, expected_state: str, ttl: int | None
    ) -> MarkerOutcome:
        """Replace the marker if its execution state is the expected one."""
        return self._conditional(transaction_id, marker.step_id, marker, expected_state=expected_state, ttl=ttl)

    def delete_marker(self, transaction_id: UUID, step_id: str, *, expected_state: str) -> MarkerOutcome:
        """Delete the marker if its execution state is the expected one."""
        return self._conditional(transaction_id, step_id, None, expected_state=expected_state, ttl=None)

    def _conditional(
        self, transaction_id: UUID, step_id: str, marker: Marker | None, *, expected_state: str | None, ttl: int | None
    ) -> MarkerOutcome:
        with self._lock:
            return self._tables.markers[transaction_id].put_conditionally(
                step_id, marker, expected_state=expected_state, ttl=ttl, now=self.now()
            )

    def marker(self, transaction_id: UUID, step_id: str) -> Marker | None:
        """One marker, unless it has expired or a deletion hides it."""
        with self._lock:
            partition = self._tables.markers.get(transaction_id)
            return None if partition is None else partition.get(step_id, self.now())

    def markers(self, transaction_id: UUID) -> tuple[Marker, ...]:
        """The whole marker partition by step id."""
        with self._lock:
            partition, now = self._tables.markers.get(transaction_id), self.now()
            if partition is None:
                return ()
            seen = (partition.get(step_id, now) for step_id in sorted(partition.slots))
            return tuple(marker for marker in seen if marker is not None)

    # -- directory ---------------------------------------------------------------------------------------------

    def days(self, year: int) -> Iterator[str]:
        """Tier 1: dates of the year, rising."""
        with self._lock:
            return iter(sorted(live(self._tables.days.get(year))))

    def windows(self, date: str, *, minimum: int = 0, maximum: int = LAST_WINDOW) -> Iterator[int]:
        """Tier 2: windows of the date from minimum to maximum, both included, rising."""
        with self._lock:
            windows = live(self._tables.windows.get(date))
            return iter(sorted(window for window in windows if minimum <= window <= maximum))

    def instances(self, date: str, window: int, *, minimum: int, maximum: int) -> Iterator[tuple[int, str]]:
        """Tier 3: tokens and instance ids whose token lies from minimum to maximum, both included, rising."""
        with self._lock:
            instances = live(self._tables.instances.get((date, window)))
            return iter(sorted(instance for instance in instances if minimum <= instance[0] <= maximum))

    def buckets(self, date: str, window: int, instance_id: str) -> Iterator[int]:
        """Tier 4: buckets of the instance in the window, rising."""
        with self._lock:
            return iter(sorted(live(self._tables.buckets.get((date, window, instance_id)))))

    def pointers(self, path: Path) -> Iterator[UUID]:
        """Tier 5: transaction ids of the bucket, rising."""
        with self._lock:
            return iter(sorted(live(self._tables.pointers.get(path))))

    def has_pointer(self, path: Path, transaction_id: UUID) -> bool:
        """Whether the bucket holds this pointer."""
        with self._lock:
            slot = self._tables.pointers.get(path, {}).get(transaction_id)
            return slot is not None and slot.row is not None

    # -- settings ----------------------------------------------------------------------------------------------

    def now(self) -> int:
        """The store's clock."""
        return self._time_source.wall()

    def read_grid(self) -> Grid | None:
        """What `record_grid` wrote, or None."""
        return self._tables.grid

    def record_grid(self, grid: Grid) -> Grid:
        """Record the grid of the scope unless one is there, and return the one that is (R15)."""
        with self._lock:
            if self._tables.grid is None:
                self._tables.grid = grid
            return self._tables.grid

    def before_fork(self, timeout: float) -> None:
        """Nothing to wait for: nothing is open."""

    def after_fork_in_parent(self) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Nothing to give back: others may go on using the data."""
