"""A saga of three empty steps, and an engine on a SQLite file to run it."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stacksaga_flask import Engine, Saga, StepContext, SystemTime, read_settings
from stacksaga_flask.store.contract import Scope
from stacksaga_flask.store.sql.setup import ensure_tables
from stacksaga_flask.store.sql.sqlite import sqlite_backend
from stacksaga_flask.store.sql.store import SqlStore

STEPS = 3
SERVICE = "benchmark"


@dataclass
class Order:
    """A small payload."""

    sku: str = "book"
    quantity: int = 1
    reservation: str = ""


saga: Saga[Order, None] = Saga("three-empty-steps", payload=Order)


@saga.step
def reserve(order: Order, context: StepContext[Order]) -> None:
    """Do nothing."""


@reserve.revert
def release(order: Order, context: StepContext[Order]) -> None:
    """Do nothing."""


@saga.step
def charge(order: Order, context: StepContext[Order]) -> None:
    """Do nothing."""


@charge.revert
def refund(order: Order, context: StepContext[Order]) -> None:
    """Do nothing."""


@saga.step
def ship(order: Order, context: StepContext[Order]) -> None:
    """Do nothing."""


@ship.revert
def recall(order: Order, context: StepContext[Order]) -> None:
    """Do nothing."""


@contextmanager
def engine_on(
    file: Path, connect: Callable[..., sqlite3.Connection] = sqlite3.connect
) -> Iterator[tuple[Engine, SqlStore]]:
    """An engine and its store on a SQLite file, with every setting at its default."""
    settings = read_settings({"STACKSAGA_STORE": f"sqlite:///{file}"}, application_name=SERVICE)
    backend = sqlite_backend(file, timeout=settings.request_timeout / 1e6, time_source=SystemTime(), connect=connect)
    ensure_tables(backend)
    scope = Scope(settings.region, settings.cluster, settings.service_name)
    store = SqlStore(backend, scope, time_source=SystemTime())
    engine = Engine(settings, sagas=[saga], open_store=lambda: store)
    try:
        yield engine, store
    finally:
        engine.close()
        store.close()
