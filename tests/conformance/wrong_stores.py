"""Stores in memory, each of which is wrong in one way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import ParamSpec, TypeVar
from uuid import UUID

from msgspec.structs import replace

from stacksaga_flask.clock import SystemTime
from stacksaga_flask.errors import OutcomeUnknown, StoreUnavailable
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
    StoredTransaction,
    Tryout,
    WriteTransaction,
)
from tests.conformance.memory_harness import FaultyMemoryStore

P = ParamSpec("P")
R = TypeVar("R")
PAGE = 20


class DropsATier(FaultyMemoryStore):
    """Does not write tier 3."""

    def apply(self, *operations: Operation) -> None:
        super().apply(
            *(replace(o, tiers=o.tiers - {3}) if isinstance(o, Register) else o for o in operations),
        )


class DropsNothing(FaultyMemoryStore):
    """Keeps every place of the directory for ever."""

    def apply(self, *operations: Operation) -> None:
        super().apply(*(o for o in operations if not isinstance(o, Drop)))


class DropsByTheClock(FaultyMemoryStore):
    """Stamps drops when they are sent, above whatever is written later."""

    def apply(self, *operations: Operation) -> None:
        super().apply(*(replace(o, timestamp=2**62) if isinstance(o, Drop) else o for o in operations))


class ReadsTheWholeDay(FaultyMemoryStore):
    """Reads every window of a date, whatever the range."""

    def windows(self, date: str, *, minimum: int = 0, maximum: int = LAST_WINDOW) -> Iterator[int]:
        return super().windows(date)


class ForgetsTheFence(FaultyMemoryStore):
    """Deletes no row, so a start still under way can show later."""

    def apply(self, *operations: Operation) -> None:
        super().apply(*(o for o in operations if not isinstance(o, DeleteTransaction)))


class LetsTheLaterWriteWin(FaultyMemoryStore):
    """Stamps each write when it is sent, as a server-side timestamp generator does."""

    _stamps = count(1_600_000_000_000_000)

    def apply(self, *operations: Operation) -> None:
        stamp = next(self._stamps)
        stamped: list[Operation] = []
        for operation in operations:
            if isinstance(operation, Register):
                stamped.append(replace(operation, timestamp=stamp, day_timestamp=stamp))
            else:
                stamped.append(replace(operation, timestamp=stamp))
        super().apply(*stamped)


class LetsTheLaterDeletionWin(FaultyMemoryStore):
    """Stamps deletions of pointers when they are sent, above every insert."""

    def apply(self, *operations: Operation) -> None:
        super().apply(*(replace(o, timestamp=2**62) if isinstance(o, DeletePointer) else o for o in operations))


class ReturnsOnePage(FaultyMemoryStore):
    """Stops after the first page of each read."""

    def tryouts(self, transaction_id: UUID) -> Iterator[Tryout]:
        return islice(super().tryouts(transaction_id), PAGE)

    def frozen(self) -> Iterator[FrozenRow]:
        return islice(super().frozen(), PAGE)

    def days(self, year: int) -> Iterator[str]:
        return islice(super().days(year), PAGE)

    def windows(self, date: str, *, minimum: int = 0, maximum: int = LAST_WINDOW) -> Iterator[int]:
        return islice(super().windows(date, minimum=minimum, maximum=maximum), PAGE)

    def instances(self, date: str, window: int, *, minimum: int, maximum: int) -> Iterator[tuple[int, str]]:
        return islice(super().instances(date, window, minimum=minimum, maximum=maximum), PAGE)

    def buckets(self, date: str, window: int, instance_id: str) -> Iterator[int]:
        return islice(super().buckets(date, window, instance_id), PAGE)

    def pointers(self, path: Path) -> Iterator[UUID]:
        return islice(super().pointers(path), PAGE)


class TakesUnknownForFailure(FaultyMemoryStore):
    """Says that nothing was written when it does not know."""

    def faulty(self, write: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return super().faulty(write, *args, **kwargs)
        except OutcomeUnknown as unknown:
            raise StoreUnavailable from unknown


class TakesUnknownForSuccess(FaultyMemoryStore):
    """Says nothing when it does not know."""

    def apply(self, *operations: Operation) -> None:
        try:
            super().apply(*operations)
        except OutcomeUnknown:
            return


class TakesRefusalForUnknown(FaultyMemoryStore):
    """Says that it does not know when nothing was written."""

    def faulty(self, write: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return super().faulty(write, *args, **kwargs)
        except StoreUnavailable as refused:
            raise OutcomeUnknown from refused


class LooksBeforeItClaims(FaultyMemoryStore):
    """Reads, then writes plainly: callers at the same time are all told that they have the claim."""

    def insert_marker(self, transaction_id: UUID, marker: Marker, *, ttl: int | None) -> MarkerOutcome:
        seen = self.marker(transaction_id, marker.step_id)
        if seen is not None:
            return MarkerOutcome(False, seen)
        SystemTime().sleep(20_000)
        if (now_there := self.marker(transaction_id, marker.step_id)) is not None:
            state = now_there.execution_state
            self.delete_marker(transaction_id, marker.step_id, expected_state=state)
        super().insert_marker(transaction_id, marker, ttl=ttl)
        return MarkerOutcome(True, None)


class ReplacesWhateverIsThere(FaultyMemoryStore):
    """Ignores the expected state, so any holder may commit another's lease."""

    def replace_marker(
        self, transaction_id: UUID, marker: Marker, *, expected_state: str, ttl: int | None
    ) -> MarkerOutcome:
        seen = self.marker(transaction_id, marker.step_id)
        state = expected_state if seen is None else seen.execution_state
        return super().replace_marker(transaction_id, marker, expected_state=state, ttl=ttl)


