"""A shop's saga whose participants are lists, and an engine on the memory store with a clock that tests move."""

from __future__ import annotations

from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any
from uuid import UUID

from stacksaga_flask import Engine, ManualTime, Rejected, Retryable, Saga, StepContext, read_settings
from stacksaga_flask.store.memory import MemoryStore
from tests.support.faults import FaultyStore


@dataclass
class Order:
    sku: str = "book"
    total: Decimal = Decimal("9.50")
    reservation: str = ""
    payment: str = ""


@dataclass
class Shop:
    """Three participants. `errors` holds what a call raises next, by the call's name."""

    calls: list[str] = field(default_factory=list)
    keys: dict[str, set[str]] = field(default_factory=dict)
    errors: dict[str, list[BaseException]] = field(default_factory=dict)
    during: dict[str, Any] = field(default_factory=dict)
    transaction_ids: list[UUID] = field(default_factory=list)

    def call(self, name: str, context: StepContext[Any]) -> None:
        self.calls.append(name)
        self.transaction_ids.append(context.transaction_id)
        self.keys.setdefault(name, set()).add(context.idempotency_key)
        if name in self.during:
            self.during[name]()
        if self.errors.get(name):
            raise self.errors[name].pop(0)


def place_order_saga(shop: Shop, *, honours_keys: bool = True) -> Saga[Order, dict[str, str]]:
    def receipt(order: Order) -> dict[str, str]:
        return {"payment": order.payment}

    saga = Saga("place-order", payload=Order, result=receipt)

    @saga.step
    def reserve(order: Order, context: StepContext[Order]) -> None:
        shop.call("reserve", context)
        order.reservation = "r-1"

    @reserve.revert
    def release(order: Order, context: StepContext[Order]) -> None:
        shop.call("release", context)

    @saga.step
    def charge(order: Order, context: StepContext[Order]) -> None:
        shop.call("charge", context)
        order.payment = "p-1"

    @charge.revert
    def refund(order: Order, context: StepContext[Order]) -> None:
        shop.call("refund", context)

    @saga.pivot(honours_keys=honours_keys)
    def ship(order: Order, context: StepContext[Order]) -> None:
        shop.call("ship", context)

    return saga


class Bench:
    """Everything that a test of the engine needs."""

    def __init__(self, *, honours_keys: bool = True, **settings: object) -> None:
        self.shop = Shop()
        self.time = ManualTime()
        self.saga = place_order_saga(self.shop, honours_keys=honours_keys)
        config = {"STACKSAGA_STORE": "memory://", **{f"STACKSAGA_{k.upper()}": v for k, v in settings.items()}}
        self.settings = read_settings(config, application_name="shop")
        self.engine = self.another_engine()
        self.memory = MemoryStore(self.engine.scope, self.time)
        self.store = FaultyStore(self.memory)

    def another_engine(self) -> Engine:
        """An engine on the same store, as another process has it."""
        return Engine(self.settings, sagas=[self.saga], open_store=lambda: self.store, time_source=self.time)


CARD_REFUSED = Rejected("card refused")
UNAVAILABLE = Retryable("HTTP 503")
