"""A shop of the recovery tests whose time is moved: processes are engines in this one, on one SQLite file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID

import click
from click.testing import CliRunner, Result

from stacksaga_flask import Engine, ManualTime, Saga
from stacksaga_flask.clock import SECOND
from stacksaga_flask.extension.transactions_cli import transaction_commands
from stacksaga_flask.store.contract import RunningStatus, Store, TransactionRow
from stacksaga_flask.store.opening import open_store
from stacksagad.recovery.compactor import Compactor
from stacksagad.recovery.observed import TickSummary
from stacksagad.recovery.sweeper import Sweeper
from stacksagad.recovery.workers import AtOnce
from tests.support.opening import SHOP, settings_of
from tests.support.recovery_saga import Ledger, Order, Participants, place_order_saga

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


class StoreElsewhere:
    """A store on another machine, whose clock goes on as it should."""

    def __init__(self, store: Store, time: ManualTime) -> None:
        self._store = store
        self._time = time

    def now(self) -> int:
        """Its clock."""
        return self._time.wall()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class TimedSite:
    """A shop.

    Args:
        folder: Of its participants and its database.
        began: Its time at first, in microseconds since 1970.
        elsewhere: Whether the store has a clock of its own.
        lookback_days: The setting.

    Attributes:
        time: Of the shop's processes.
        during: What happens during the next call of an action.
        true: Of the store, if it is elsewhere; else that of its processes.
    """

    def __init__(self, folder: Path, *, began: int, elsewhere: bool = False, lookback_days: int = 2) -> None:
        self.folder = folder
        self.time = ManualTime(began)
        self.true = ManualTime(began) if elsewhere else self.time
        self.ledger = Ledger(folder)
        self.during: dict[str, Callable[[], None]] = {}
        self.transaction_ids: dict[str, UUID] = {}
        self._settings = settings_of(
            f"sqlite:///{folder}/shop.db", SHOP, stop_at_sigterm=False, run_directory="", lookback_days=lookback_days
        )
        self.web = self.process()

    def advance(self, microseconds: int) -> None:
        """Let time pass."""
        for time in {self.time, self.true}:
            time.advance(microseconds)

    def process(self) -> Engine:
        """A process of the shop, as it starts."""

        def open_store_there() -> Any:
            return StoreElsewhere(open_store(self._settings, self.time), self.true)

        saga: Saga[Order, None] = place_order_saga(Participants(self.folder, during=self.during))
        return Engine(
            self._settings, sagas=[saga], open_store=open_store_there, time_source=self.time, in_background=False
        )

    def order(self, name: str, **more: Any) -> RunningStatus:
        """Place an order."""
        order: Order = {"name": name, **more}
        transaction = self.web.run(self.web.sagas["place-order"], order)
        self.transaction_ids[name] = transaction.transaction_id
        return transaction.status

    def row(self, name: str) -> TransactionRow:
        """The row of an order's transaction."""
        stored = self.web.node().store.read(self.transaction_ids[name])
        assert stored is not None
        return stored.row

    def statuses(self) -> Counter[RunningStatus]:
        """How many transactions stand how."""
        return Counter(self.row(name).running_status for name in self.transaction_ids)

    def node(self) -> TimedNode:
        """A retry node, as it starts."""
        return TimedNode(self.process())

    def command(self, *arguments: str) -> Result:
        """What a person types after ``stacksagad``."""
        group = click.Group(commands={one.name or "": one for one in transaction_commands(self.process)})
        return CliRunner().invoke(group, arguments)


class TimedNode:
    """A retry node whose ticks the test begins."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.sweeper = Sweeper(engine.node(), engine.reinvoke, workers=AtOnce())
        self.compactor = Compactor(engine.node())

    def tick(self) -> TickSummary:
        """Sweep what is sealed, and prune."""
        summary = self.sweeper.tick()
        self.compactor.tick()
        return summary

    def end(self) -> None:
        """It ends."""
        with closing(self.engine):
            self.sweeper.stop()
