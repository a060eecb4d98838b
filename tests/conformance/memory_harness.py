"""A harness for stores in memory, right and wrong ones."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import ParamSpec, Protocol, TypeVar, cast
from uuid import UUID

from stacksaga_flask.clock import ManualTime, TimeSource
from stacksaga_flask.errors import OutcomeUnknown, StoreUnavailable
from stacksaga_flask.store.contract import Grid, Marker, MarkerOutcome, Operation, Scope, Store
from stacksaga_flask.store.memory import MemoryStore
from stacksaga_flask.testing.conformance import StoreHarness

P = ParamSpec("P")
R = TypeVar("R")


class Fault(enum.Enum):
    """What becomes of a write."""

    LOST = "applied, and its acknowledgement is lost"
    REFUSED = "not applied"


class Faults:
    """A part of stores whose next write may fail."""

    next_fault: Fault | None = None

    def faulty(self, write: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Write, or fail as was asked for."""
        fault, self.next_fault = self.next_fault, None
        if fault is Fault.REFUSED:
            raise StoreUnavailable
        answer = write(*args, **kwargs)
        if fault is Fault.LOST:
            raise OutcomeUnknown
        return answer


class FaultyMemoryStore(Faults, MemoryStore):
    """The memory store with faults."""

    def apply(self, *operations: Operation) -> None:
        self.faulty(super().apply, *operations)

    def insert_marker(self, transaction_id: UUID, marker: Marker, *, ttl: int | None) -> MarkerOutcome:
        return self.faulty(super().insert_marker, transaction_id, marker, ttl=ttl)

    def replace_marker(
        self, transaction_id: UUID, marker: Marker, *, expected_state: str, ttl: int | None
    ) -> MarkerOutcome:
        return self.faulty(super().replace_marker, transaction_id, marker, expected_state=expected_state, ttl=ttl)

    def delete_marker(self, transaction_id: UUID, step_id: str, *, expected_state: str) -> MarkerOutcome:
        return self.faulty(super().delete_marker, transaction_id, step_id, expected_state=expected_state)

    def record_grid(self, grid: Grid) -> Grid:
        return self.faulty(super().record_grid, grid)


class FaultyStore(Store, Protocol):
    """What the harness can open and break."""

    next_fault: Fault | None

    def beside(self, scope: Scope) -> FaultyStore:
        """Another store object on the same data."""


class MemoryHarness(StoreHarness):
    """One set of data in memory, on a clock that stands still until it is moved."""

    def __init__(
        self, kind: Callable[[Scope, TimeSource], FaultyStore] = FaultyMemoryStore, *, more_than_a_page: int = 1200
    ) -> None:
        self.more_than_a_page = more_than_a_page
        self._time = ManualTime()
        self._first = kind(Scope("", "", ""), self._time)

    def open(self, scope: Scope) -> Store:
        return self._first.beside(scope)

    @contextmanager
    def _with(self, store: Store, fault: Fault) -> Iterator[None]:
        faulty = cast(FaultyStore, store)
        faulty.next_fault = fault
        yield
        faulty.next_fault = None

    def lose_acknowledgement(self, store: Store) -> AbstractContextManager[None]:
        return self._with(store, Fault.LOST)

    def refuse(self, store: Store) -> AbstractContextManager[None]:
        return self._with(store, Fault.REFUSED)

    def advance(self, microseconds: int) -> None:
        self._time.advance(microseconds)

    def now(self) -> int:
        return self._time.wall()
