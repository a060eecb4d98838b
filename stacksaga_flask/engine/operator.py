"""What a person does by hand: look at a transaction, list, retry, restore. No framework is needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from stacksaga_flask.directory.writer import PointerKind
from stacksaga_flask.engine.claims import CLAIM
from stacksaga_flask.engine.engine import Engine
from stacksaga_flask.engine.listing import Listed, ListedFrozen, walk_frozen, walk_transactions
from stacksaga_flask.engine.node import Node
from stacksaga_flask.engine.reinvoke import CLAIMED, ITS_OWNERS, NO_ROW, STANDS, Found, Reinvocation
from stacksaga_flask.engine.restore import Answer, Verdict, no_such_transaction, restore
from stacksaga_flask.errors import ClockSkew, NotStarted, RightEnded, StoreError
from stacksaga_flask.store.contract import Marker, Path, RunningStatus, TransactionRow, Tryout

_IN_FLIGHT = (RunningStatus.PROCESSING, RunningStatus.REVERTING, RunningStatus.PROCESS_WAITING)
_PAUSED = (RunningStatus.PROCESS_PAUSED, RunningStatus.REVERT_PAUSED)


class NamedPointer(NamedTuple):
    """A pointer that a row names.

    Attributes:
        kind: Retry pointer or watchdog.
        path: Where it lies.
        opens: When its window opens, in microseconds.
        in_directory: Whether it is there.
    """

    kind: PointerKind
    path: Path
    opens: int
    in_directory: bool


class Shown(NamedTuple):
    """All that is recorded of one transaction but its payload.

    Attributes:
        row: Its row.
        pointers: Those that the row names.
        markers: Markers of committed steps.
        claimed_by: The instance that holds a claim; None if nobody does.
        tryouts: Every attempt, in order.
        next_try: When a retry node looks at it next, in microseconds; None if none will.
    """

    row: TransactionRow
    pointers: tuple[NamedPointer, ...]
    markers: tuple[Marker, ...]
    claimed_by: str | None
    tryouts: tuple[Tryout, ...]
    next_try: int | None


class Operator:
    """A person's view of one service, and what a person may do.

    Args:
        engine: The service's engine; steps of a retry run in its surroundings.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def show(self, transaction_id: UUID) -> Shown | None:
        """The transaction as it is recorded now, or None.

        Raises:
            StoreError: The store could not be asked.
        """
        node = self._engine.node()
        stored = node.store.read(transaction_id)
        if stored is None:
            return None
        pointers = tuple(_named_pointers(node, stored.row))
        markers = node.store.markers(transaction_id)
        claims = [marker for marker in markers if marker.step_id == CLAIM]
        return Shown(
            row=stored.row,
            pointers=pointers,
            markers=tuple(marker for marker in markers if marker.step_id != CLAIM),
            claimed_by=claims[0].execution_state.partition("/")[0] if claims else None,
            tryouts=tuple(node.store.tryouts(transaction_id)),
            next_try=next_try(node, stored.row, [pointer.path for pointer in pointers if pointer.in_directory]),
        )

    def listed(self) -> Iterator[Listed]:
        """Every transaction that is neither terminal nor frozen, also those whose row cannot be read.

        Raises:
            StoreError: The store could not be asked.
        """
        return walk_transactions(self._engine.node())

    def in_flight(self) -> Iterator[Listed]:
        """Those that run, died while they ran, or wait. Errors are those of `listed`."""
        return (one for one in self.listed() if is_in_flight(one))

    def paused(self) -> Iterator[Listed]:
        """Those that are paused. Errors are those of `listed`."""
        return (one for one in self.listed() if is_paused(one))

    def frozen(self, *, reason: str | None = None, saga_name: str | None = None) -> Iterator[ListedFrozen]:
        """Those that are frozen. Arguments and errors are those of `walk_frozen`."""
        return walk_frozen(self._engine.node(), reason=reason, saga_name=saga_name)

    def next_try(self, row: TransactionRow) -> int | None:
        """When a retry node looks at it next, in microseconds, by the pointers that its row names."""
        return next_try(self._engine.node(), row, [path for path in (row.retry, row.watchdog) if path is not None])

    def restore(self, transaction_id: UUID) -> Answer:
        """Let a frozen transaction go on; see `stacksaga_flask.engine.restore`.

        Raises:
            StoreError: The store could not be opened.
        """
        return restore(self._engine.node(), transaction_id)

    def retry(self, transaction_id: UUID) -> Answer:
        """Try a paused transaction now, in this process.

        Raises:
            StoreError: The store could not be asked, and nothing was done.
        """
        node = self._engine.node()
        stored = node.store.read(transaction_id)
        refusal = no_such_transaction(node) if stored is None else _why_not_tried(stored.row)
        if refusal is not None:
            return refusal
        try:
            reinvocation = self._engine.reinvoke(transaction_id, Found())
        except NotStarted as error:
            return Answer(Verdict.FAILED, str(error))
        except (StoreError, RightEnded, ClockSkew) as error:
            return Answer(Verdict.UNKNOWN, f"it is not known how it stands: {error}. Look at it again")
        return self._told_of(transaction_id, reinvocation)

    def _told_of(self, transaction_id: UUID, reinvocation: Reinvocation) -> Answer:
        if reinvocation.outcome == NO_ROW:
            return no_such_transaction(self._engine.node())
        if reinvocation.outcome == CLAIMED:
            return Answer(Verdict.REFUSED, "another process holds its claim and goes on with it: look at it again")
        if reinvocation.outcome == ITS_OWNERS:
            return Answer(
                Verdict.REFUSED,
                "it is running, and its owner may be alive: it was left to it. If the owner is dead, a retry node "
                "goes on with it once its watchdog's window has opened",
            )
        if not reinvocation.durable:
            return Answer(
                Verdict.UNKNOWN,
                "it was tried, but its last result could not be recorded: its watchdog leads a retry node to it",
            )
        if reinvocation.outcome in (STANDS[status] for status in RunningStatus if status.terminal):
            return Answer(Verdict.DONE, reinvocation.outcome)
        return Answer(Verdict.FAILED, f"it is {reinvocation.outcome}: {self._why(transaction_id)}")

    def _why(self, transaction_id: UUID) -> str:
        """Why it is frozen, or what its last attempt says."""
        stored = self._engine.node().store.read(transaction_id)
        if stored is not None and stored.row.running_status is RunningStatus.FROZEN:
            return stored.row.reason or "no reason was given"
        errors = [f"{tryout.executor!r} failed: {tryout.error}" for tryout in self._engine.tryouts(transaction_id)]
        return errors[-1] if errors else "nothing was attempted"


