"""Plain CQL beside the library: what is in a keyspace, and what somebody else did to it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cassandra import ProtocolVersion
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, Session
from cassandra.policies import RoundRobinPolicy
from cassandra.query import dict_factory

from stacksaga_flask.store.cassandra.reactor import connection_class
from tests.services.cassandra.node import Node


@contextmanager
def plain_session(node: Node, keyspace: str | None = None, **options: Any) -> Iterator[Session]:
    """A session whose rows are dicts."""
    profile = ExecutionProfile(load_balancing_policy=RoundRobinPolicy(), row_factory=dict_factory, request_timeout=60)
    cluster = Cluster(
        [node.host],
        port=node.port,
        protocol_version=ProtocolVersion.V4,
        connection_class=connection_class(),
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        **options,
    )
    try:
        yield cluster.connect(keyspace)
    finally:
        cluster.shutdown()


def drop_keyspace(node: Node, keyspace: str) -> None:
    """Drop a keyspace of a test."""
    with plain_session(node) as session:
        session.execute(f"DROP KEYSPACE IF EXISTS {keyspace}")
