"""A harness for Cassandra stores: a real node, whose faults are made on the wire."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from stacksaga_flask import StoreUnavailable, SystemTime
from stacksaga_flask.store.cassandra.connection import connect
from stacksaga_flask.store.cassandra.place import read_place
from stacksaga_flask.store.cassandra.store import CassandraStore
from stacksaga_flask.store.contract import Scope, Store
from stacksaga_flask.testing.conformance import StoreHarness
from tests.support.cql_proxy import CqlProxy
from tests.support.opening import SHOP, settings_of
from tests.support.waiting import wait_until

MANY = 1000


class CassandraHarness(StoreHarness):
    """One keyspace behind a proxy."""

    def __init__(self, proxy: CqlProxy, keyspace: str) -> None:
        self._proxy = proxy
        # The settings would refuse some of the scopes that the suite tries.
        self._place = read_place(settings_of(proxy.url(keyspace), SHOP))

    def open(self, scope: Scope) -> Store:
        return CassandraStore(self._place, scope, connect(self._place))

    @contextmanager
    def lose_acknowledgement(self, store: Store) -> Iterator[None]:
        # One write may be several requests.
        self._proxy.rule("lose_answer", times=MANY)
        yield
        self._proxy.forget_rules()
        wait_until_usable(store)

    @contextmanager
    def refuse(self, store: Store) -> Iterator[None]:
        self._proxy.accept(False)
        self._proxy.close_all()
        wait_until(lambda: not usable(store))
        yield
        self._proxy.accept(True)
        wait_until_usable(store)

    def spoil_frozen(self, store: Store, transaction_id: UUID) -> bool:
        connected = connect(self._place)
        try:
            connected.session.execute(
                f"UPDATE {self._place.keyspace}.es_frozen_transaction SET reason = null WHERE region = %s "
                "AND cluster = %s AND service_name = %s AND transaction_id = %s",
                (*store.scope, transaction_id),
            )
        finally:
            connected.cluster.shutdown()
        return True

    def advance(self, microseconds: int) -> None:
        # Nobody moves a cluster's clock.
        time.sleep(microseconds / 1e6)

    def now(self) -> int:
        return SystemTime().wall()


def usable(store: Store) -> bool:
    """Whether the store answers."""
    try:
        store.now()
    except StoreUnavailable:
        return False
    return True


def wait_until_usable(store: Store) -> None:
    """Return once the store answers."""
    wait_until(lambda: usable(store))
