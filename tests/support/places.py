"""The shop on the memory store and on SQLite, both with a clock that tests move, and its transactions in each state."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path as FilePath
from typing import Any
from uuid import UUID

import pytest

from stacksaga_flask import Engine
from stacksaga_flask.clock import SECOND, ManualTime
from stacksaga_flask.engine.operator import Operator
from stacksaga_flask.engine.reinvoke import Found
from stacksaga_flask.store.contract import Path, RunningStatus, Store, TransactionRow
from stacksaga_flask.store.sql.setup import ensure_tables
from stacksaga_flask.store.sql.sqlite import sqlite_backend
from stacksaga_flask.store.sql.store import SqlStore
from tests.support.faults import FaultyStore
from tests.support.shop import CARD_REFUSED, UNAVAILABLE, Bench, Order

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE


class Killed(BaseException):
    """The process ends here."""


class Place(Bench):
    """A bench whose store is one of several.

    Attributes:
        inner: The store itself, without faults.
    """

    inner: Store

    def __init__(self, open_inner: Callable[[Bench], Store] | None = None, **settings: object) -> None:
        super().__init__(**settings)  # type: ignore[arg-type]
        self.inner = self.memory if open_inner is None else open_inner(self)
        self.store = FaultyStore(self.inner)

    @property
    def operator(self) -> Operator:
        """A person at another process."""
        return Operator(self.another_engine())

    def row(self, transaction_id: UUID) -> TransactionRow:
        """The row as it is stored."""
        stored = self.inner.read(transaction_id)
        assert stored is not None
        return stored.row

    def has(self, path: Path | None, transaction_id: UUID) -> bool:
        """Whether the directory has that pointer."""
        return path is not None and self.inner.has_pointer(path, transaction_id)

    def frozen_ids(self) -> list[UUID]:
        """What the table of frozen transactions has."""
        return [frozen.transaction_id for frozen in self.inner.frozen()]

    def is_claimed(self, transaction_id: UUID) -> bool:
        """Whether there is a claim."""
        return self.inner.marker(transaction_id, "#claim") is not None

    def older_release(self) -> Engine:
        """An engine that does not know the saga, so that it freezes what a sweep finds."""
        return Engine(self.settings, open_store=lambda: self.store, time_source=self.time)

    # -- transactions in each state ----------------------------------------------------------------------------

    def paused(self, step: str = "charge") -> TransactionRow:
        """A participant did not answer. With ``release``, the card was refused before and the revert did not answer."""
        if step == "release":
            self.shop.errors["charge"] = [CARD_REFUSED]
        self.shop.errors[step] = [UNAVAILABLE]
        row = self.row(self.engine.run(self.saga, Order()).transaction_id)
        self.shop.calls.clear()
        return row

    def killed(self, step: str = "charge") -> TransactionRow:
        """Its process was killed in a step."""

        def kill() -> None:
            raise Killed

        self.shop.during[step] = kill
        with pytest.raises(Killed):
            self.engine.run(self.saga, Order())
        del self.shop.during[step]
        self.shop.calls.clear()
        return self.row(self.shop.transaction_ids[-1])

    def frozen(self, step: str = "charge") -> TransactionRow:
        """One that was paused there, and found by a node that did not know its saga."""
        row = self.paused(step)
        assert row.retry is not None
        return self.frozen_by_a_sweep(row.transaction_id, row.retry)

    def frozen_by_a_sweep(self, transaction_id: UUID, found: Path) -> TransactionRow:
        """One that such a sweep found at that pointer."""
        self.time.advance(max(0, self.engine.node().grid.opens(found) - self.time.wall()) + 12 * HOUR)
        assert self.older_release().reinvoke(transaction_id, Found(found)) == (True, "frozen")
        row = self.row(transaction_id)
        assert row.running_status is RunningStatus.FROZEN
        self.store.calls.clear()
        return row

    def swept(self, transaction_id: UUID) -> str:
        """What the sweep makes of it, once the window of its retry pointer is sealed."""
        retry = self.row(transaction_id).retry
        assert retry is not None
        assert self.has(retry, transaction_id)
        opens = self.engine.node().grid.opens(retry)
        self.time.advance(max(0, opens + self.settings.seal_delay - self.time.wall()))
        return self.another_engine().reinvoke(transaction_id, Found(retry)).outcome


def on_sqlite(folder: FilePath) -> Callable[[Bench], Store]:
    """What opens a SQLite file whose clock is the bench's."""

    def open_inner(bench: Bench) -> Store:
        backend = sqlite_backend(
            folder / "shop.db", timeout=3, time_source=bench.time, connect=partial(_connect, bench.time)
        )
        ensure_tables(backend)
        return SqlStore(backend, bench.settings.scope, time_source=bench.time)

    return open_inner


def _connect(clock: ManualTime, path: str, **options: Any) -> sqlite3.Connection:
    connection: sqlite3.Connection = sqlite3.connect(path, **options)
    connection.create_function("julianday", 1, lambda _: 2440587.5 + clock.wall() / SECOND / 86400)
    return connection
