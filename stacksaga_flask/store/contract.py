"""What the engine asks of an event store: three narrow contracts, and the typed rows they speak of.

* `TransactionStore`: the transaction's row, its tryouts, frozen rows.
* `MarkerStore`: conditional writes on execution markers (claims, step leases, committed steps).
* `DirectoryStore`: the five tiers of the recovery directory.

Writes are operations handed to `Store.apply`. Times and timestamps are whole microseconds since 1970, UTC.
A store belongs to one `Scope` (region, cluster, service name), which is part of every key it writes. It may cut the
times in rows (not the timestamps of writes) to milliseconds.

What a write that was not acknowledged means is part of the contract:

* `StoreUnavailable`, `StoreRefused`, `Fenced`: nothing of the call was written.
* `OutcomeUnknown`: all, some or none of it may have been written, now or later.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import NamedTuple, Protocol, TypeAlias
from uuid import UUID

from msgspec import Struct

LAST_WINDOW = 86_399
"""No window of a day has a higher number."""


class RunningStatus(str, enum.Enum):
    """States of a transaction (design, section 2)."""

    PROCESSING = "PROCESSING"
    PROCESS_PAUSED = "PROCESS_PAUSED"
    PROCESS_WAITING = "PROCESS_WAITING"
    PROCESS_COMPLETED = "PROCESS_COMPLETED"
    REVERTING = "REVERTING"
    REVERT_PAUSED = "REVERT_PAUSED"
    REVERT_COMPLETED = "REVERT_COMPLETED"
    FROZEN = "FROZEN"

    @property
    def terminal(self) -> bool:
        """Whether no step runs after it (R9)."""
        return self in (RunningStatus.PROCESS_COMPLETED, RunningStatus.REVERT_COMPLETED)

    @property
    def running(self) -> bool:
        """Whether somebody is running the transaction now, or died while doing so."""
        return self in (RunningStatus.PROCESSING, RunningStatus.REVERTING)


class ExecutionType(str, enum.Enum):
    """Which side of a step a tryout ran."""

    PROCESS = "PROCESS"
    REVERT = "REVERT"


class TryoutStatus(str, enum.Enum):
    """How one attempt at one execution ended."""

    SUCCEEDED = "SUCCEEDED"
    REJECTED = "REJECTED"
    RETRYABLE = "RETRYABLE"
    FAILED = "FAILED"
    """An unexpected exception, which proves nothing about what was done (R8)."""


class ProtectionMode(str, enum.Enum):
    """Write protection of a domain (design, section 6)."""

    STRICT = "STRICT"
    RELAXED_WITH_DEDUP = "RELAXED_WITH_DEDUP"


class Scope(NamedTuple):
    """The part of every key that separates services from one another."""

    region: str
    cluster: str
    service_name: str


class Path(NamedTuple):
    """Where a pointer lies in the directory. An even bucket holds retry pointers, an odd one watchdogs."""

    date: str
    """The UTC date of the window, ``YYYY-MM-DD``."""
    window: int
    """Index of the day's slice; the column ``minute_of_day``."""
    instance_id: str
    bucket: int


class TransactionRow(Struct, frozen=True, kw_only=True):
    """The row of `es_transaction`. It is always written whole (R6, R13)."""

    transaction_id: UUID
    running_status: RunningStatus
    created_at: int
    updated_at: int
    payload: bytes
    watchdog: Path | None
    saga_name: str
    saga_version: int
    payload_version: int
    epoch: int = 0
    """How often the transaction was taken over; 0 is the starter's."""
    committed_steps: tuple[str, ...] = ()
    """The committed steps in the order in which they were; only this row says so (R13)."""
    possibly_done: bool = False
    """Whether the step after the last committed one was or may have been begun (R8)."""
    reverts: tuple[str, ...] = ()
    """The steps still to be reverted, the next one first."""
    retry: Path | None = None
    """The retry or timer pointer."""
    attempt: int = 0
    """How many attempts at the present step or revert failed so far."""
    start_hash: str | None = None
    """Hash of saga and payload of a keyed start (R17)."""
    protection_mode: ProtectionMode = ProtectionMode.RELAXED_WITH_DEDUP
    waited: int = 0
    """Microseconds spent waiting, which do not count towards the lifetime (R12)."""
    status_before_freezing: RunningStatus | None = None
    reason: str | None = None
    """Why the transaction is being compensated, was, or is frozen."""
    public_result: bytes | None = None
    """The saga's public result as JSON, once completed."""


class StoredTransaction(NamedTuple):
    """A transaction's row as read."""

    row: TransactionRow
    written_at: int
    """The timestamp of ``running_status``; 0 where the store fences by epoch."""


