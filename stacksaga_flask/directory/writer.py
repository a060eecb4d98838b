"""Where this process writes its pointers, and which tiers it still has to write (R1, R3, R10).

A writer belongs to one process: its counters and its cache die with it (R11).
"""

from __future__ import annotations

import enum
import itertools
import threading
from uuid import UUID

from stacksaga_flask.directory.windows import Window, WindowGrid, start_of_date
from stacksaga_flask.identity import token
from stacksaga_flask.store.contract import DeletePointer, Drop, IndexStart, Path, Register, TransactionRow

_ALL_TIERS = frozenset({1, 2, 3, 4, 5})
_BUCKET_AND_POINTER = frozenset({4, 5})
_POINTER = frozenset({5})
_NOBODY = UUID(int=0)
_SHARDS_SHIFT = 60
"""A shard is the top four bits of a token: 16 shards a window in the index of starts."""


class PointerKind(enum.IntEnum):
    """A pointer's kind is the parity of its bucket."""

    RETRY = 0
    WATCHDOG = 1


def bucket_of(slot: int, kind: PointerKind, bucket_size: int) -> int:
    """The bucket of slot n, counted from 0 (R10)."""
    return slot // bucket_size * 2 + kind


class DirectoryWriter:
    """Chooses paths and says what to register.

    Args:
        grid: The scope's grid of windows.
        instance_id: This process.
        bucket_size: How many pointers a bucket holds at most.
    """

    def __init__(self, grid: WindowGrid, instance_id: str, *, bucket_size: int) -> None:
        self.grid = grid
        self.instance_id = instance_id
        self._token = token(instance_id)
        self._bucket_size = bucket_size
        self._lock = threading.Lock()
        # Keys of windows and of buckets whose tiers were acknowledged; forgotten at the window's fence (R3).
        self._registered: set[Window | Path] = set()
        self._slots: dict[tuple[Window, PointerKind], itertools.count[int]] = {}

    def path(self, window: Window, kind: PointerKind) -> Path:
        """A path for one new pointer in the window."""
        slots = self._slots.get((window, kind))
        if slots is None:
            with self._lock:
                slots = self._slots.setdefault((window, kind), itertools.count())
        bucket = bucket_of(next(slots), kind, self._bucket_size)
        return Path(window.date, window.window, self.instance_id, bucket)

    def register(self, path: Path, transaction_id: UUID) -> Register:
        """The operation that registers the pointer, with the tiers that are not known to be there."""
        if path in self._registered:
            tiers = _POINTER
        elif Window(path.date, path.window) in self._registered:
            tiers = _BUCKET_AND_POINTER
        else:
            tiers = _ALL_TIERS
        return Register(
            path=path,
            transaction_id=transaction_id,
            instance_token=self._token,
            tiers=tiers,
            timestamp=self.grid.insert_timestamp(path),
            day_timestamp=start_of_date(path.date),
        )

    def acknowledged(self, registration: Register, now: int) -> None:
        """Remember the tiers, which the store acknowledged, until the fence; forget what has reached its own."""
        if registration.tiers == _POINTER or now >= self.grid.fence(registration.path):
            return
        with self._lock:
            passed = {known for known in self._registered if now >= self.grid.fence(Window(known[0], known[1]))}
            self._registered -= passed
            self._registered |= {registration.path, Window(registration.path.date, registration.path.window)}
            for window, kind in list(self._slots):
                if now >= self.grid.fence(window):
                    del self._slots[window, kind]

    def delete(self, path: Path, transaction_id: UUID) -> DeletePointer:
        """The operation that deletes a pointer."""
        return DeletePointer(path=path, transaction_id=transaction_id, timestamp=self.grid.delete_timestamp(path))

    def drop(self, tier: int, path: Path) -> Drop:
        """The operation that deletes one place of tiers 3 to 5 once its window was dispatched (R5)."""
        return Drop(tier=tier, path=path, instance_token=token(path.instance_id), timestamp=self.grid.opens(path))

    def prune(self, tier: int, path: Path, at: int) -> Drop:
        """The operation by which Node-0 deletes a row of tier 1 or 2, with its wall clock (R13)."""
        return Drop(tier=tier, path=path, timestamp=at)

    def put_back(self, tier: int, path: Path, at: int) -> Register:
        """The operation that puts back a row of tier 1 or 2 which should not have been pruned (R5)."""
        return Register(
            path=path,
            transaction_id=_NOBODY,
            instance_token=0,
            tiers=frozenset({tier}),
            timestamp=at,
            day_timestamp=at,
        )

    def index_start(self, row: TransactionRow, *, keep_for: int) -> IndexStart:
        """The operation that lists the transaction by its time of start (design, section 3)."""
        window = self.grid.at(row.created_at)
        return IndexStart(
            transaction_id=row.transaction_id,
            date=window.date,
            window=window.window,
            shard=(token(row.transaction_id.hex) >> _SHARDS_SHIFT) & 0xF,
            saga_name=row.saga_name,
            created_at=row.created_at,
            timestamp=row.created_at,
            keep_for=keep_for,
        )
