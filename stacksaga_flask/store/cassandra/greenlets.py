"""The driver's gevent reactor, mended. Imported once a process, and only where gevent has replaced threads.

A fork copies greenlets. In the child those of the driver would read from the parent's sockets, and so take answers away
from it. `drop_inherited` ends them there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from weakref import WeakSet

import gevent
from cassandra.cluster import Cluster
from cassandra.io.geventreactor import GeventConnection


class GreenletConnection(GeventConnection):  # type: ignore[misc]
    """A connection that is served by greenlets. The timers of all of them are served by one more."""

    _read_watcher: Any
    _write_watcher: Any

    def __new__(cls, *args: Any, **kwargs: Any) -> GreenletConnection:
        # Without the warning that the reactor will be gone: the version of the driver has a cap for that.
        made = object.__new__(cls)
        _CONNECTIONS.add(made)
        return made

    def close(self) -> None:
        """Close it, and tell its callers."""
        # The greenlet that finds the connection closed would kill itself before it has told the callers, who
        # would then wait for the whole time-out. It ends by itself.
        current = gevent.getcurrent()
        if current is self._read_watcher:
            self._read_watcher = None
        elif current is self._write_watcher:
            self._write_watcher = None
        super().close()

    def drop(self) -> None:
        """End its greenlets and close the descriptor. Nobody is told: who waits here is a copy."""
        self.is_closed = True
        for greenlet in (self._read_watcher, self._write_watcher):
            if greenlet is not None:
                greenlet.kill(block=False)
        if self._socket is not None:
            self._socket.close()


_CONNECTIONS: Final[WeakSet[GreenletConnection]] = WeakSet()


def drop_inherited(clusters: Iterable[Cluster]) -> None:
    """End what the parent's clusters have left in a forked child, before any greenlet runs there."""
    for connection in list(_CONNECTIONS):
        if not connection.is_closed:
            connection.drop()
    _CONNECTIONS.clear()
    for cluster in clusters:
        if cluster._idle_heartbeat is not None:
            # It would find every connection dead and open others.
            cluster._idle_heartbeat._shutdown_event.set()
    timers = GreenletConnection._timeout_watcher
    if timers is not None:
        timers.kill(block=False)
        # The next connection begins with new ones.
        GreenletConnection._timers = None
