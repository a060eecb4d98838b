"""Stores in memory and in SQLite, each of which drops places of the directory wrongly in one way."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from stacksaga_flask.store.contract import LAST_WINDOW, DeletePointer, Drop, Operation
from stacksaga_flask.store.sql.store import SqlStore
from tests.conformance.memory_harness import FaultyMemoryStore


class DropsThePointersItSees(FaultyMemoryStore):
    """Deletes the pointers of a bucket one by one, so that one still under way shows later."""

    def apply(self, *operations: Operation) -> None:
        for operation in operations:
            if isinstance(operation, Drop) and operation.tier == 5:
                path, at = operation.path, operation.timestamp
                super().apply(*(DeletePointer(path=path, transaction_id=p, timestamp=at) for p in self.pointers(path)))
            else:
                super().apply(operation)


class ForgetsTheHigherDrop(FaultyMemoryStore):
    """Lets the drop of a bucket that comes last decide what stays hidden."""

    def apply(self, *operations: Operation) -> None:
        super().apply(*operations)
        for operation in operations:
            if isinstance(operation, Drop) and operation.tier == 5:
                self._tables.dropped_at[operation.path] = operation.timestamp


class LetsARegistrationWinATie(FaultyMemoryStore):
    """Shows what was registered at the very timestamp of the drop."""

    def apply(self, *operations: Operation) -> None:
        super().apply(*(replace(o, timestamp=o.timestamp - 1) if isinstance(o, Drop) else o for o in operations))


class DropsEveryToken(FaultyMemoryStore):
    """Takes the instance id for the whole key of tier 3."""

    def apply(self, *operations: Operation) -> None:
        super().apply(*(each for operation in operations for each in self._of_every_token(operation)))

    def _of_every_token(self, operation: Operation) -> list[Operation]:
        if not isinstance(operation, Drop) or operation.tier != 3:
            return [operation]
        date, window, instance_id, _ = operation.path
        found = self.instances(date, window, minimum=-(2**63), maximum=2**63 - 1)
        return [replace(operation, instance_token=token) for token, name in found if name == instance_id]


class DropsInEveryScope(FaultyMemoryStore):
    """Leaves the scope out of the key of what it drops."""

    def apply(self, *operations: Operation) -> None:
        super().apply(*operations)
        for operation in operations:
            if isinstance(operation, Drop):
                for tables in self._scopes.values():
                    tables.drop(operation)


class LeavesOutTheMaximum(FaultyMemoryStore):
    """Reads the windows up to the last one and not with it."""

    def windows(self, date: str, *, minimum: int = 0, maximum: int = LAST_WINDOW) -> Iterator[int]:
        return super().windows(date, minimum=minimum, maximum=maximum - 1)


class KnowsWindowsOfFiveSecondsOnly(FaultyMemoryStore):
    """Has no window above those of a grid of five seconds, unless it is asked for them."""

    def windows(self, date: str, *, minimum: int = 0, maximum: int = 17_279) -> Iterator[int]:
        return super().windows(date, minimum=minimum, maximum=maximum)


class EmptiesItsBuckets(SqlStore):
    """Deletes a bucket whole, pointers that nobody has read included."""

    def apply(self, *operations: Operation) -> None:
        for operation in operations:
            if isinstance(operation, Drop) and operation.tier == 5:
                path = operation.path
                super().apply(*(DeletePointer(path=path, transaction_id=p, timestamp=0) for p in self.pointers(path)))
        super().apply(*operations)


class KeepsAnInstanceForAnother(SqlStore):
    """Looks below every instance of the window, not below the one that is dropped."""

    def apply(self, *operations: Operation) -> None:
        super().apply(*(operation for operation in operations if not self._keeps(operation)))

    def _keeps(self, operation: Operation) -> bool:
        if not isinstance(operation, Drop) or operation.tier != 3:
            return False
        date, window = operation.path.date, operation.path.window
        found = self.instances(date, window, minimum=-(2**63), maximum=2**63 - 1)
        return any(next(self.buckets(date, window, name), None) is not None for _, name in found)
