"""From a URL to a store. Drivers are imported only once a URL asks for one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from stacksaga_flask.clock import SystemTime, TimeSource
from stacksaga_flask.errors import ConfigurationError
from stacksaga_flask.store.contract import Grid, Scope, Store

if TYPE_CHECKING:
    from stacksaga_flask.store.sql.backend import Backend

MEMORY: Final = "memory://"
SQLITE: Final = "sqlite:///"
KNOWN: Final = f"{MEMORY} and {SQLITE}path/to/file.db"
NOT_YET: Final = ("cassandra", "postgresql")


def check_url(url: str) -> None:
    """Check that a URL names a store that this version has. Nothing is opened.

    Raises:
        ConfigurationError: It does not.
    """
    if url != MEMORY:
        _file(url)


def open_store(url: str, scope: Scope, *, clock_source: TimeSource | None, timeout: float) -> Store:
    """Open the store that a URL names.

    A SQLite file that does not exist, or has no table at all, is set up: the embedded store needs no preparation,
    and several workers may do it at once.

    Args:
        url: ``memory://`` or ``sqlite:///path`` (four slashes for an absolute path).
        scope: Part of every key the store writes.
        clock_source: The clock of a memory store, and what waiting is measured by; None for the machine's.
        timeout: Seconds to wait for a connection, or for another process that is writing.

    Raises:
        ConfigurationError: The URL names no store that this version has; nothing was opened.
        SchemaMissing: The file has tables, but not all of ours.
        StoreError: The store cannot be opened.
    """
    time_source = clock_source or SystemTime()
    if url == MEMORY:
        from stacksaga_flask.store.memory import MemoryStore

        return MemoryStore(scope, time_source)
    backend = _sqlite(_file(url), time_source, timeout)
    from stacksaga_flask.store.sql.setup import ensure_tables
    from stacksaga_flask.store.sql.store import SqlStore

    try:
        ensure_tables(backend)
        return SqlStore(backend, scope, time_source=time_source)
    except BaseException:
        backend.engine.dispose()
        raise


def init_schema(url: str, scope: Scope, *, window_interval: int, clock_skew_margin: int, timeout: float) -> list[str]:
    """Apply what is missing of the schema and record the grid of the scope (R15); repeating it does no harm.

    A grid that is recorded is changed while the scope has no pointer.

    Args:
        url: As for `open_store`. A memory store needs nothing.
        scope: The service whose settings are recorded.
        window_interval: Seconds.
        clock_skew_margin: Microseconds.
        timeout: Seconds to wait for another process that is writing.

    Returns:
        What was applied or changed, in order; empty if nothing was missing.

    Raises:
        ConfigurationError: The URL names no store that this version has.
        SchemaMismatch: The scope was set up with another grid and has pointers; nothing was changed.
        StoreError: The store cannot be opened or written.
    """
    if url == MEMORY:
        return []
    backend = _sqlite(_file(url), SystemTime(), timeout)
    from stacksaga_schema import SCHEMA_VERSION

    from stacksaga_flask.store.sql.setup import upgrade

    wanted = Grid(schema_version=SCHEMA_VERSION, window_interval=window_interval, clock_skew_margin=clock_skew_margin)
    try:
        return upgrade(backend, scope, wanted)
    finally:
        backend.engine.dispose()


def _sqlite(path: Path, time_source: TimeSource, timeout: float) -> Backend:
    from stacksaga_flask.store.sql.sqlite import sqlite_backend

    return sqlite_backend(path, timeout=timeout, time_source=time_source)


def _file(url: str) -> Path:
    """The file a SQLite URL names."""
    scheme, separator, _ = url.partition("://")
    if separator and scheme in NOT_YET:
        raise ConfigurationError(f"STACKSAGA_STORE: this version has no {scheme} store yet; it knows {KNOWN}")
    if not separator or scheme != "sqlite":
        raise ConfigurationError(f"STACKSAGA_STORE is {url!r}, which names no known store: use {KNOWN}")
    name = url.removeprefix(SQLITE)
    if name in (url, "", ":memory:"):
        raise ConfigurationError(
            f"STACKSAGA_STORE is {url!r}, which names no file: use {SQLITE}shop.db, or {MEMORY} for a store that is "
            f"gone with its process"
        )
    if "?" in name:
        raise ConfigurationError(f"STACKSAGA_STORE is {url!r}: a SQLite file takes no options after a question mark")
    return Path(name)
