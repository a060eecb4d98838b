"""From settings to a PostgreSQL database."""

from __future__ import annotations

from typing import Final

from stacksaga_flask.clock import SECOND, TimeSource
from stacksaga_flask.config import Settings
from stacksaga_flask.errors import ConfigurationError
from stacksaga_flask.store.address import StoreAddress, read_address
from stacksaga_flask.store.contract import Store
from stacksaga_flask.store.opening import Setup
from stacksaga_flask.store.sql.backend import Backend
from stacksaga_flask.store.sql.opening import init_backend, open_backend
from stacksaga_flask.store.sql.postgresql import postgresql_backend
from stacksaga_flask.store.sql.setup import require_tables

EXAMPLE: Final = "postgresql://host:5432/database"


def check(settings: Settings) -> None:
    """See `stacksaga_flask.store.opening.check_store`."""
    _address(settings, warn=True)


def open_store(settings: Settings, time_source: TimeSource) -> Store:
    """See `stacksaga_flask.store.opening.open_store`."""
    return open_backend(_backend(settings, time_source), settings, time_source, see_to_tables=require_tables)


def init_schema(settings: Settings, time_source: TimeSource, setup: Setup) -> list[str]:
    """See `stacksaga_flask.store.opening.init_schema`."""
    return init_backend(_backend(settings, time_source), settings)


def _backend(settings: Settings, time_source: TimeSource) -> Backend:
    address = _address(settings)
    (host, port), *_ = address.hosts
    return postgresql_backend(
        host=host,
        port=port,
        database=address.name,
        username=address.username,
        password=address.password,
        ssl_context=address.tls,
        timeout=settings.request_timeout / SECOND,
        time_source=time_source,
    )


def _address(settings: Settings, *, warn: bool = False) -> StoreAddress:
    address = read_address(settings, default_port=5432, options=frozenset(), example=EXAMPLE, warn=warn)
    if len(address.hosts) > 1 or not address.name:
        raise ConfigurationError(f"STACKSAGA_STORE names {address} and the database {address.name!r}: write {EXAMPLE}")
    return address
