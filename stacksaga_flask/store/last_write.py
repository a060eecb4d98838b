"""Tables in memory in which the write with the highest timestamp stands, as in Cassandra (R13)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Generic, TypeVar
from uuid import UUID

from msgspec import Struct

from stacksaga_flask.clock import SECOND
from stacksaga_flask.store.contract import (
    DeletePointer,
    DeleteTransaction,
    Drop,
    FrozenRow,
    Grid,
    Marker,
    MarkerOutcome,
    Path,
    Register,
    TransactionRow,
    Tryout,
    WriteTransaction,
)

K = TypeVar("K")
R = TypeVar("R", bound=Struct)


class KeyOnly(Struct, frozen=True):
    """A row of which there is nothing but its key."""


PRESENT = KeyOnly()


class Slot(Struct, Generic[R]):
    """What stands at one primary key: a row, or the tombstone of one."""

    timestamp: int
    row: R | None
    expires_at: int | None = None
    """Whole seconds since 1970 by the store's clock."""


def put(slots: dict[K, Slot[R]], key: K, new: Slot[R]) -> None:
    """Write a row or a tombstone; the higher timestamp stands, and on a tie the tombstone."""
    old = slots.get(key)
    if old is None or new.timestamp > old.timestamp:
        slots[key] = new
    elif new.timestamp == old.timestamp and old.row is not None:
        if new.row is None:
            slots[key] = new
        elif new.row != old.row:
            old.row = _larger_cells(old.row, new.row)


def _larger_cells(one: R, other: R) -> R:
    """Two rows of one timestamp, merged cell by cell: a null is a tombstone and wins, else the larger value."""
    cells = {}
    for name in one.__struct_fields__:
        a, b = getattr(one, name), getattr(other, name)
        cells[name] = None if a is None or b is None else max(a, b)
    return type(one)(**cells)


def live(slots: Mapping[K, Slot[R]] | None) -> list[K]:
    """The keys at which there is a row."""
    return [key for key, slot in slots.items() if slot.row is not None] if slots else []


class MarkerPartition:
    """The markers of one transaction, the only partition that is deleted whole."""

    def __init__(self) -> None:
        self.slots: dict[str, Slot[Marker]] = {}
        self._deleted_at: int | None = None
        self._ballot = 0

    def get(self, step_id: str, now: int) -> Marker | None:
        """The marker, or None if there is none, it has expired, or the deletion of the partition hides it."""
        slot = self.slots.get(step_id)
        if slot is None or (self._deleted_at is not None and slot.timestamp <= self._deleted_at):
            return None
        if slot.expires_at is not None and slot.expires_at <= now // SECOND:
            return None
        return slot.row

    def delete(self, timestamp: int) -> None:
        """Delete the partition. What has a higher timestamp or ballot stays (H1)."""
        self._deleted_at = timestamp if self._deleted_at is None else max(timestamp, self._deleted_at)

    def put_conditionally(
        self, step_id: str, marker: Marker | None, *, expected_state: str | None, ttl: int | None, now: int
    ) -> MarkerOutcome:
        """Put the marker, or delete it if None is given, if the one seen has the expected state (None: none seen)."""
        current = self.get(step_id, now)
        if (None if current is None else current.execution_state) != expected_state:
            return MarkerOutcome(False, current)
        # Plain timestamps do not lift ballots, so an applied write may stay hidden under a deletion (H1).
        self._ballot = max(now, self._ballot + 1)
        # Cassandra counts in whole seconds, so a time to live is up to a second shorter (H3).
        expires_at = None if ttl is None else now // SECOND + ttl
        put(self.slots, step_id, Slot(self._ballot, marker, expires_at))
        return MarkerOutcome(True, None)


