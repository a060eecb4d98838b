"""``python -m tests.benchmarks.cassandra_raw_contender threads|gevent RECORDING URL``: plain cassandra-driver.

Its callers share a session that is set up as the store's is: token-aware, LOCAL_QUORUM, rows as tuples.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and sys.argv[1] == "gevent":
    from gevent import monkey

    monkey.patch_all()

import socket
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from cassandra import ConsistencyLevel, ProtocolVersion
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.policies import DCAwareRoundRobinPolicy, TokenAwarePolicy
from cassandra.query import tuple_factory

from stacksaga_flask.store.cassandra.place import Place, read_place
from stacksaga_flask.store.cassandra.reactor import connection_class
from tests.benchmarks.cassandra_replay import Recording, replayer
from tests.benchmarks.cassandra_server import SCOPE
from tests.benchmarks.contender import peak_memory, serve
from tests.support.opening import settings_of


class RawContender:
    """Callers that share one session."""

    commits = 0

    def __init__(self, replay: Callable[[uuid.UUID], None]) -> None:
        self._replay = replay

    @contextmanager
    def callers(self, number: int) -> Iterator[Sequence[Callable[[], None]]]:
        """So many callers."""
        yield [lambda: self._replay(uuid.uuid4())] * number


def main() -> None:
    """Connect, and take turns."""
    _, recording, url = sys.argv[1:]
    start = peak_memory()
    cluster = raw_cluster(read_place(settings_of(url, SCOPE)))
    try:
        replay = replayer(msgspec.msgpack.decode(Path(recording).read_bytes(), type=Recording), cluster.connect())
        serve(RawContender(replay), start)
    finally:
        cluster.shutdown()


def raw_cluster(place: Place) -> Cluster:
    """The cluster, set up as the store's is."""
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc=place.local_datacenter)),
        consistency_level=ConsistencyLevel.LOCAL_QUORUM,
        serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
        row_factory=tuple_factory,
    )
    return Cluster(
        [place.address.hosts[0].host],
        port=place.address.hosts[0].port,
        protocol_version=ProtocolVersion.V4,
        connection_class=connection_class(),
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
    )


if __name__ == "__main__":
    main()
