"""Event stores that cannot be used, met by a request: an error, no step, no transaction without a pointer (R1).

What a declaration refuses is in ``tests/unit/test_definition.py``, what a payload or a key may not be in
``test_extension.py``, what SQLite itself says in ``test_sqlite_store.py``.
"""

from __future__ import annotations

import itertools
import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from flask import Flask

from stacksaga_flask import ConfigurationError, Engine, NotStarted, RunningStatus, StackSaga, read_settings
from stacksaga_flask.clock import SystemTime
from stacksaga_flask.store.sql.setup import ensure_tables
from stacksaga_flask.store.sql.sqlite import sqlite_backend
from stacksaga_flask.store.sql.store import SqlStore
from tests.support.shop import Order, Shop, place_order_saga


def other_tables(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE orders (id)")


def no_database(file: Path) -> None:
    file.write_text("not a database, whatever its name says\n" * 100)


def no_file(file: Path) -> None:
    file.mkdir()


@pytest.mark.parametrize(
    ("spoil", "remedy"),
    [
        (other_tables, "flask stacksaga init-schema"),
        (no_database, "not a database"),
        (no_file, "directory"),
    ],
)
def test_a_store_that_cannot_be_used_answers_503_runs_no_step_and_logs_the_remedy(
    tmp_path: Path, spoil: Callable[[Path], None], remedy: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "shop.db"
    spoil(file)
    shop = Shop()
    saga = place_order_saga(shop)
    app = Flask("shop")
    app.config["STACKSAGA_STORE"] = f"sqlite:///{file}"
    stacksaga = StackSaga(app, sagas=[saga])
    app.post("/orders")(lambda: stacksaga.run(saga, Order()))
    with caplog.at_level(logging.ERROR):
        answer = app.test_client().post("/orders")
    assert answer.status_code == 503
    assert shop.calls == []
    assert remedy in caplog.text
    assert str(file) in caplog.text
    assert str(file) not in answer.text


@pytest.mark.parametrize("name", ["bücher", "", "a\nb"])
def test_a_service_name_outside_ascii_is_refused_before_anything_is_opened(name: str, tmp_path: Path) -> None:
    config = {"STACKSAGA_STORE": f"sqlite:///{tmp_path}/shop.db", "STACKSAGA_SERVICE_NAME": name}
    with pytest.raises(ConfigurationError, match="STACKSAGA_SERVICE_NAME"):
        read_settings(config, application_name="shop")
    assert list(tmp_path.iterdir()) == []


def reachable(file: Path) -> list[tuple[str, int]]:
    """Status and number of pointers of each transaction, read past our own adapters."""
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute(
            "SELECT t.running_status, (SELECT count(*) FROM es_recovery_transactions_by_instance p"
            " WHERE p.transaction_id = t.transaction_id) FROM es_transaction t"
        ).fetchall()


@pytest.mark.parametrize("pages", range(40, 90, 5))
def test_a_disk_that_fills_up_at_any_time_leaves_no_transaction_without_a_pointer(tmp_path: Path, pages: int) -> None:
    """The disk holds so many pages; orders with a large payload are placed until it is full."""
    file = tmp_path / "shop.db"
    shop = Shop()
    saga = place_order_saga(shop)

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = sqlite3.connect(*arguments, **options)
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return connection

    def open_limited() -> SqlStore:
        source = SystemTime()
        backend = sqlite_backend(file, timeout=0.2, time_source=source, connect=connect)
        ensure_tables(backend)
        return SqlStore(backend, engine.scope, time_source=source)

    # What a full disk did not take is tried again for so long.
    config = {"STACKSAGA_STORE": f"sqlite:///{file}", "STACKSAGA_REQUEST_TIMEOUT": "200ms"}
    settings = read_settings(config, application_name="shop")
    engine = Engine(settings, sagas=[saga], open_store=open_limited)
    refused = 0
    for number in itertools.count():
        calls = len(shop.calls)
        try:
            transaction = engine.run(saga, Order(sku="x" * 5000))
        except NotStarted:
            assert len(shop.calls) == calls, "a step ran although nothing was started"
            refused += 1
            if refused == 3:
                break
        else:
            assert transaction.status in (RunningStatus.PROCESS_COMPLETED, RunningStatus.PROCESSING)
        assert number < 200, "the disk never filled up"
    assert [row for row in reachable(file) if row[0] == "PROCESSING" and row[1] != 1] == []
    assert [row for row in reachable(file) if row[0] != "PROCESSING" and row[1] != 0] == []
