"""From settings to a SQLite file."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from stacksaga_flask.clock import SECOND, TimeSource
from stacksaga_flask.config import Settings
from stacksaga_flask.errors import ConfigurationError
from stacksaga_flask.store.contract import Store
from stacksaga_flask.store.opening import Setup
from stacksaga_flask.store.sql.backend import Backend
from stacksaga_flask.store.sql.opening import init_backend, open_backend
from stacksaga_flask.store.sql.setup import ensure_tables
from stacksaga_flask.store.sql.sqlite import sqlite_backend

SQLITE: Final = "sqlite:///"


def check(settings: Settings) -> None:
    """See `stacksaga_flask.store.opening.check_store`."""
    _file(settings)


def open_store(settings: Settings, time_source: TimeSource) -> Store:
    """See `stacksaga_flask.store.opening.open_store`."""
    return open_backend(_backend(settings, time_source), settings, time_source, see_to_tables=ensure_tables)


def init_schema(settings: Settings, time_source: TimeSource, setup: Setup) -> list[str]:
    """See `stacksaga_flask.store.opening.init_schema`."""
    return init_backend(_backend(settings, time_source), settings)


def _backend(settings: Settings, time_source: TimeSource) -> Backend:
    return sqlite_backend(_file(settings), timeout=settings.request_timeout / SECOND, time_source=time_source)


def _file(settings: Settings) -> Path:
    url = settings.store
    name = url.removeprefix(SQLITE)
    if name in (url, "", ":memory:"):
        raise ConfigurationError(
            f"STACKSAGA_STORE is {url!r}, which names no file: use {SQLITE}shop.db, or memory:// for a store that is "
            f"gone with its process"
        )
    if "?" in name:
        raise ConfigurationError(f"STACKSAGA_STORE is {url!r}: a SQLite file takes no options after a question mark")
    return Path(name)
