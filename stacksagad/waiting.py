"""Waiting for an event store that is away."""

from __future__ import annotations

import logging
from typing import Final

from stacksaga_flask import Engine, SystemTime
from stacksaga_flask.clock import SECOND, Clock
from stacksaga_flask.engine.node import Node
from stacksaga_flask.engine.repeat import repeatedly
from stacksaga_flask.errors import SchemaMismatch, StoreError

logger = logging.getLogger("stacksagad")

_FOR_EVER: Final = 1 << 62
_SAY_AGAIN: Final = 60 * SECOND


def wait_for_store(engine: Engine) -> Node:
    """Connect to the store, however long it is away: a node that ends for it would have to be started by a person.

    Raises:
        SchemaMismatch: It was set up with another grid, which waiting does not change (R15).
    """
    clock = Clock(SystemTime(), skew_margin=engine.settings.clock_skew_margin)
    said: tuple[str, int] | None = None

    def connect() -> Node:
        nonlocal said
        try:
            return engine.node()
        except SchemaMismatch:
            raise
        except StoreError as error:
            if said is None or said[0] != str(error) or clock.boot() - said[1] >= _SAY_AGAIN:
                said = str(error), clock.boot()
                logger.warning("waiting for the event store: %s", error)
            raise _StoreAway from error

    node = repeatedly(connect, (_StoreAway,), clock, at_most=_FOR_EVER)
    if said is not None:
        logger.info("the event store answers")
    return node


class _StoreAway(StoreError):
    """The event store is away, for whatever reason."""