class Tryout(Struct, frozen=True, kw_only=True):
    """A row of `es_transaction_tryout`: one attempt at one execution."""

    tryout_index: int
    """``epoch * 10 000 + n`` (R6)."""
    executor: str
    """The step's name."""
    execution_type: ExecutionType
    status: TryoutStatus
    created_at: int
    finished_at: int
    instance_id: str
    error: str | None = None


class Marker(Struct, frozen=True, kw_only=True):
    """A row of `es_execution_markers`: a claim, a step lease or a committed step."""

    step_id: str
    execution_state: str
    result: bytes | None = None


class FrozenRow(Struct, frozen=True, kw_only=True):
    """A row of `es_frozen_transaction`."""

    transaction_id: UUID
    frozen_at: int
    reason: str


class Grid(Struct, frozen=True, kw_only=True):
    """What every process of one scope must agree on (R15)."""

    schema_version: int
    window_interval: int
    """Seconds."""
    clock_skew_margin: int
    """Microseconds (δ)."""


# -- operations ------------------------------------------------------------------------------------------------


class Expected(enum.Enum):
    """What a store that fences by epoch must find before it writes the row; others ignore it."""

    ABSENT = "no row"
    EPOCH = "a row of the expected epoch"
    EPOCH_OR_ABSENT = "a row of the expected epoch, or none"


class WriteTransaction(Struct, frozen=True, kw_only=True):
    """One batch over the four tables that share the transaction's partition key: all of it or nothing."""

    row: TransactionRow
    timestamp: int
    """Of each cell and each delete of the batch. Fixed when the right to write was checked (R13)."""
    expected: Expected = Expected.EPOCH
    expected_epoch: int = 0
    tryouts: tuple[Tryout, ...] = ()
    markers: tuple[Marker, ...] = ()
    """Plain markers of committed steps."""
    delete_markers: bool = False
    """Delete the marker partition, claims included (R9). A marker written by the same batch is deleted too. Where the
    highest timestamp wins, a claim whose ballot is above the timestamp survives (H1)."""
    frozen: FrozenRow | None = None
    delete_frozen: bool = False


class DeleteTransaction(Struct, frozen=True, kw_only=True):
    """Delete the row of a pointer that has none, so that a start still under way stays invisible (R2).

    A store that fences by epoch refuses with `Fenced` if there is a row.
    """

    transaction_id: UUID
    timestamp: int
    """The fence of the pointer that was found."""


class Register(Struct, frozen=True, kw_only=True):
    """Insert a pointer and the rows of the tiers above it."""

    path: Path
    transaction_id: UUID
    instance_token: int
    tiers: frozenset[int]
    """Which of the tiers 1 to 5 to write."""
    timestamp: int
    """Of tiers 2 to 5: ``open(w) - 2`` microseconds (R13)."""
    day_timestamp: int
    """Of tier 1: the start of the date (R13)."""


class DeletePointer(Struct, frozen=True, kw_only=True):
    """Delete one row of tier 5; absent is fine."""

    path: Path
    transaction_id: UUID
    timestamp: int
    """``open(w) - 1`` microseconds (R13). Ignored where the store fences by epoch."""


class IndexStart(Struct, frozen=True, kw_only=True):
    """Insert a row into the index of transactions by time of start (design, section 3)."""

    transaction_id: UUID
    date: str
    window: int
    shard: int
    saga_name: str
    created_at: int
    timestamp: int
    keep_for: int
    """Seconds until the row may be forgotten."""


class Drop(Struct, frozen=True, kw_only=True):
    """Delete what lies at one place of one tier of the directory (R5); absent is fine.

    Of tier 5 that is the whole bucket, of the others one row. A store that fences by epoch deletes a row of tiers 1
    to 4 only if nothing lies below it, and of tier 5 nothing: there pointers are deleted by the ids read (R13).
    """

    tier: int
    path: Path
    """The place; parts of it that lie below the tier are ignored."""
    instance_token: int = 0
    """Token of the path's instance, which is part of the key of tier 3."""
    timestamp: int
    """``open(w)`` for tiers 3 to 5, the wall clock for tiers 1 and 2 (R13). Ignored where epochs fence."""


Operation: TypeAlias = WriteTransaction | DeleteTransaction | Register | DeletePointer | Drop | IndexStart


class MarkerOutcome(NamedTuple):
    """The answer to a conditional write."""

    applied: bool
    current: Marker | None
    """The marker that stood in the way, if the write was not applied and there is one."""


# -- contracts -------------------------------------------------------------------------------------------------


