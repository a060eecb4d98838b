"""From settings to a Cassandra store."""

from __future__ import annotations

from typing import Final

from stacksaga_flask.clock import TimeSource
from stacksaga_flask.config import Settings
from stacksaga_flask.store.cassandra.failed import LastFailure
from stacksaga_flask.store.cassandra.place import read_place
from stacksaga_flask.store.cassandra.reactor import refuse_mixed_threads
from stacksaga_flask.store.contract import Store
from stacksaga_flask.store.opening import Setup

# Whoever opens the store holds a lock that all other callers wait for.
_FAILURE: Final = LastFailure()


def check(settings: Settings) -> None:
    """See `stacksaga_flask.store.opening.check_store`. Also refuses a process in which the driver would hang."""
    read_place(settings, warn=True)
    refuse_mixed_threads()


def open_store(settings: Settings, time_source: TimeSource) -> Store:
    """See `stacksaga_flask.store.opening.open_store`."""
    from stacksaga_flask.store.cassandra.connection import connect
    from stacksaga_flask.store.cassandra.store import CassandraStore

    place = read_place(settings)
    with _FAILURE.attempt(settings):
        return CassandraStore(place, settings.scope, connect(place))


def init_schema(settings: Settings, time_source: TimeSource, setup: Setup) -> list[str]:
    """See `stacksaga_flask.store.opening.init_schema`."""
    from stacksaga_flask.store.cassandra.setup import record_grid, upgrade_keyspace

    place = read_place(settings)
    applied = upgrade_keyspace(place, setup)
    return applied + record_grid(place, settings.scope, settings.grid, time_source.wall())
