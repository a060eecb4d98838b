"""The connection that a store holds: opened when a call needs it, and anew when the driver has given it up.

The driver ends its attempts to reconnect for good once a node refuses the login, which a node does that is just
starting and does not see the replicas of its logins yet. So, when no node could be used for some seconds, a call
connects anew; all others go on with what there is, and fail or succeed with that.
"""

from __future__ import annotations

import threading
from typing import Final

from stacksaga_flask.clock import SECOND, SystemTime
from stacksaga_flask.errors import StoreError, StoreUnavailable
from stacksaga_flask.store.address import logger
from stacksaga_flask.store.cassandra.connection import Connected, connect, where
from stacksaga_flask.store.cassandra.failed import LastFailure
from stacksaga_flask.store.cassandra.place import Place

PATIENCE: Final = 5 * SECOND
"""Microseconds without a usable node after which a call connects anew, and between two attempts at that."""


class Link:
    """What calls need, while there is a use for it.

    Args:
        place: The keyspace.
        connected: An open connection to it, which the link closes.
    """

    def __init__(self, place: Place, connected: Connected) -> None:
        self._place = place
        self._connected: Connected | None = connected
        self._opening = threading.Lock()
        self._closed = False
        self._failure = LastFailure()
        self._time_source = SystemTime()
        self._lost_at: int | None = None
        """When the first of the calls failed that have found no node since one was answered."""
        self._given_up = False
        self._tried_at = self._time_source.boot() - PATIENCE

    @property
    def is_open(self) -> bool:
        """Whether there is a connection."""
        return self._connected is not None

    def get(self) -> Connected:
        """What there is, connected if need be.

        Raises:
            StoreError: It is closed, or the cluster cannot be used. Nothing was sent.
        """
        connected = self._connected
        if connected is None:
            return self._open()
        return self._open_anew(connected) if self._given_up else connected

    def answered(self) -> None:
        """A node was asked, whatever came of it."""
        if self._lost_at is not None:
            self._lost_at, self._given_up = None, False

    def found_no_node(self) -> None:
        """A call found no node that could be used."""
        now = self._time_source.boot()
        if self._lost_at is None:
            self._lost_at = now
        elif now - self._lost_at >= PATIENCE:
            self._given_up = True

    def rest(self) -> None:
        """Close the connection; the next call opens another one. No call may be under way."""
        with self._opening:
            self._disconnect()

    def close(self) -> None:
        """Close the connection for good. Whoever is opening one is waited for."""
        with self._opening:
            self._closed = True
            self._disconnect()

    def _disconnect(self) -> None:
        connected, self._connected = self._connected, None
        if connected is not None:
            connected.cluster.shutdown()

    def _open(self) -> Connected:
        with self._opening:
            if self._closed:
                raise StoreUnavailable("this store was closed; nothing was written")
            if self._connected is None:
                with self._failure.attempt(self._place):
                    self._connected = connect(self._place)
                self.answered()
            return self._connected

    def _open_anew(self, lost: Connected) -> Connected:
        """Connect anew if nobody does and nobody just has, and otherwise go on with what is lost."""
        if self._time_source.boot() - self._tried_at < PATIENCE or not self._opening.acquire(blocking=False):
            return lost
        try:
            if self._connected is not lost:
                return self._connected or lost
            try:
                found = connect(self._place)
            except StoreError as error:
                logger.warning("no node could be used for some seconds, and connecting anew failed too: %s", error)
                return lost
            finally:
                self._tried_at = self._time_source.boot()
            if not self._given_up:
                # The driver has found a node by itself meanwhile, and calls may be under way there.
                found.cluster.shutdown()
                return lost
            self._connected = found
            self.answered()
            logger.warning("%s: no node could be used for some seconds; connected anew", where(self._place))
            lost.cluster.shutdown()
            return found
        finally:
            self._opening.release()
