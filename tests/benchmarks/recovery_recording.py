"""What a re-invocation really asks of a store, read off its connection, so that the comparison cannot drift."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol
from uuid import UUID

import msgspec

from stacksaga_flask import Engine, SystemTime
from stacksaga_flask.clock import SECOND
from stacksaga_flask.engine.circuit import Circuit
from stacksaga_flask.engine.reinvoke import Found
from stacksaga_flask.store.contract import Store
from stacksaga_flask.store.sql.setup import ensure_tables
from stacksaga_flask.store.sql.sqlite import sqlite_backend
from stacksaga_flask.store.sql.store import SqlStore
from tests.benchmarks.recording import Executed, recording_of, watched_connect
from tests.benchmarks.recovery_filling import Sample, fill
from tests.benchmarks.recovery_place import Place, recovered_saga

RECORDINGS: Final = 3
"""The first re-invocation also writes upper tiers of the directory, and so does one where a window begins."""


class Watched(Protocol):
    """A store whose queries are remembered."""

    store: Store

    def forget(self) -> None:
        """Forget all queries so far."""

    @property
    def queries(self) -> int:
        """How many there were since."""

    def recorded(self, transaction_id: UUID, service: str) -> bytes:
        """The queries since, which were all about one transaction, to be done again for others of a service."""


class WatchedSqlite:
    """Remembers statements, begins and commits among them."""

    def __init__(self, store: Store, executed: Executed) -> None:
        self.store = store
        self._executed = executed

    def forget(self) -> None:
        """Forget all statements so far."""
        self._executed.clear()

    @property
    def queries(self) -> int:
        """How many there were since."""
        return len(self._executed)

    def recorded(self, transaction_id: UUID, service: str) -> bytes:
        """The statements since, for others: each service has a file of its own, so all are of the same name."""
        return msgspec.msgpack.encode(recording_of(self._executed, str(transaction_id)))


@contextmanager
def watched_sqlite(place: Place) -> Iterator[Watched]:
    """The store of a place in SQLite, watched."""
    executed: Executed = []
    settings, time = place.settings(run_directory=""), SystemTime()
    backend = sqlite_backend(
        Path(place.url.removeprefix("sqlite:///")),
        timeout=settings.request_timeout / SECOND,
        time_source=time,
        connect=watched_connect(executed),
    )
    ensure_tables(backend)
    store = SqlStore(backend, place.scope, time_source=time)
    try:
        yield WatchedSqlite(store, executed)
    finally:
        store.close()


def watched(place: Place) -> AbstractContextManager[Watched]:
    """The store of a place, watched."""
    if place.url.startswith("sqlite:"):
        return watched_sqlite(place)
    # Its driver is no business of SQLite's processes.
    from tests.benchmarks.cassandra_watched import watched_cassandra

    return watched_cassandra(place)


def record_reinvocation(place: Place, sample: Sample, service: str) -> bytes:
    """Re-invoke transactions like the sample, and record what was asked of the store for one of them.

    Args:
        place: An empty one.
        sample: What they are like.
        service: That of the transactions for which it is to be done again.
    """
    ids = fill(place, sample, 1 + RECORDINGS)
    saga = recovered_saga(lambda step, transaction_id: None)
    recordings = []
    with watched(place) as seen:
        engine = Engine(place.settings(run_directory=""), sagas=[saga], open_store=lambda: seen.store)
        try:
            for transaction_id in ids:
                seen.forget()
                done = engine.reinvoke(transaction_id, Found(path=sample.path, circuit=Circuit()))
                if done != (True, "completed"):
                    raise RuntimeError(f"a transaction that was to be completed led to {done}")
                recordings.append((seen.queries, seen.recorded(transaction_id, service)))
        finally:
            engine.close()
    return min(recordings)[1]
