"""From host names to addresses, and back: a certificate is checked against the name that was configured.

The driver resolves contact points by itself, and would then check the address. Nodes that it hears of from others are
known by their address only.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from cassandra.connection import DefaultEndPoint, DefaultEndPointFactory

from stacksaga_flask.errors import StoreUnavailable
from stacksaga_flask.store.address import HostAndPort, logger
from stacksaga_flask.store.cassandra.place import Place


class NamedEndPoint(DefaultEndPoint):  # type: ignore[misc]
    """An address that was configured by a name. It equals the same address without one."""

    def __init__(self, address: str, port: int, name: str) -> None:
        super().__init__(address, port)
        self._name = name

    @property
    def ssl_options(self) -> dict[str, str]:
        """What the certificate has to name."""
        return {"server_hostname": self._name}


class NamedEndPoints(DefaultEndPointFactory):  # type: ignore[misc]
    """Gives an address that the driver hears of the name that was configured for it, if there is one.

    Args:
        names: Names by address.
        port: Of a node that does not tell its own.
    """

    def __init__(self, names: Mapping[str, str], port: int) -> None:
        super().__init__(port)
        self._names = names

    def create(self, row: Any) -> DefaultEndPoint:
        """The endpoint of a row of ``system.local`` or ``system.peers``."""
        return self.named(super().create(row))

    def named(self, found: DefaultEndPoint) -> DefaultEndPoint:
        """The endpoint, with its name if it has one."""
        name = self._names.get(found.address)
        return found if name is None else NamedEndPoint(found.address, found.port, name)


def resolve(place: Place, cluster: str) -> dict[str, str]:
    """The names of the hosts by their addresses, in the order of the URL.

    Args:
        place: Where the hosts are named.
        cluster: The cluster as messages name it.

    Raises:
        StoreUnavailable: Not one of them has an address.
    """
    names: dict[str, str] = {}
    failed: dict[str, Exception] = {}
    for host in place.address.hosts:
        for address in _addresses(host, failed):
            names.setdefault(address, host.host)
    told = "; ".join(f"{host}: {error}" for host, error in failed.items())
    if not names:
        raise StoreUnavailable(
            f"{cluster}: no host of STACKSAGA_STORE has an address ({told}): see that the names are right and that "
            f"this machine can resolve them"
        ) from next(iter(failed.values()))
    if failed:
        logger.warning("%s: some hosts of STACKSAGA_STORE have no address (%s); the others are used", cluster, told)
    return names


def _addresses(host: HostAndPort, failed: dict[str, Exception]) -> list[str]:
    try:
        found = socket.getaddrinfo(host.host, host.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # the second one for what could not be a name at all
        failed[host.host] = error
        return []
    return [str(address[0]) for _, _, _, _, address in found]
