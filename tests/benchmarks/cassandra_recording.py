"""What the engine really sends to Cassandra for one saga: read off its session, and counted at the wire."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from cassandra.cluster import ResponseFuture, Session
from cassandra.query import BatchStatement, PreparedStatement

from stacksaga_flask import Engine
from stacksaga_flask.store.cassandra.connection import connect
from stacksaga_flask.store.cassandra.place import read_place
from stacksaga_flask.store.cassandra.store import CassandraStore
from tests.benchmarks.cassandra_replay import Recording, Request, Statement
from tests.benchmarks.cassandra_server import SCOPE
from tests.benchmarks.empty_saga import Order, saga
from tests.services.cassandra.node import Node
from tests.support.cql_proxy import cql_proxy
from tests.support.opening import settings_of

WARM_UP: Final = 3
"""The first saga of a process also writes the upper tiers of the directory, and asks for the clock."""
SAGAS: Final = 20
ANSWER_DELAY: Final = 0.02
"""Seconds. Requests that go out together have all come before the first answer goes back."""


class Observed(NamedTuple):
    """What was seen of some sagas that ran one after the other.

    Attributes:
        recording: One of them.
        sagas: How many.
        rounds: Sequential round trips of all of them, counted at the wire.
        requests: Their requests, counted at the wire.
    """

    recording: Recording
    sagas: int
    rounds: int
    requests: int


def observe(node: Node, keyspace: str) -> Observed:
    """Run sagas through a proxy that counts."""
    with cql_proxy(node) as proxy:
        settings = settings_of(proxy.url(keyspace), SCOPE)
        place = read_place(settings)
        connected = connect(place)
        session = WatchedSession(connected.session)
        store = CassandraStore(place, SCOPE, connected._replace(session=session))
        engine = Engine(settings, sagas=[saga], open_store=lambda: store)
        try:
            for _ in range(WARM_UP):
                engine.run(saga, Order())
            proxy.delay(ANSWER_DELAY)
            proxy.reset()
            prepared = dict(connected.cluster._prepared_statements)
            recordings = [_record(engine, session, prepared) for _ in range(SAGAS)]
            counts = proxy.counts()
        finally:
            engine.close()
            store.close()
    # The shortest: where one window ends and the next begins, a saga writes upper tiers too.
    shortest = min(recordings, key=lambda recording: recording.requests)
    return Observed(shortest, SAGAS, counts.rounds, sum(counts.requests.values()))


class WatchedSession:
    """A session that remembers its statements in rounds: of one round are those before an answer was waited for."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.rounds: list[list[Any]] = []
        self.waited = True

    def execute_async(self, statement: Any, **options: Any) -> WatchedFuture:
        """Send it."""
        if self.waited:
            self.rounds.append([])
            self.waited = False
        self.rounds[-1].append(statement)
        return WatchedFuture(self._session.execute_async(statement, **options), self)

    def execute(self, statement: Any, **options: Any) -> Any:
        """Send it and wait for the answer."""
        return self.execute_async(statement, **options).result()


class WatchedFuture:
    """A future of such a session."""

    def __init__(self, future: ResponseFuture, session: WatchedSession) -> None:
        self._future = future
        self._session = session

    def result(self) -> Any:
        """Wait for the answer."""
        self._session.waited = True
        return self._future.result()


def _record(engine: Engine, session: WatchedSession, prepared: dict[bytes, PreparedStatement]) -> Recording:
    session.rounds.clear()
    transaction = engine.run(saga, Order())
    rounds = [[request_of(statement, prepared) for statement in together] for together in session.rounds]
    return Recording(transaction.transaction_id, rounds)


def request_of(statement: Any, prepared: dict[bytes, PreparedStatement]) -> Request:
    """What was sent. Parts of a batch name their statement by its id alone."""
    if not isinstance(statement, BatchStatement):
        return Request([Statement(statement.prepared_statement.query_string, list(statement.values))])
    parts = statement._statements_and_parameters
    return Request([Statement(prepared[query_id].query_string, list(values)) for _, query_id, values in parts])
