"""One shop of the recovery tests: its event store, its participants, its web servers and its retry nodes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import Final, Protocol
from uuid import UUID

from stacksaga_flask.directory.windows import recovery_years
from stacksaga_flask.store.contract import Path as Pointer
from stacksaga_flask.store.contract import RunningStatus, Scope, Store, TransactionRow
from stacksagad.recovery.sweep import WHOLE_RING
from tests.support.daemon import Daemon, daemon
from tests.support.opening import DEVELOPMENT, init_url, open_url
from tests.support.recovery_saga import Ledger
from tests.support.recovery_web import Web, serving
from tests.support.waiting import wait_until

APP: Final = "tests.support.recovery_shop:app"
WINDOW: Final = 5
SHORT: Final[dict[str, object]] = {
    "window_interval": WINDOW,
    "clock_skew_margin": "500ms",
    "seal_delay": 1,
    # Above that of Cassandra's server.
    "request_timeout": "2500ms",
    "step_budget": 6,
    "restore_delay_windows": 3,
    "claim_ttl": 6,
    "transaction_lifetime": "1h",
    # No lock files: deaths are noticed by watchdogs and by claims that expire.
    "run_directory": "",
}
"""As short as the rules between settings allow."""


class Outage(Protocol):
    """Takes a shop's event store away, and gives it back."""

    def begin(self, process_ids: Iterable[int]) -> None:
        """From now on these processes cannot write, and perhaps not read."""

    def end(self) -> None:
        """The store is there again."""


class Site:
    """A shop.

    Args:
        folder: Of its participants, logs and, for SQLite, its database.
        url: Of its event store.
        scope: Of its own.
        place: What the test calls the kind of the store.
        outage: Where the test can take the store away.
        test_url: Where the test reaches the store, if not as the shop does.
        settings: What differs from the defaults, by names in small letters.
    """

    def __init__(
        self,
        folder: Path,
        url: str,
        scope: Scope,
        *,
        place: str,
        outage: Outage | None = None,
        test_url: str | None = None,
        **settings: object,
    ) -> None:
        self.folder = folder
        self.url = url
        self.scope = scope
        self.place = place
        self.test_url = test_url or url
        self.settings = {**SHORT, **settings}
        self._outage = outage
        self.ledger = Ledger(folder)

    def set_up(self) -> None:
        """Make the tables, and record the grid."""
        init_url(self.test_url, self.scope, setup=DEVELOPMENT, **self.settings)

    @property
    def outage(self) -> Outage:
        """Takes its store away."""
        assert self._outage is not None
        return self._outage

    def with_settings(self, **settings: object) -> None:
        """What differs for processes that start from now on."""
        self.settings.update(settings)

    def close(self) -> None:
        """Close the store, if it was opened."""
        if "store" in self.__dict__:
            self.store.close()

    # -- what is there -----------------------------------------------------------------------------------------

    @cached_property
    def store(self) -> Store:
        """The store, opened by the test for itself."""
        return open_url(self.test_url, self.scope, **self.settings)

    def row(self, order: str) -> TransactionRow:
        """The row of an order's transaction."""
        stored = self.store.read(self.transaction_id(order))
        assert stored is not None, f"the row of {order} is gone"
        return stored.row

    def transaction_id(self, order: str) -> UUID:
        """The transaction of an order whose participants were called."""
        (found,) = {call.transaction_id for call in self.ledger.calls(order)}
        return found

    def statuses(self, orders: Iterable[str]) -> dict[str, str]:
        """How the transactions of orders stand."""
        return {order: self.row(order).running_status.value for order in orders}

    def parked(self, order: str) -> bool:
        """Whether an order's transaction is paused, with a retry pointer in the directory."""
        row = self.row(order)
        paused = row.running_status in (RunningStatus.PROCESS_PAUSED, RunningStatus.REVERT_PAUSED)
        return paused and row.retry is not None and self.store.has_pointer(row.retry, row.transaction_id)

    def all_are(self, orders: Iterable[str], *statuses: RunningStatus) -> bool:
        """Whether each of the orders has one of these statuses."""
        return all(self.row(order).running_status in statuses for order in orders)

    def pointers(self) -> set[UUID]:
        """What a walk through the whole directory leads to."""
        return {one for path in self._paths() for one in self.store.pointers(path)}

    def _paths(self) -> Iterator[Pointer]:
        store = self.store
        for date in [date for year in recovery_years(store.now()) for date in store.days(year)]:
            for window in list(store.windows(date)):
                for _, instance_id in list(store.instances(date, window, **WHOLE_RING._asdict())):
                    for bucket in list(store.buckets(date, window, instance_id)):
                        yield Pointer(date, window, instance_id, bucket)

    # -- participants ------------------------------------------------------------------------------------------

    def let_go(self, order: str, *actions: str) -> None:
        """Let calls that have halted, or are going to, go on."""
        for action in actions:
            (self.folder / f"go-{order}-{action}").touch()

    def wait_inside(self, order: str, action: str) -> int:
        """Wait until a call has halted; the process in which it has."""
        wait_until(lambda: self.halted_in(order, action) is not None, 40)
        process_id = self.halted_in(order, action)
        assert process_id is not None
        return process_id

    def halted_in(self, order: str, action: str) -> int | None:
        """The process in which a call has halted, if one has."""
        file = self.folder / f"inside-{order}-{action}"
        text = file.read_text() if file.exists() else ""
        return int(text) if text else None

    def wait_for(self, file: str) -> None:
        """Wait until participants have left a file."""
        wait_until((self.folder / file).exists, 30)

    def bring_up(self) -> None:
        """Let participants that were down answer again."""
        (self.folder / "up").touch()

    # -- processes ---------------------------------------------------------------------------------------------

    def node(self, *options: str) -> AbstractContextManager[Daemon]:
        """A retry node."""
        place = self._environment
        return daemon(
            self.folder,
            *options,
            app=APP,
            SHOP_STORE=place["SHOP_STORE"],
            SHOP_SERVICE=place["SHOP_SERVICE"],
            SHOP_FOLDER=place["SHOP_FOLDER"],
            SHOP_SETTINGS=place["SHOP_SETTINGS"],
        )

    def web(self, kind: str, *options: str) -> AbstractContextManager[Web]:
        """A gunicorn server that answers, with workers of that kind."""
        return serving(APP, kind, self.folder, self._environment, *options)

    @property
    def _environment(self) -> dict[str, str]:
        settings = {f"STACKSAGA_{name.upper()}": value for name, value in self.settings.items()}
        place = {"SHOP_STORE": self.url, "SHOP_SERVICE": self.scope.service_name, "SHOP_FOLDER": str(self.folder)}
        return {**place, "SHOP_SETTINGS": json.dumps(settings)}
