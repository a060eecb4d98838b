"""One process's connection to the store, over which the world decides what becomes of each call."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from stacksaga_flask.clock import SECOND
from stacksaga_flask.errors import OutcomeUnknown, StoreUnavailable
from stacksaga_flask.store.contract import (
    LAST_WINDOW,
    FrozenRow,
    Grid,
    IndexStart,
    Marker,
    MarkerOutcome,
    Operation,
    Path,
    Scope,
    StoredTransaction,
    Tryout,
)
from stacksaga_flask.store.memory import MemoryStore
from tests.simulation.network import Call, Fate, described, statements, told, transaction_of

if TYPE_CHECKING:
    from tests.simulation.processes import Process


class NetworkedStore:
    """One process's connection to the memory store."""

    transactional = False
    fences_by_epoch = False
    first_in_first_out = False

    def __init__(self, process: Process, inner: MemoryStore) -> None:
        self.scope: Scope = inner.scope
        self._process = process
        self._inner = inner
        self._timeout = process.engine_settings.request_timeout

    def apply(self, *operations: Operation) -> None:
        """Send the operations and wait until all are acknowledged."""
        operations = tuple(one for one in operations if not isinstance(one, IndexStart))
        name = " + ".join(described(operation) for operation in operations)
        ids = {one for operation in operations if (one := transaction_of(operation)) is not None}
        call = Call(name, "write", ids.pop() if len(ids) == 1 else None)
        process, world = self._process, self._process.world
        process.point(call.name)
        task = world.scheduler.task()
        fate = world.fate(process, call)
        for operation in operations:
            world.watch.sent(process, task, operation)
        pieces = [piece for operation in operations for piece in statements(operation)]
        if fate.refused:
            pieces = []
        if fate.parts:
            for number, piece in enumerate(pieces):
                self._land(fate.parts[number % len(fate.parts)], (piece,))
        else:
            self._land(fate.arrives, tuple(pieces))
        self._answer(call, fate)
        for operation in operations:
            world.watch.acknowledged(process, task, operation)

    def _land(self, after: int | None, pieces: tuple[Operation, ...]) -> None:
        world, process = self._process.world, self._process
        if after is None or not pieces:
            return
        task = world.scheduler.task()
        world.under_way += 1

        def arrive() -> None:
            world.under_way -= 1
            if after > self._timeout:
                world.trace.add(process, f"{told(pieces, world)} lands, {after / SECOND:.1f} s after it was sent")
            for piece in pieces:
                world.watch.lands(process, task, piece, partial(self._inner.apply, piece))

        world.scheduler.at(world.scheduler.now + after, arrive)

    def _ask(self, call: Call, question: Callable[[], Any]) -> Any:
        """Let the store do something at the time at which the call arrives, and return what it answered."""
        process, world = self._process, self._process.world
        process.point(call.name)
        world.watch.asked(process, world.scheduler.task(), call.name)
        fate = world.fate(process, call)
        answers: list[Any] = []

        def arrive() -> None:
            answers.append(question())

        if fate.arrives is not None and not fate.refused:
            world.scheduler.at(world.scheduler.now + fate.arrives, arrive)
        self._answer(call, fate)
        return answers[0]

    def _answer(self, call: Call, fate: Fate) -> None:
        """Wait for the answer, or for the time-out."""
        world, process = self._process.world, self._process
        task = world.scheduler.task()
        began = world.scheduler.now
        in_time = fate.answers is not None and fate.answers <= self._timeout
        world.scheduler.sleep(fate.answers if in_time and fate.answers is not None else self._timeout)
        what = call.name if call.transaction_id is None else f"{call.name} of {world.short(call.transaction_id)}"
        if fate.refused:
            process.note(f"{what}: the store is away", fault=True)
            process.point(f"{call.name} failed")
            raise StoreUnavailable("the store is away")
        if in_time and not self._gave_up(began):
            process.note(what)
            task.answered_at = world.scheduler.now
            process.point(f"{call.name} answered")
            return
        if call.kind == "read":
            process.note(f"{what}: no answer", fault=True)
            process.point(f"{call.name} failed")
            raise StoreUnavailable("the store did not answer")
        process.note(f"{what}: unknown", fault=True)
        process.point(f"{call.name} failed")
        raise OutcomeUnknown("the store did not acknowledge it in time")

    def _gave_up(self, began: int) -> bool:
        """After a stop either the answer in the socket comes first, or the time-out does."""
        world = self._process.world
        return world.scheduler.now - began > self._timeout and world.random.random() < 0.3

    # -- transactions ------------------------------------------------------------------------------------------

    def read(self, transaction_id: UUID) -> StoredTransaction | None:
        """The transaction's row, or None."""
        found: StoredTransaction | None = self._ask(
            Call("read row", "read", transaction_id), lambda: self._inner.read(transaction_id)
        )
        return found

    def tryouts(self, transaction_id: UUID) -> Iterator[Tryout]:
        """The transaction's tryouts by rising index."""
        return self._list(Call("read tryouts", "read", transaction_id), lambda: self._inner.tryouts(transaction_id))

    def frozen(self) -> Iterator[FrozenRow]:
        """All frozen rows of the scope."""
        return self._list(Call("read frozen", "read", None), self._inner.frozen)

    # -- markers -----------------------------------------------------------------------------------------------

    def insert_marker(self, transaction_id: UUID, marker: Marker, *, ttl: int | None) -> MarkerOutcome:
        """Insert the marker if none of its step id is seen."""
        return self._conditional(
            f"take {marker.step_id}", transaction_id, lambda: self._inner.insert_marker(transaction_id, marker, ttl=ttl)
        )

    def replace_marker(
        self, transaction_id: UUID, marker: Marker, *, expected_state: str, ttl: int | None
    ) -> MarkerOutcome:
        """Replace the marker if its execution state is the expected one."""
        return self._conditional(
            f"renew {marker.step_id}",
            transaction_id,
            lambda: self._inner.replace_marker(transaction_id, marker, expected_state=expected_state, ttl=ttl),
        )

    def delete_marker(self, transaction_id: UUID, step_id: str, *, expected_state: str) -> MarkerOutcome:
        """Delete the marker if its execution state is the expected one."""
        return self._conditional(
            f"give back {step_id}",
            transaction_id,
            lambda: self._inner.delete_marker(transaction_id, step_id, expected_state=expected_state),
        )

    def _conditional(self, name: str, transaction_id: UUID, ask: Callable[[], MarkerOutcome]) -> MarkerOutcome:
        outcome: MarkerOutcome = self._ask(Call(name, "conditional", transaction_id), ask)
        if not outcome.applied:
            self._process.note(f"{name}: not applied")
        return outcome

    def marker(self, transaction_id: UUID, step_id: str) -> Marker | None:
        """One marker, after every conditional write that was answered or is under way."""
        found: Marker | None = self._ask(
            Call(f"read {step_id}", "read", transaction_id), lambda: self._inner.marker(transaction_id, step_id)
        )
        return found

    def markers(self, transaction_id: UUID) -> tuple[Marker, ...]:
        """The whole marker partition by step id."""
        return tuple(
            self._list(Call("read markers", "read", transaction_id), lambda: iter(self._inner.markers(transaction_id)))
        )

    # -- directory ---------------------------------------------------------------------------------------------

    def days(self, year: int) -> Iterator[str]:
        """Tier 1."""
        return self._list(Call("read tier 1", "read", None), lambda: self._inner.days(year))

    def windows(self, date: str, *, minimum: int = 0, maximum: int = LAST_WINDOW) -> Iterator[int]:
        """Tier 2."""
        return self._list(
            Call("read tier 2", "read", None), lambda: self._inner.windows(date, minimum=minimum, maximum=maximum)
        )

    def instances(self, date: str, window: int, *, minimum: int, maximum: int) -> Iterator[tuple[int, str]]:
        """Tier 3."""
        return self._list(
            Call("read tier 3", "read", None),
            lambda: self._inner.instances(date, window, minimum=minimum, maximum=maximum),
        )

    def buckets(self, date: str, window: int, instance_id: str) -> Iterator[int]:
        """Tier 4."""
        return self._list(Call("read tier 4", "read", None), lambda: self._inner.buckets(date, window, instance_id))

    def pointers(self, path: Path) -> Iterator[UUID]:
        """Tier 5."""
        return self._list(Call("read tier 5", "read", None), lambda: self._inner.pointers(path))

    def has_pointer(self, path: Path, transaction_id: UUID) -> bool:
        """Whether the bucket holds this pointer."""
        return bool(
            self._ask(
                Call("read pointer", "read", transaction_id), lambda: self._inner.has_pointer(path, transaction_id)
            )
        )

    def _list(self, call: Call, question: Callable[[], Iterator[Any]]) -> Iterator[Any]:
        """Asked when the first one is wanted, as where a store pages."""
        yield from self._ask(call, lambda: list(question()))

    # -- settings ----------------------------------------------------------------------------------------------

    def now(self) -> int:
        """The store's clock."""
        now: int = self._ask(Call("read clock", "read", None), self._inner.now)
        return now

    def read_grid(self) -> Grid | None:
        """The grid, which no fault touches: a process that cannot read it does not start."""
        return self._inner.read_grid()

    def record_grid(self, grid: Grid) -> Grid:
        """Record the grid."""
        return self._inner.record_grid(grid)

    def before_fork(self, timeout: float) -> None:
        """No simulated process forks."""

    def after_fork_in_parent(self) -> None:
        """No simulated process forks."""

    def close(self) -> None:
        """Nothing to give back."""
