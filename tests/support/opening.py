"""Opening and setting up a store by its URL, as an application's settings would."""

from __future__ import annotations

from stacksaga_flask import Settings, SystemTime, read_settings
from stacksaga_flask.store.contract import Scope, Store
from stacksaga_flask.store.opening import Setup, init_schema, open_store

SHOP = Scope("default", "default", "shop")
DEVELOPMENT = Setup(development=True)


def settings_of(url: str, scope: Scope, **settings: object) -> Settings:
    """Settings of a service whose store that is; others by their names in small letters."""
    keys = {f"STACKSAGA_{name.upper()}": value for name, value in settings.items()}
    place = {"STACKSAGA_STORE": url, "STACKSAGA_REGION": scope.region, "STACKSAGA_CLUSTER": scope.cluster}
    return read_settings({**place, **keys}, application_name=scope.service_name, environment={})


def open_url(url: str, scope: Scope, **settings: object) -> Store:
    """The store of that URL and scope."""
    return open_store(settings_of(url, scope, **settings), SystemTime())


def init_url(url: str, scope: Scope, *, setup: Setup | None = None, **settings: object) -> list[str]:
    """What ``init-schema`` applied there."""
    return init_schema(settings_of(url, scope, **settings), SystemTime(), setup or Setup())
