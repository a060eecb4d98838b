"""Three nodes, three replicas: what goes on when nodes are killed or stand still."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from stacksaga_flask import OutcomeUnknown, StoreUnavailable
from stacksaga_flask.store.contract import Store
from stacksaga_flask.store.opening import Setup
from stacksaga_flask.testing.conformance.samples import claim, first, row
from tests.services.cassandra.node import Node
from tests.support.opening import SHOP, init_url, open_url
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def url(cassandra_ring: list[Node]) -> str:
    address = cassandra_ring[0].url("shop")
    applied = init_url(address, SHOP, setup=Setup(replication={"datacenter1": 3}))
    assert applied[0] == "keyspace shop"
    return address


@pytest.fixture
def store(url: str, cassandra_ring: list[Node]) -> Iterator[Store]:
    with closing(open_url(url, SHOP)) as opened:
        wait_until(lambda: all(map(Node.answers, cassandra_ring)), 60)
        wait_until(lambda: works(opened), 60)
        yield opened


def works(store: Store) -> bool:
    """Whether a write and a claim are acknowledged, and both are read."""
    started = row()
    try:
        store.apply(first(started))
        granted = store.insert_marker(started.transaction_id, claim("mine"), ttl=30).applied
        found = store.read(started.transaction_id)
    except (StoreUnavailable, OutcomeUnknown):
        return False
    assert granted
    assert found is not None
    return found.row == started


def test_sagas_go_on_while_one_of_three_nodes_is_killed_and_after_it_is_back(
    store: Store, cassandra_ring: list[Node]
) -> None:
    victim = cassandra_ring[2]
    victim.kill()
    try:
        # The others ask it in vain until they are sure that it is gone, which takes them about ten seconds.
        wait_until(lambda: all(works(store) for _ in range(20)), 90)
    finally:
        victim.start()
    wait_until(lambda: all(works(store) for _ in range(20)), 60)


def test_sagas_go_on_while_one_of_three_nodes_stands_still(store: Store, cassandra_ring: list[Node]) -> None:
    victim = cassandra_ring[1]
    victim.pause()
    try:
        wait_until(lambda: all(works(store) for _ in range(10)), 90)
    finally:
        victim.resume()


def test_without_a_quorum_nothing_is_written_and_it_is_said(store: Store, cassandra_ring: list[Node]) -> None:
    for victim in cassandra_ring[1:]:
        victim.kill()
    started = row()

    def is_refused() -> bool:
        try:
            store.apply(first(started))
        except StoreUnavailable as error:
            return "Cannot achieve consistency level LOCAL_QUORUM" in str(error)
        except OutcomeUnknown:
            return False
        return False

    try:
        wait_until(is_refused, 60)
        with pytest.raises(StoreUnavailable):
            store.read(started.transaction_id)
    finally:
        for victim in cassandra_ring[1:]:
            victim.start()
    wait_until(lambda: works(store), 60)
