"""Stores that do nothing. No test of the suite may pass on one of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar
from uuid import UUID

from stacksaga_flask.clock import TimeSource
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
from tests.conformance.memory_harness import Faults

S = TypeVar("S", bound="DoesNothing")


class DoesNothing(Faults):
    """Keeps nothing and finds nothing, but fails when it is told to."""

    transactional = False
    fences_by_epoch = False
    first_in_first_out = False
    claims_are_applied = False

    def __init__(self, scope: Scope, time_source: TimeSource) -> None:
        self.scope = scope
        self._time_source = time_source

    def beside(self: S, scope: Scope) -> S:
        return type(self)(scope, self._time_source)

    def apply(self, *operations: Operation) -> None:
        self.faulty(lambda: None)

    def insert_marker(self, transaction_id: UUID, marker: Marker, *, ttl: int | None) -> MarkerOutcome:
        return self.faulty(lambda: MarkerOutcome(self.claims_are_applied, None))

    def replace_marker(
        self, transaction_id: UUID, marker: Marker, *, expected_state: str, ttl: int | None
    ) -> MarkerOutcome:
        return self.faulty(lambda: MarkerOutcome(self.claims_are_applied, None))

    def delete_marker(self, transaction_id: UUID, step_id: str, *, expected_state: str) -> MarkerOutcome:
        return self.faulty(lambda: MarkerOutcome(self.claims_are_applied, None))

    def record_grid(self, grid: Grid) -> Grid:
        return self.faulty(lambda: grid)

    def read(self, transaction_id: UUID) -> StoredTransaction | None:
        return None

    def tryouts(self, transaction_id: UUID) -> Iterator[Tryout]:
        return iter(())

    def frozen(self) -> Iterator[FrozenRow]:
        return iter(())

    def marker(self, transaction_id: UUID, step_id: str) -> Marker | None:
        return None

    def markers(self, transaction_id: UUID) -> tuple[Marker, ...]:
        return ()

    def days(self, year: int) -> Iterator[str]:
        return iter(())

    def windows(self, date: str, *, minimum: int = 0, maximum: int = LAST_WINDOW) -> Iterator[int]:
        return iter(())

    def instances(self, date: str, window: int, *, minimum: int, maximum: int) -> Iterator[tuple[int, str]]:
        return iter(())

    def buckets(self, date: str, window: int, instance_id: str) -> Iterator[int]:
        return iter(())

    def pointers(self, path: Path) -> Iterator[UUID]:
        return iter(())

    def has_pointer(self, path: Path, transaction_id: UUID) -> bool:
        return False

    def read_grid(self) -> Grid | None:
        return None

    def now(self) -> int:
        return 0

    def before_fork(self, timeout: float) -> None:
        """There is nothing to wait for."""

    def after_fork_in_parent(self) -> None:
        """Nor anything that waits."""

    def close(self) -> None:
        """There is nothing to close either."""


class DoesNothingAndSaysItDid(DoesNothing):
    """Answers that each conditional write was applied."""

    claims_are_applied = True


class DoesNothingByEpoch(DoesNothing):
    """Declares all that the other one does not, so that the other half of each difference is asserted."""

    transactional = True
    fences_by_epoch = True
    first_in_first_out = True


class DoesNothingByEpochAndSaysItDid(DoesNothingByEpoch):
    """Both."""

    claims_are_applied = True
