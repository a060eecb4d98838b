"""Whether a keyspace has the replicas that its consistency level needs."""

from __future__ import annotations

from collections import Counter

from cassandra.metadata import Metadata

from stacksaga_flask.errors import SchemaMissing, StoreRefused
from stacksaga_flask.store.address import logger
from stacksaga_flask.store.cassandra.place import Place


def check_replication(metadata: Metadata, place: Place) -> None:
    """Refuse a keyspace whose replicas can never make a quorum.

    Raises:
        SchemaMissing: There is no such keyspace.
        StoreRefused: It has no replica in the local data centre, or its quorum is more than there are nodes.
    """
    keyspace = f"keyspace {place.keyspace} of Cassandra at {place.address}"
    if place.keyspace not in metadata.keyspaces:
        raise SchemaMissing(f"there is no {keyspace}: run `flask stacksaga init-schema`")
    nodes = nodes_by_datacenter(metadata)
    factors = _factors(metadata, place.keyspace, place.local_datacenter)
    local = factors.get(place.local_datacenter, 0)
    if not local:
        raise StoreRefused(
            f"{keyspace} has no replica in the data centre {place.local_datacenter!r} (it has {_told(factors)}), so "
            f"{place.consistency} cannot be reached there: name another local_datacenter, or ALTER KEYSPACE and repair"
        )
    if local // 2 + 1 > nodes[place.local_datacenter]:
        raise StoreRefused(
            f"{keyspace} has {local} replicas in the data centre {place.local_datacenter!r}, of which a quorum is "
            f"{local // 2 + 1}, and that has {nodes[place.local_datacenter]} node(s): add nodes, or "
            f"ALTER KEYSPACE"
        )
    if local < 3 and metadata.keyspaces[place.keyspace].replication_strategy.name != "SimpleStrategy":
        logger.warning(
            "%s has %d replica(s) in %s: the loss of one node stops its sagas, and may lose them; production wants 3",
            *(keyspace, local, place.local_datacenter),
        )


def nodes_by_datacenter(metadata: Metadata) -> Counter[str]:
    """How many nodes each data centre has."""
    return Counter(host.datacenter for host in metadata.all_hosts())


def _factors(metadata: Metadata, keyspace: str, local_datacenter: str) -> dict[str, int]:
    """Replication factor per data centre. `SimpleStrategy` knows none, so its factor counts for the local one."""
    strategy = metadata.keyspaces[keyspace].replication_strategy
    if hasattr(strategy, "dc_replication_factors"):
        return dict(strategy.dc_replication_factors)
    return {local_datacenter: int(strategy.replication_factor)}


def _told(factors: dict[str, int]) -> str:
    return ", ".join(f"{factor} in {name!r}" for name, factor in sorted(factors.items())) or "none at all"
