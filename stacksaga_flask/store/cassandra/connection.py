"""A cluster, a session of our own and the prepared statements; opened once a process, after the fork (R11).

Nothing of it is shared with another session of the application: execution profiles, row factory and time-outs are ours.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from cassandra import AuthenticationFailed, ConsistencyLevel, ProtocolVersion
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, Session
from cassandra.connection import DefaultEndPoint
from cassandra.policies import (
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    FallthroughRetryPolicy,
    RetryPolicy,
    TokenAwarePolicy,
)
from cassandra.query import tuple_factory

from stacksaga_flask.errors import StackSagaError, StoreError, StoreRefused, StoreUnavailable
from stacksaga_flask.store.cassandra.endpoints import NamedEndPoints, resolve
from stacksaga_flask.store.cassandra.failures import Kind, describe, meaning, reasons
from stacksaga_flask.store.cassandra.inherited import remember
from stacksaga_flask.store.cassandra.place import Place
from stacksaga_flask.store.cassandra.reactor import connection_class
from stacksaga_flask.store.cassandra.replication import check_replication
from stacksaga_flask.store.cassandra.statements import Statements
from stacksaga_flask.store.cassandra.timeouts import check_timeout

READ: Final = "read"
WRITE: Final = "write"
CONDITIONAL: Final = "conditional"
SERIAL_READ: Final = "serial read"
PAGE: Final = 1000
"""Rows of one page."""
FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""Seconds between attempts to connect to a node again: exponential with the driver's jitter."""
CONNECT_TIMEOUT: Final = 5.0
HEARTBEAT: Final = 5.0
"""Seconds without an answer after which a connection is asked for a sign of life, and how long that may take."""


class Connected(NamedTuple):
    """What calls need."""

    cluster: Cluster
    session: Session
    statements: Statements


class ReadElsewhere(FallthroughRetryPolicy):  # type: ignore[misc]
    """A read may be asked of another node, once, if one failed to answer it."""

    def on_request_error(self, *args: Any, **kwargs: Any) -> tuple[int, None]:
        """Ask the next node."""
        return (self.RETRY_NEXT_HOST if kwargs["retry_num"] == 0 else self.RETHROW), None


def connect(place: Place) -> Connected:
    """Connect, check that the keyspace can be used, and prepare every statement.

    Raises:
        SchemaMissing: The keyspace, a table or a column is not there.
        StoreRefused: The login, the data centre, the replication or this process is not as it has to be.
        StoreUnavailable: No node could be reached; the message says what was tried and why each failed.
    """
    pid = os.getpid()
    cluster = open_cluster(place)
    try:
        session = open_session(cluster, place)
        check_replication(cluster.metadata, place)
        with told(Kind.READ, place):
            check_timeout(session, place, READ, where(place))
            statements = Statements(place.keyspace, session.prepare)
        if pid != os.getpid():
            raise StoreRefused(
                "this process was forked while its parent connected to the store (R11); nothing was written"
            )
        return Connected(cluster, session, statements)
    except BaseException:
        cluster.shutdown()
        raise


@contextmanager
def told(kind: Kind, place: Place) -> Iterator[None]:
    """Raise the store's errors for the driver's, which may be any."""
    try:
        yield
    except StackSagaError:
        raise
    except Exception as error:
        raise meaning(error, kind, where(place)) from error


def where(place: Place) -> str:
    """The cluster as messages name it."""
    return f"Cassandra at {place.address}, keyspace {place.keyspace}"


def open_cluster(place: Place) -> Cluster:
    """The cluster, not connected yet.

    Raises:
        StoreRefused: The driver cannot be used in this process.
        StoreUnavailable: Not one of the hosts has an address.
    """
    address = place.address
    names = resolve(place, where(place))
    endpoints = NamedEndPoints(names if address.tls else {}, address.hosts[0].port)
    auth = None
    if address.username is not None:
        auth = PlainTextAuthProvider(username=address.username, password=address.password or "")
    cluster = Cluster(
        contact_points=[endpoints.named(DefaultEndPoint(found, address.hosts[0].port)) for found in names],
        endpoint_factory=endpoints,
        port=address.hosts[0].port,
        auth_provider=auth,
        ssl_context=address.tls,
        connection_class=connection_class(),
        # Spoken by every Cassandra from 2.2 to 5: nothing is tried out, and nothing logged about it.
        protocol_version=ProtocolVersion.V4,
        execution_profiles=_profiles(place),
        # Without it the second request of a call would wait for the answer to the first (Nagle).
        sockopts=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        reconnection_policy=ExponentialReconnectionPolicy(FIRST_WAIT, LONGEST_WAIT, max_attempts=None),
        connect_timeout=CONNECT_TIMEOUT,
        control_connection_timeout=CONNECT_TIMEOUT,
        # A node that stands still is given up after two of these, instead of after a minute.
        idle_heartbeat_interval=HEARTBEAT,
        idle_heartbeat_timeout=HEARTBEAT,
        max_schema_agreement_wait=60,
        monitor_reporting_enabled=False,
        application_name="stacksaga",
    )
    remember(cluster)
    return cluster


def open_session(cluster: Cluster, place: Place) -> Session:
    """Connect.

    Raises:
        StoreError: See `connect`.
    """
    try:
        session = cluster.connect()
    except Exception as error:
        raise _not_connected(cluster, place, error) from error
    session.default_fetch_size = PAGE
    # Every plain write has a timestamp of its own in its text (R13).
    session.use_client_timestamp = False
    return session


def _profiles(place: Place) -> dict[object, ExecutionProfile]:
    level = ConsistencyLevel.name_to_value[place.consistency]
    serial = ConsistencyLevel.LOCAL_SERIAL
    balancing = TokenAwarePolicy(DCAwareRoundRobinPolicy(local_dc=place.local_datacenter))

    # Every failure is left to the caller, who knows what may be written again and with which timestamp (R13).
    never = FallthroughRetryPolicy()

    def profile(consistency: int, retry: RetryPolicy = never) -> ExecutionProfile:
        return ExecutionProfile(
            load_balancing_policy=balancing,
            retry_policy=retry,
            consistency_level=consistency,
            serial_consistency_level=serial,
            request_timeout=place.timeout,
            row_factory=tuple_factory,
        )

    return {
        EXEC_PROFILE_DEFAULT: profile(level),
        READ: profile(level, ReadElsewhere()),
        WRITE: profile(level),
        CONDITIONAL: profile(level),
        # A read at a serial level ends what a conditional write under way has begun, so it is not repeated either.
        SERIAL_READ: profile(serial),
    }


def _not_connected(cluster: Cluster, place: Place, error: Exception) -> StoreError:
    known = {host.datacenter for host in cluster.metadata.all_hosts()} - {None}
    if known and place.local_datacenter not in known:
        return StoreRefused(
            f"{where(place)}: there is no data centre {place.local_datacenter!r} (there are "
            f"{', '.join(sorted(known))}): put one of them into STACKSAGA_STORE as local_datacenter"
        )
    text = describe(error)
    if isinstance(error, NoHostAvailable) and any(isinstance(each, AuthenticationFailed) for each in reasons(error)):
        return StoreRefused(
            f"{where(place)}: {text}: set STACKSAGA_STORE_USERNAME and STACKSAGA_STORE_PASSWORD or "
            f"STACKSAGA_STORE_PASSWORD_FILE to a login of the cluster"
        )
    return StoreUnavailable(f"{where(place)}: {text}: see that the hosts and the port are right and a node is up")
