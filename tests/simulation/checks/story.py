"""What is known of one transaction, and what the store shows of it and of the directory."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar
from uuid import UUID

from stacksaga_flask.directory.windows import WindowGrid
from stacksaga_flask.identity import token
from stacksaga_flask.store.contract import Path, RunningStatus, TransactionRow
from stacksaga_flask.store.last_write import KeyOnly, Slot, Tables

if TYPE_CHECKING:
    from tests.simulation.scheduler import Task

K = TypeVar("K")

PAUSED = (RunningStatus.PROCESS_PAUSED, RunningStatus.REVERT_PAUSED)


class Written:
    """The last row that one task wrote and had acknowledged.

    Attributes:
        row: The row.
        timestamp: Its timestamp.
        took_over: When this task had its first write of this epoch acknowledged.
    """

    def __init__(self, row: TransactionRow, timestamp: int, took_over: int) -> None:
        self.row = row
        self.timestamp = timestamp
        self.took_over = took_over


class Story:
    """What is known of one transaction.

    Attributes:
        started: Whether its start was acknowledged to the process that made it.
        armed: Whether a pointer with all its tiers has been there.
        paths: Where pointers to it were ever registered.
        written: The last acknowledged row of each task.
        landed: When each of its rows landed, by its timestamp, and who wrote it.
        shown: Every row that the store has shown, in order.
        answered: Numbers of the payloads of the requests that were answered with it.
        told: Terminal statuses that somebody was told.
        fenced_at: The highest timestamp of a delete of its row.
        not_started: Whether its client was told that nothing was started.
        by_hand: Whether an operator had a hand in it.
    """

    def __init__(self, transaction_id: UUID) -> None:
        self.transaction_id = transaction_id
        self.started = False
        self.armed = False
        self.paths: list[Path] = []
        self.written: dict[Task, Written] = {}
        self.landed: dict[int, tuple[int, Task]] = {}
        self.shown: list[TransactionRow] = []
        self.answered: set[int] = set()
        self.told: list[RunningStatus] = []
        self.not_started = False
        self.fenced_at = 0
        self.by_hand = False


class Shown:
    """What the store shows now."""

    def __init__(self, tables: Tables, grid: WindowGrid) -> None:
        self.tables = tables
        self.grid = grid

    def slot(self, transaction_id: UUID) -> Slot[TransactionRow] | None:
        """The row with its timestamp, or its tombstone."""
        return self.tables.rows.get(transaction_id)

    def row(self, transaction_id: UUID) -> TransactionRow | None:
        """The row."""
        slot = self.tables.rows.get(transaction_id)
        return None if slot is None else slot.row

    def missing_tiers(self, path: Path, transaction_id: UUID) -> list[int]:
        """The tiers of a pointer that are not there."""
        tables, (date, window, instance_id, bucket) = self.tables, path
        found = (
            _there(tables.days.get(int(date[:4])), date),
            _there(tables.windows.get(date), window),
            _there(tables.instances.get((date, window)), (token(instance_id), instance_id)),
            _there(tables.buckets.get((date, window, instance_id)), bucket),
            _there(tables.pointers.get(path), transaction_id),
        )
        return [tier for tier, there in enumerate(found, start=1) if not there]

    def is_reachable(self, path: Path, transaction_id: UUID) -> bool:
        """Whether a sweep can find the pointer."""
        return not self.missing_tiers(path, transaction_id)

    def named(self, row: TransactionRow) -> list[Path]:
        """The pointers that a row names."""
        return [path for path in (row.watchdog, row.retry) if path is not None]


def _there(slots: dict[K, Slot[KeyOnly]] | None, key: K) -> bool:
    slot = None if slots is None else slots.get(key)
    return slot is not None and slot.row is not None