def is_in_flight(listed: Listed) -> bool:
    """Whether it runs, died while it ran, or waits."""
    return listed.row is not None and listed.row.running_status in _IN_FLIGHT


def is_paused(listed: Listed) -> bool:
    """Whether it is paused, forward or backward."""
    return listed.row is not None and listed.row.running_status in _PAUSED


def next_try(node: Node, row: TransactionRow, pointers: list[Path]) -> int | None:
    """When a retry node looks at a transaction next, in microseconds: once the first of its pointers is sealed.

    Args:
        node: This process.
        row: The transaction.
        pointers: Those of the pointers that it names which count.
    """
    if row.running_status.terminal or row.running_status is RunningStatus.FROZEN:
        return None
    # While it runs the row still names the retry pointer that it was found by.
    in_turn = (row.watchdog,) if row.running_status.running else (row.retry, row.watchdog)
    for path in in_turn:
        if path is not None and path in pointers:
            return node.grid.opens(path) + node.settings.seal_delay
    return None


def _named_pointers(node: Node, row: TransactionRow) -> Iterator[NamedPointer]:
    for kind, path in ((PointerKind.RETRY, row.retry), (PointerKind.WATCHDOG, row.watchdog)):
        if path is not None:
            there = node.store.has_pointer(path, row.transaction_id)
            yield NamedPointer(kind, path, node.grid.opens(path), there)


def _why_not_tried(row: TransactionRow) -> Answer | None:
    """Why a retry makes no sense in this state; None if it may."""
    status = row.running_status
    if status.terminal:
        return Answer(Verdict.NOTHING_TO_DO, f"it has ended: it is {status.value}")
    if status is RunningStatus.FROZEN:
        return Answer(Verdict.REFUSED, f"it is frozen: restore it first. Why it is frozen: {row.reason}")
    if status is RunningStatus.PROCESS_WAITING:
        return Answer(Verdict.REFUSED, "it waits for its event or timer: there is nothing to try before that")
    return None
