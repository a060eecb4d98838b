"""What opening a SQLite file and a PostgreSQL database have in common."""

from __future__ import annotations

from collections.abc import Callable

from stacksaga_flask.clock import TimeSource
from stacksaga_flask.config import Settings
from stacksaga_flask.store.contract import Store
from stacksaga_flask.store.sql.backend import Backend
from stacksaga_flask.store.sql.setup import upgrade
from stacksaga_flask.store.sql.store import SqlStore


def open_backend(
    backend: Backend, settings: Settings, time_source: TimeSource, *, see_to_tables: Callable[[Backend], None]
) -> Store:
    """The store of a backend whose tables have been seen to. See `stacksaga_flask.store.opening.open_store`."""
    try:
        see_to_tables(backend)
        return SqlStore(backend, settings.scope, time_source=time_source)
    except BaseException:
        backend.engine.dispose()
        raise


def init_backend(backend: Backend, settings: Settings) -> list[str]:
    """Set up a backend's tables and grid. See `stacksaga_flask.store.opening.init_schema`."""
    try:
        return upgrade(backend, settings.scope, settings.grid)
    finally:
        backend.engine.dispose()
