"""Creating and upgrading the keyspace: ``init-schema``."""

from __future__ import annotations

from cassandra.cluster import Cluster, Session
from stacksaga_schema import Migration, migrations

from stacksaga_flask.directory.windows import recovery_years
from stacksaga_flask.errors import ConfigurationError, SchemaMismatch, StoreUnavailable
from stacksaga_flask.store.cassandra.connection import (
    connect,
    open_cluster,
    open_session,
    told,
    where,
)
from stacksaga_flask.store.cassandra.failures import Kind
from stacksaga_flask.store.cassandra.place import Place
from stacksaga_flask.store.cassandra.replication import check_replication, nodes_by_datacenter
from stacksaga_flask.store.cassandra.store import CassandraStore
from stacksaga_flask.store.contract import Grid, Scope
from stacksaga_flask.store.opening import Setup

DEFAULT_FACTOR = 3


def upgrade_keyspace(place: Place, setup: Setup) -> list[str]:
    """Create the keyspace if it is not there, and apply the migrations that it lacks.

    Returns:
        What was created or applied.

    Raises:
        ConfigurationError: The replication that is asked for cannot make a quorum; nothing was created.
        StoreError: The cluster cannot be used, or its nodes do not agree on the schema.
    """
    cluster = open_cluster(place)
    try:
        session = open_session(cluster, place)
        with told(Kind.WRITE, place):
            applied = _create_keyspace(session, place, setup)
            check_replication(cluster.metadata, place)
            session.set_keyspace(place.keyspace)
            for migration in migrations("cql"):
                if _apply(session, place, migration):
                    applied.append(migration.name)
        return applied
    finally:
        cluster.shutdown()


def record_grid(place: Place, scope: Scope, wanted: Grid, now: int) -> list[str]:
    """Record the grid of the scope, or change the one that is there while the directory is empty (R15).

    Args:
        place: A keyspace with all tables.
        scope: The scope.
        wanted: The grid.
        now: Microseconds since 1970, for the years to look through.

    Returns:
        What was recorded or changed.

    Raises:
        SchemaMismatch: There is another one, and the directory is not empty.
        StoreError: The cluster cannot be used.
    """
    store = CassandraStore(place, scope, connect(place))
    try:
        recorded = store.read_grid()
        if recorded is None:
            recorded = store.record_grid(wanted)
            if recorded == wanted:
                return [f"settings of {'/'.join(scope)}"]
        return _change(store, recorded, wanted, now)
    finally:
        store.close()


def _create_keyspace(session: Session, place: Place, setup: Setup) -> list[str]:
    if place.keyspace in session.cluster.metadata.keyspaces:
        setup.say(f"keyspace {place.keyspace} is there already; its replication is left as it is")
        return []
    replication = _replication(session.cluster, place, setup)
    setup.say(f"creating keyspace {place.keyspace} with replication {replication}")
    _execute(session, place, f"CREATE KEYSPACE IF NOT EXISTS {place.keyspace} WITH replication = {replication}")
    return [f"keyspace {place.keyspace}"]


def _replication(cluster: Cluster, place: Place, setup: Setup) -> dict[str, str]:
    if setup.development:
        return {"class": "SimpleStrategy", "replication_factor": "1"}
    factors = setup.replication or {place.local_datacenter: DEFAULT_FACTOR}
    nodes = nodes_by_datacenter(cluster.metadata)
    for datacenter, factor in factors.items():
        if datacenter not in nodes:
            raise ConfigurationError(
                f"--replication names the data centre {datacenter!r}; there are {', '.join(sorted(nodes))}"
            )
        if factor > nodes[datacenter]:
            raise ConfigurationError(
                f"{factor} replicas in {datacenter!r} need as many nodes, and there are {nodes[datacenter]}: give "
                f"--replication {datacenter}=N with less, or --development for a cluster of one node"
            )
    if place.local_datacenter not in factors:
        raise ConfigurationError(
            f"--replication leaves out {place.local_datacenter!r}, the local data centre of STACKSAGA_STORE: add it"
        )
    return {"class": "NetworkTopologyStrategy", **{name: str(factor) for name, factor in factors.items()}}


def _apply(session: Session, place: Place, migration: Migration) -> bool:
    """Apply a migration, which does no harm where it was applied before, and tell whether it changed anything."""
    before = _columns(session.cluster, place)
    for statement in migration.statements:
        _execute(session, place, statement)
    return _columns(session.cluster, place) != before


def _columns(cluster: Cluster, place: Place) -> set[tuple[str, str]]:
    tables = cluster.metadata.keyspaces[place.keyspace].tables
    return {(name, column) for name, table in tables.items() for column in table.columns}


def _execute(session: Session, place: Place, statement: str) -> None:
    future = session.execute_async(statement, timeout=None)
    future.result()
    if not future.is_schema_agreed:
        raise StoreUnavailable(
            f"{where(place)}: the nodes do not agree on the schema after "
            f"{session.cluster.max_schema_agreement_wait} s: see that all are up (`nodetool describecluster`), then "
            f"run `flask stacksaga init-schema` again"
        )


def _change(store: CassandraStore, recorded: Grid, wanted: Grid, now: int) -> list[str]:
    same = (recorded.window_interval, recorded.clock_skew_margin) == (wanted.window_interval, wanted.clock_skew_margin)
    if same and recorded.schema_version >= wanted.schema_version:
        return []
    if not same:
        # Not one date may be left: rows and tombstones of the directory have timestamps made from the old windows,
        # which would hide registrations in the new ones (R13).
        dates = [date for year in recovery_years(now) for date in store.days(year)]
        if dates:
            raise SchemaMismatch(
                f"{'/'.join(store.scope)} was set up with {_told(recorded)}, not {_told(wanted)}, and its directory "
                f"has {len(dates)} date(s), {dates[0]} first: let all transactions end and the retry nodes prune the "
                f"directory, stop the service and run `flask stacksaga init-schema` again, or begin with another "
                f"STACKSAGA_CLUSTER (R15)"
            )
    if not store.replace_grid(wanted, expected=recorded):
        raise SchemaMismatch(f"the settings of {'/'.join(store.scope)} were changed by somebody else meanwhile")
    return [f"settings of {'/'.join(store.scope)}: {_told(wanted)} instead of {_told(recorded)}"]


def _told(grid: Grid) -> str:
    return (
        f"a window interval of {grid.window_interval} s, a clock skew margin of {grid.clock_skew_margin / 1e6:g} s and "
        f"schema version {grid.schema_version}"
    )
