"""Values are bound as the driver itself binds them."""

from __future__ import annotations

from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest

from stacksaga_flask.store.cassandra.binding import SERIALISERS, binder
from stacksaga_flask.store.cassandra.statements import TEXTS
from stacksaga_flask.store.cassandra.store import CassandraStore
from tests.services.cassandra.node import Node
from tests.support.opening import SHOP, init_url, open_url

SAMPLES: dict[str, list[Any]] = {
    "varchar": ["", "place-order", "grün"],
    "uuid": [uuid4()],
    "int": [0, -1, 2**31 - 1, -(2**31)],
    "bigint": [0, -1, 2**63 - 1, -(2**63)],
    "timestamp": [0, 1_700_000_000_123],
    "boolean": [True, False],
    "blob": [b"", b"\x00\xff"],
    "list<varchar>": [[], ["reserve", "grün"]],
    "frozen<list<varchar>>": [[], ["reserve", "grün"]],
}


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_values_are_bound_as_by_the_driver(cassandra: Node, cassandra_keyspace: str, name: str) -> None:
    url = cassandra.url(cassandra_keyspace)
    init_url(url, SHOP)
    with closing(open_url(url, SHOP)) as store:
        assert isinstance(store, CassandraStore)
        prepared = store._connection().session.prepare(TEXTS[name].format(keyspace=cassandra_keyspace))
        kinds = [column.type.cql_parameterized_type() for column in prepared.column_metadata]
        bind = binder(prepared)
        for turn in range(4):
            values = [SAMPLES[kind][turn % len(SAMPLES[kind])] for kind in kinds]
            ours, theirs = bind(values), prepared.bind(values)
            assert ours.values == theirs.values
            assert ours.routing_key == theirs.routing_key
            assert (ours.keyspace, ours.is_idempotent) == (theirs.keyspace, theirs.is_idempotent)


def test_there_is_a_sample_of_each_type() -> None:
    assert SAMPLES.keys() == SERIALISERS.keys()
