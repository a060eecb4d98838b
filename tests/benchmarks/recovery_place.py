"""Where the recovery benchmark keeps its transactions, and the saga that they are of."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from stacksaga_flask import Engine, ManualTime, Saga, Settings, StepContext, SystemTime
from stacksaga_flask.clock import SECOND
from stacksaga_flask.store.contract import Scope, Store
from stacksaga_flask.store.opening import open_store
from tests.benchmarks.empty_saga import Order
from tests.support.opening import settings_of
from tests.support.recovery_time import StoreElsewhere

STEPS: Final = ("reserve", "charge", "ship")
AGO: Final = 11 * 3600 * SECOND
"""How long ago the transactions are started: their watchdogs lie ten hours later, so their windows are sealed now."""

Called: TypeAlias = Callable[[str, UUID], None]
"""Is told which step was called, and for which transaction."""


class Place(NamedTuple):
    """A scope in an event store."""

    url: str
    service: str

    @property
    def scope(self) -> Scope:
        """The scope."""
        return Scope("default", "default", self.service)

    def settings(self, **more: object) -> Settings:
        """The settings: every one that matters here at its default."""
        return settings_of(self.url, self.scope, stop_at_sigterm=False, **more)


def recovered_saga(called: Called) -> Saga[Order, None]:
    """Three steps that do nothing but tell that they were called."""
    saga: Saga[Order, None] = Saga("three-recovered-steps", payload=Order)

    def add(name: str) -> None:
        def process(order: Order, context: StepContext[Order]) -> None:
            called(name, context.transaction_id)

        def revert(order: Order, context: StepContext[Order]) -> None:
            called(f"revert of {name}", context.transaction_id)

        process.__name__, revert.__name__ = name, f"revert_{name}"
        saga.step(process).revert(revert)

    for name in STEPS:
        add(name)
    return saga


@contextmanager
def engine_then(place: Place, saga: Saga[Any, Any], then: int) -> Iterator[Engine]:
    """An engine that believes in a time, as its store seems to. It writes no lock file."""
    settings, time = place.settings(run_directory=""), ManualTime(then)

    def open_then() -> Any:
        return StoreElsewhere(open_store(settings, SystemTime()), time)

    engine = Engine(settings, sagas=[saga], open_store=open_then, time_source=time, in_background=False)
    try:
        yield engine
    finally:
        engine.close()


@contextmanager
def store_at(place: Place) -> Iterator[Store]:
    """The store of a place."""
    store = open_store(place.settings(run_directory=""), SystemTime())
    try:
        yield store
    finally:
        store.close()
