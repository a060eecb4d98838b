from __future__ import annotations

from collections.abc import Iterator

import pytest

from stacksaga_flask.testing.conformance import StoreConformance, StoreHarness
from tests.conformance.cassandra_harness import CassandraHarness
from tests.services.cassandra.node import Node
from tests.support.cql_proxy import CqlProxy, cql_proxy

pytestmark = pytest.mark.varies


@pytest.fixture(scope="module")
def proxy(cassandra: Node) -> Iterator[CqlProxy]:
    with cql_proxy(cassandra) as started:
        yield started


class TestCassandraStore(StoreConformance):
    @pytest.fixture
    def harness(self, proxy: CqlProxy, cassandra_keyspace: str) -> StoreHarness:
        return CassandraHarness(proxy, cassandra_keyspace)
