"""A Cassandra store whose requests are remembered."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import msgspec

from stacksaga_flask.store.cassandra.connection import Connected, connect
from stacksaga_flask.store.cassandra.place import read_place
from stacksaga_flask.store.cassandra.store import CassandraStore
from stacksaga_flask.store.contract import Store
from tests.benchmarks.cassandra_recording import WatchedSession, request_of
from tests.benchmarks.cassandra_replay import Recording, Request, Statement
from tests.benchmarks.recovery_place import Place


class WatchedCassandra:
    """Remembers requests, and which went out together."""

    def __init__(self, place: Place, connected: Connected) -> None:
        self._session = WatchedSession(connected.session)
        self._prepared = dict(connected.cluster._prepared_statements)
        self._service = place.service.encode()
        self.store: Store = CassandraStore(
            read_place(place.settings()), place.scope, connected._replace(session=self._session)
        )

    def forget(self) -> None:
        """Forget all requests so far."""
        self._session.rounds.clear()
        self._session.waited = True

    @property
    def queries(self) -> int:
        """How many there were since."""
        return sum(map(len, self._session.rounds))

    def recorded(self, transaction_id: UUID, service: str) -> bytes:
        """The requests since, for others of a service."""
        rounds = [[self._moved(statement, service) for statement in together] for together in self._session.rounds]
        return msgspec.msgpack.encode(Recording(transaction_id, rounds))

    def _moved(self, sent: Any, service: str) -> Request:
        request = request_of(sent, self._prepared)
        return Request([Statement(each.text, self._in(service, each.values)) for each in request.statements])

    def _in(self, service: str, values: list[bytes | None]) -> list[bytes | None]:
        return [service.encode() if value == self._service else value for value in values]


@contextmanager
def watched_cassandra(place: Place) -> Iterator[WatchedCassandra]:
    """The store of a place in Cassandra, watched."""
    watched = WatchedCassandra(place, connect(read_place(place.settings())))
    try:
        yield watched
    finally:
        watched.store.close()
