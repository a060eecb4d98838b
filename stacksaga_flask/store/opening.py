"""From a URL to a store. An adapter and its driver are imported only once a URL asks for them."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Final, Protocol, cast

from msgspec import Struct

from stacksaga_flask.clock import TimeSource
from stacksaga_flask.config import Settings
from stacksaga_flask.config_values import without_password
from stacksaga_flask.errors import ConfigurationError
from stacksaga_flask.store.contract import Store

MEMORY: Final = "memory://"
EXAMPLES: Final = (
    "sqlite:///path/to/file.db, postgresql://host/database, "
    "cassandra://host1,host2/keyspace?local_datacenter=dc1 or memory://"
)
_ADAPTERS: Final = {
    "sqlite": "stacksaga_flask.store.sql.opening_sqlite",
    "postgresql": "stacksaga_flask.store.sql.opening_postgresql",
    "cassandra": "stacksaga_flask.store.cassandra.opening",
}


class Setup(Struct, frozen=True, kw_only=True):
    """How a store's schema is to be set up.

    Attributes:
        replication: Replication factor per data centre of a keyspace that is still to be created; empty for three in
            the local one.
        development: Whether that keyspace may have one replica and no data centre.
        say: Is told what is about to be done.
    """

    replication: dict[str, int] = {}
    development: bool = False
    say: Callable[[str], None] = lambda text: None


class Adapter(Protocol):
    """What the opening module of an adapter has."""

    def check(self, settings: Settings) -> None:
        """Check the URL and the settings around it. Nothing is opened."""

    def open_store(self, settings: Settings, time_source: TimeSource) -> Store:
        """Open the store."""

    def init_schema(self, settings: Settings, time_source: TimeSource, setup: Setup) -> list[str]:
        """Apply what is missing, and record the grid."""


def check_store(settings: Settings) -> None:
    """Check that the settings name a store, and all that is needed to reach it. Nothing is opened.

    Raises:
        ConfigurationError: They do not.
    """
    if settings.store != MEMORY:
        _adapter(settings).check(settings)


def open_store(settings: Settings, time_source: TimeSource) -> Store:
    """Open the store that the settings name.

    A SQLite file that does not exist, or has no table at all, is set up: the embedded store needs no preparation,
    and several workers may do it at once.

    Args:
        settings: The settings.
        time_source: The clock of a memory store, and what waiting is measured by.

    Raises:
        ConfigurationError: The settings name no store; nothing was opened.
        SchemaMissing: Not all of our tables are there.
        StoreError: The store cannot be opened.
    """
    if settings.store == MEMORY:
        from stacksaga_flask.store.memory import MemoryStore

        return MemoryStore(settings.scope, time_source)
    return _adapter(settings).open_store(settings, time_source)


def init_schema(settings: Settings, time_source: TimeSource, setup: Setup) -> list[str]:
    """Apply what is missing of the schema and record the grid of the scope (R15); repeating it does no harm.

    A grid that is recorded is changed while the scope has no pointer. A memory store needs nothing.

    Returns:
        What was applied or changed, in order; empty if nothing was missing.

    Raises:
        ConfigurationError: The settings name no store.
        SchemaMismatch: The scope was set up with another grid and has pointers; nothing was changed.
        StoreError: The store cannot be opened or written.
    """
    return [] if settings.store == MEMORY else _adapter(settings).init_schema(settings, time_source, setup)


def _adapter(settings: Settings) -> Adapter:
    scheme = settings.store.partition("://")[0]
    if scheme not in _ADAPTERS:
        raise ConfigurationError(
            f"STACKSAGA_STORE is {without_password(settings.store)!r}, which names no known store: use {EXAMPLES}"
        )
    try:
        return cast(Adapter, import_module(_ADAPTERS[scheme]))
    except ModuleNotFoundError as error:
        if error.name != "pg8000":
            raise
        raise ConfigurationError(
            "STACKSAGA_STORE names PostgreSQL, whose driver is not installed: pip install 'stacksaga-flask[postgresql]'"
        ) from error