class Tables:
    """The tables of one scope: partitions, and in each the rows by clustering key."""

    def __init__(self) -> None:
        self.rows: dict[UUID, Slot[TransactionRow]] = {}
        self.frozen: dict[UUID, Slot[FrozenRow]] = {}
        self.tryouts: defaultdict[UUID, dict[int, Slot[Tryout]]] = defaultdict(dict)
        self.markers: defaultdict[UUID, MarkerPartition] = defaultdict(MarkerPartition)
        self.days: defaultdict[int, dict[str, Slot[KeyOnly]]] = defaultdict(dict)
        self.windows: defaultdict[str, dict[int, Slot[KeyOnly]]] = defaultdict(dict)
        self.instances: defaultdict[tuple[str, int], dict[tuple[int, str], Slot[KeyOnly]]] = defaultdict(dict)
        self.buckets: defaultdict[tuple[str, int, str], dict[int, Slot[KeyOnly]]] = defaultdict(dict)
        self.pointers: defaultdict[Path, dict[UUID, Slot[KeyOnly]]] = defaultdict(dict)
        self.dropped_at: dict[Path, int] = {}
        """When a bucket was deleted whole: what was or will be written to it at or below that stays invisible."""
        self.grid: Grid | None = None

    def write(self, operation: WriteTransaction) -> None:
        """Write a batch: each of its rows wins or loses by itself (C3)."""
        key, timestamp = operation.row.transaction_id, operation.timestamp
        put(self.rows, key, Slot(timestamp, operation.row))
        for tryout in operation.tryouts:
            put(self.tryouts[key], tryout.tryout_index, Slot(timestamp, tryout))
        for marker in operation.markers:
            put(self.markers[key].slots, marker.step_id, Slot(timestamp, marker))
        if operation.delete_markers:
            self.markers[key].delete(timestamp)
        if operation.frozen is not None:
            put(self.frozen, key, Slot(timestamp, operation.frozen))
        if operation.delete_frozen:
            put(self.frozen, key, Slot(timestamp, None))

    def delete(self, operation: DeleteTransaction) -> None:
        """Delete the row of a transaction and nothing else of it."""
        put(self.rows, operation.transaction_id, Slot(operation.timestamp, None))

    def register(self, operation: Register) -> None:
        """Insert the pointer's rows of the tiers asked for."""
        path, tiers, timestamp = operation.path, operation.tiers, operation.timestamp
        date, window, instance_id, bucket = path
        if 1 in tiers:
            put(self.days[int(date[:4])], date, Slot(operation.day_timestamp, PRESENT))
        if 2 in tiers:
            put(self.windows[date], window, Slot(timestamp, PRESENT))
        if 3 in tiers:
            put(self.instances[date, window], (operation.instance_token, instance_id), Slot(timestamp, PRESENT))
        if 4 in tiers:
            put(self.buckets[date, window, instance_id], bucket, Slot(timestamp, PRESENT))
        if 5 in tiers and timestamp > self.dropped_at.get(path, -1):
            put(self.pointers[path], operation.transaction_id, Slot(timestamp, PRESENT))

    def delete_pointer(self, operation: DeletePointer) -> None:
        """Delete one row of tier 5."""
        put(self.pointers[operation.path], operation.transaction_id, Slot(operation.timestamp, None))

    def drop(self, operation: Drop) -> None:
        """Delete one row of tiers 1 to 4, or a bucket of tier 5 whole."""
        (date, window, instance_id, bucket), timestamp = operation.path, operation.timestamp
        tombstone: Slot[KeyOnly] = Slot(timestamp, None)
        if operation.tier == 1:
            put(self.days[int(date[:4])], date, tombstone)
        elif operation.tier == 2:
            put(self.windows[date], window, tombstone)
        elif operation.tier == 3:
            put(self.instances[date, window], (operation.instance_token, instance_id), tombstone)
        elif operation.tier == 4:
            put(self.buckets[date, window, instance_id], bucket, tombstone)
        else:
            self.dropped_at[operation.path] = max(timestamp, self.dropped_at.get(operation.path, -1))
            slots = self.pointers[operation.path]
            for pointer in [pointer for pointer, slot in slots.items() if slot.timestamp <= timestamp]:
                del slots[pointer]
