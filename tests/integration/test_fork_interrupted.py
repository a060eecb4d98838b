"""Calls go on if the closing of SQLite's connections before a fork is interrupted. PostgreSQL's are in its faults."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from stacksaga_flask import SystemTime
from stacksaga_flask.store.contract import Store
from stacksaga_flask.store.sql.setup import ensure_tables
from stacksaga_flask.store.sql.sqlite import sqlite_backend
from stacksaga_flask.store.sql.store import SqlStore
from stacksaga_flask.testing.conformance.samples import first, read_row, row
from tests.support.opening import SHOP


class Interrupting(sqlite3.Connection):
    """A connection whose closing is interrupted once, when a test wants it."""

    wanted = False

    def close(self) -> None:
        super().close()
        if Interrupting.wanted:
            Interrupting.wanted = False
            raise KeyboardInterrupt


def write(store: Store) -> None:
    """Have the writer's connection open alone."""
    store.apply(first(row()))


def write_and_read(store: Store) -> None:
    """Have a connection in the pool too."""
    store.apply(first(row()))
    store.now()


@pytest.mark.parametrize("before", [write, write_and_read])
def test_calls_go_on_if_the_last_moment_before_a_fork_is_interrupted(
    tmp_path: Path, before: Callable[[Store], None]
) -> None:
    def connect(*arguments: object, **options: object) -> sqlite3.Connection:
        return Interrupting(*arguments, **options)  # type: ignore[arg-type]  # they are sqlite3.connect's

    source = SystemTime()
    backend = sqlite_backend(tmp_path / "shop.db", timeout=5, time_source=source, connect=connect)
    ensure_tables(backend)
    with closing(SqlStore(backend, SHOP, time_source=source)) as store, ThreadPoolExecutor() as threads:
        before(store)
        Interrupting.wanted = True
        with pytest.raises(KeyboardInterrupt):
            store.before_fork(1)
        started = row()
        threads.submit(store.apply, first(started)).result(10)
        assert read_row(store, started.transaction_id) == started