class ForgetsTimesToLive(FaultyMemoryStore):
    """A dead holder's claim stays for ever."""

    def insert_marker(self, transaction_id: UUID, marker: Marker, *, ttl: int | None) -> MarkerOutcome:
        return super().insert_marker(transaction_id, marker, ttl=None)


class RenewsNothing(FaultyMemoryStore):
    """A replaced marker keeps a second of life, whatever was asked for."""

    def replace_marker(
        self, transaction_id: UUID, marker: Marker, *, expected_state: str, ttl: int | None
    ) -> MarkerOutcome:
        return super().replace_marker(transaction_id, marker, expected_state=expected_state, ttl=1)


class SplitsABatch(FaultyMemoryStore):
    """Writes the row of a batch first and the rest after it."""

    def apply(self, *operations: Operation) -> None:
        for operation in operations:
            if isinstance(operation, WriteTransaction):
                plain = WriteTransaction(row=operation.row, timestamp=operation.timestamp)
                super().apply(plain)
            super().apply(operation)


class WithdrawsALosingBatch(FaultyMemoryStore):
    """Judges a batch by its row, which no store with timestamps can do."""

    def apply(self, *operations: Operation) -> None:
        super().apply(*(o for o in operations if not self._loses(o)))

    def _loses(self, operation: Operation) -> bool:
        if not isinstance(operation, WriteTransaction):
            return False
        stored = self.read(operation.row.transaction_id)
        return stored is not None and stored.written_at > operation.timestamp


class LeavesClaimsBehind(FaultyMemoryStore):
    """Does not delete the markers with the terminal status."""

    def apply(self, *operations: Operation) -> None:
        super().apply(*(replace(o, delete_markers=False) if isinstance(o, WriteTransaction) else o for o in operations))


class ForgetsAField(FaultyMemoryStore):
    """Has no column for the time spent waiting."""

    def read(self, transaction_id: UUID) -> StoredTransaction | None:
        stored = super().read(transaction_id)
        return None if stored is None else stored._replace(row=replace(stored.row, waited=0))


class RecordsTheLastGrid(FaultyMemoryStore):
    """Tells each process the grid that it came with."""

    def record_grid(self, grid: Grid) -> Grid:
        super().record_grid(grid)
        return grid