class TransactionStore(Protocol):
    """Transactions with their tryouts and frozen rows."""

    def read(self, transaction_id: UUID) -> StoredTransaction | None:
        """The transaction's row, or None."""

    def tryouts(self, transaction_id: UUID) -> Iterator[Tryout]:
        """The transaction's tryouts by rising index, paged where the store pages."""

    def frozen(self) -> Iterator[FrozenRow]:
        """All frozen rows of the scope, paged where the store pages.

        Raises:
            CorruptRow: In the turn of a row that holds what no version of ours writes; the next call goes on after it.
        """


class MarkerStore(Protocol):
    """Conditional writes: of callers at the same time one is applied, and all learn which.

    A marker with a time to live is gone once it has passed, by the store's clock; it may go up to a second
    early. A call whose outcome is unknown raises `OutcomeUnknown`; `marker` then tells what became of it. One that
    raises `StoreUnavailable` or `StoreRefused` wrote nothing.
    """

    def insert_marker(self, transaction_id: UUID, marker: Marker, *, ttl: int | None) -> MarkerOutcome:
        """Insert the marker if there is none of its step id. `ttl` is in seconds; None keeps it."""

    def replace_marker(
        self, transaction_id: UUID, marker: Marker, *, expected_state: str, ttl: int | None
    ) -> MarkerOutcome:
        """Replace the marker if its execution state is the expected one."""

    def delete_marker(self, transaction_id: UUID, step_id: str, *, expected_state: str) -> MarkerOutcome:
        """Delete the marker if its execution state is the expected one."""

    def marker(self, transaction_id: UUID, step_id: str) -> Marker | None:
        """One marker, after every conditional write that was answered or is under way (LOCAL_SERIAL)."""

    def markers(self, transaction_id: UUID) -> tuple[Marker, ...]:
        """The whole marker partition by step id, in one read."""


class DirectoryStore(Protocol):
    """Reads of the recovery directory, one tier a method; paged where the store pages."""

    def days(self, year: int) -> Iterator[str]:
        """Tier 1: dates of the year, rising."""

    def windows(self, date: str, *, minimum: int = 0, maximum: int = LAST_WINDOW) -> Iterator[int]:
        """Tier 2: windows of the date from minimum to maximum, both included, rising."""

    def instances(self, date: str, window: int, *, minimum: int, maximum: int) -> Iterator[tuple[int, str]]:
        """Tier 3: tokens and instance ids whose token lies from minimum to maximum, both included, rising."""

    def buckets(self, date: str, window: int, instance_id: str) -> Iterator[int]:
        """Tier 4: buckets of the instance in the window, rising."""

    def pointers(self, path: Path) -> Iterator[UUID]:
        """Tier 5: transaction ids of the bucket, each once.

        By rising id (of ids of one UUID version), or in order of registration where `Store.first_in_first_out` says so.
        """

    def has_pointer(self, path: Path, transaction_id: UUID) -> bool:
        """Whether the bucket holds this pointer."""


class Store(TransactionStore, MarkerStore, DirectoryStore, Protocol):
    """An event store of one scope. May be used by many threads or greenlets at once, but by one process."""

    scope: Scope
    transactional: bool
    """Whether `apply` writes all of its operations or none. (Otherwise each operation is all or nothing.)"""
    fences_by_epoch: bool
    """Whether `Expected` decides which row write stands. (Otherwise the highest timestamp wins.)"""
    first_in_first_out: bool
    """Whether `pointers` come in the order in which they were registered."""

    def apply(self, *operations: Operation) -> None:
        """Write the operations, which may go out together, and return once all are acknowledged.

        Raises:
            StoreUnavailable, StoreRefused: Nothing was written.
            Fenced: A row was not as expected; nothing was written.
            OutcomeUnknown: All, some or none of it may have been written.
        """

    def now(self) -> int:
        """The store's clock (R14)."""

    def read_grid(self) -> Grid | None:
        """What `record_grid` wrote, or None."""

    def record_grid(self, grid: Grid) -> Grid:
        """Record the grid of the scope unless one is there, and return the one that is (R15).

        Raises:
            StoreUnavailable, StoreRefused: Nothing was written.
            OutcomeUnknown: It may have been recorded; asking again does no harm.
        """

    def before_fork(self, timeout: float) -> None:
        """Come to rest before the process forks, so that a child inherits nothing that is open (R2, R11).

        Where there are connections: wait for the calls under way, give back every connection, and let new calls wait
        until `after_fork_in_parent`. A child uses another store object, and never calls this one.

        Args:
            timeout: Seconds to wait for the calls under way.

        Raises:
            StoreUnavailable: They take longer. All is as before: calls go on, and connections are open.
        """

    def after_fork_in_parent(self) -> None:
        """Let calls go on after `before_fork`, whether or not there was a fork; connections are opened when needed."""

    def close(self) -> None:
        """Give back connections. Closing twice is fine."""
