"""Where a Cassandra store is: what the settings say, before anything is opened."""

from __future__ import annotations

from typing import Final, NamedTuple

from stacksaga_flask.clock import SECOND
from stacksaga_flask.config import Settings
from stacksaga_flask.config_values import BadValue, keyspace
from stacksaga_flask.errors import ConfigurationError
from stacksaga_flask.store.address import StoreAddress, read_address

EXAMPLE: Final = "cassandra://host1,host2:9042/stacksaga_event_store?local_datacenter=dc1"
DEFAULT_KEYSPACE: Final = "stacksaga_event_store"


class Place(NamedTuple):
    """A keyspace of a cluster, and how it is spoken to.

    Attributes:
        address: Contact points, credentials, TLS.
        keyspace: In small letters, as Cassandra folds it.
        local_datacenter: The only one that is spoken to.
        consistency: Of reads and writes, which are the same: LOCAL_QUORUM or QUORUM (R1).
        timeout: Seconds that a request may take; above the server's own (R16).
    """

    address: StoreAddress
    keyspace: str
    local_datacenter: str
    consistency: str
    timeout: float


def read_place(settings: Settings, *, warn: bool = False) -> Place:
    """Read where the store is, and warn of a password in the URL if wanted.

    Raises:
        ConfigurationError: A part is missing or not as it should be.
    """
    address = read_address(
        settings, default_port=9042, options=frozenset({"local_datacenter"}), example=EXAMPLE, warn=warn
    )
    if len({port for _, port in address.hosts}) > 1:
        raise ConfigurationError(
            f"STACKSAGA_STORE names {address}: the nodes of a cluster listen on one port; write {EXAMPLE}"
        )
    local_datacenter = address.options.get("local_datacenter", "")
    if not local_datacenter:
        raise ConfigurationError(
            "STACKSAGA_STORE names no local_datacenter, where LOCAL_QUORUM and LOCAL_SERIAL are reached (`nodetool "
            f"status` shows its name): write {EXAMPLE}"
        )
    return Place(
        address=address,
        keyspace=_keyspace(settings, address.name),
        local_datacenter=local_datacenter,
        consistency=settings.write_consistency,
        timeout=settings.request_timeout / SECOND,
    )


def _keyspace(settings: Settings, named: str) -> str:
    if not named:
        return settings.keyspace.lower()
    try:
        named = keyspace(named)
    except BadValue as problem:
        raise ConfigurationError(f"STACKSAGA_STORE names the keyspace {named!r}: {problem}") from problem
    if settings.keyspace.lower() not in (DEFAULT_KEYSPACE, named.lower()):
        raise ConfigurationError(
            f"STACKSAGA_STORE names the keyspace {named!r} and STACKSAGA_KEYSPACE is {settings.keyspace!r}: remove one"
        )
    return named.lower()
