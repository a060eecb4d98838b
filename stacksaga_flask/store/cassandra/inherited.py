"""What a forked child does with clusters of its parent, if the fork did not find them closed (R11).

Usually none is open then (`Store.before_fork`). But Python forks all the same if a call does not end in time.
"""

from __future__ import annotations

import os
import sys
from typing import Final
from weakref import WeakSet

from cassandra.cluster import Cluster

_CLUSTERS: Final[WeakSet[Cluster]] = WeakSet()


def remember(cluster: Cluster) -> None:
    """Let a forked child leave this cluster alone."""
    _CLUSTERS.add(cluster)


def _leave_alone() -> None:
    clusters = list(_CLUSTERS)
    _CLUSTERS.clear()
    for cluster in clusters:
        # What the driver does at exit would wait for threads that the child does not have.
        cluster.is_shutdown = True
    libev = sys.modules.get("cassandra.io.libevreactor")
    if libev is not None and libev._global_loop is not None:
        for connection in libev._global_loop._live_conns:
            # Its thread is not here, and nobody is told: who waited for an answer is not here either.
            connection.is_closed = True
            connection._socket.close()
    greenlets = sys.modules.get("stacksaga_flask.store.cassandra.greenlets")
    if greenlets is not None:
        greenlets.drop_inherited(clusters)


os.register_at_fork(after_in_child=_leave_alone)
