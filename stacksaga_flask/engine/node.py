"""What one process needs to run transactions. A fork needs another one (R11)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from uuid import UUID

from stacksaga_flask.clock import SECOND, Clock, TimeSource
from stacksaga_flask.config import Settings
from stacksaga_flask.directory.windows import WindowGrid
from stacksaga_flask.directory.writer import DirectoryWriter
from stacksaga_flask.engine.claims import Claims
from stacksaga_flask.engine.execute import Executor, Surroundings
from stacksaga_flask.engine.in_flight import InFlight
from stacksaga_flask.engine.kept import Kept
from stacksaga_flask.engine.lock_file import LivenessFile, open_lock_file
from stacksaga_flask.errors import SchemaMismatch, SchemaMissing
from stacksaga_flask.identity import new_instance_id
from stacksaga_flask.store.contract import RunningStatus, Store, TransactionRow, Tryout

logger = logging.getLogger("stacksaga_flask")


@dataclass(frozen=True)
class StateChange:
    """A change of state, told once it is recorded.

    Attributes:
        transaction_id: The transaction.
        saga_name: Its saga.
        before: The status before; None for a transaction that was just started.
        after: The status now.
        row: The row as recorded.
    """

    transaction_id: UUID
    saga_name: str
    before: RunningStatus | None
    after: RunningStatus
    row: TransactionRow


class Observer:
    """Is told what was recorded. The extension sends signals; by default nobody listens."""

    def state_changed(self, change: StateChange) -> None:
        """A status was recorded that differs from the one before."""

    def step_attempted(self, row: TransactionRow, tryout: Tryout) -> None:
        """A tryout was recorded."""


@dataclass(frozen=True)
class Node:
    """The parts that one process runs transactions with."""

    settings: Settings
    store: Store
    clock: Clock
    grid: WindowGrid
    instance_id: str
    writer: DirectoryWriter
    claims: Claims
    executor: Executor
    observer: Observer
    in_flight: InFlight
    kept: Kept
    lock_file: LivenessFile

    @property
    def write_timeout(self) -> int:
        """How long a write may take, in microseconds."""
        return self.settings.request_timeout

    @contextmanager
    def running(self, transaction_id: UUID) -> Iterator[None]:
        """Tell the lock file that this process runs the transaction, so that its death is noticed at once (R18)."""
        self.lock_file.started(transaction_id)
        try:
            yield
        finally:
            if transaction_id not in self.kept:
                self.lock_file.ended(transaction_id)

    def recorded(self, before: RunningStatus | None, row: TransactionRow, tryouts: tuple[Tryout, ...] = ()) -> None:
        """Tell the observer what was acknowledged.

        An observer that fails must not leave a transaction unfinished: its error is logged with the transaction id.
        """
        for tryout in tryouts:
            self._tell(row, partial(self.observer.step_attempted, row, tryout))
        if before is row.running_status:
            return
        if row.running_status is RunningStatus.FROZEN:
            logger.error("transaction_id=%s of %s is frozen: %s", row.transaction_id, row.saga_name, row.reason)
        change = StateChange(row.transaction_id, row.saga_name, before, row.running_status, row)
        self._tell(row, partial(self.observer.state_changed, change))

    def _tell(self, row: TransactionRow, told: Callable[[], None]) -> None:
        try:
            told()
        except Exception:
            logger.exception("a receiver of a signal failed; transaction_id=%s goes on", row.transaction_id)


def open_node(
    settings: Settings,
    open_store: Callable[[], Store],
    time_source: TimeSource,
    surroundings: Surroundings,
    observer: Observer,
    in_flight: InFlight,
    *,
    in_background: bool = True,
) -> Node:
    """Connect to the store, check the grid (R15) and take a new identity (R11).

    Raises:
        StoreError: The store cannot be used; see its message.
    """
    store = open_store()
    try:
        check_grid(settings, store)
    except BaseException:
        store.close()
        raise
    clock = Clock(time_source, skew_margin=settings.clock_skew_margin)
    grid = WindowGrid(interval=settings.window_interval // SECOND, skew_margin=settings.clock_skew_margin)
    instance_id = new_instance_id()
    return Node(
        settings=settings,
        store=store,
        clock=clock,
        grid=grid,
        instance_id=instance_id,
        writer=DirectoryWriter(grid, instance_id, bucket_size=settings.bucket_size),
        claims=Claims(store, clock, instance_id, ttl=settings.claim_ttl, skew_margin=settings.clock_skew_margin),
        executor=Executor(clock, surroundings, step_budget=settings.step_budget, payload_limit=settings.payload_limit),
        observer=observer,
        in_flight=in_flight,
        kept=Kept(in_background=in_background),
        lock_file=open_lock_file(settings, instance_id),
    )


def check_grid(settings: Settings, store: Store) -> None:
    """Refuse a window interval or δ other than the recorded ones (R15).

    Raises:
        SchemaMismatch: They differ.
        SchemaMissing: Nothing is recorded, and the store is not the embedded one.
    """
    ours = settings.grid
    recorded = store.read_grid()
    if recorded is None:
        if not settings.embedded:
            raise SchemaMissing(f"{store.scope} is not set up: run `flask stacksaga init-schema`")
        recorded = store.record_grid(ours)
    for name in ("window_interval", "clock_skew_margin"):
        if getattr(recorded, name) != getattr(ours, name):
            raise SchemaMismatch(
                f"{name} is {getattr(ours, name)} here and {getattr(recorded, name)} in the store for "
                f"{'/'.join(store.scope)}: all processes need the same grid (R15): set it back, or let all "
                f"transactions end, stop the service and run `flask stacksaga init-schema` with the new value"
            )
