"""The shop: a Flask application whose orders are transactions of the saga ``place-order``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener
from uuid import UUID

from flask import Flask, Response, abort, current_app, request

from stacksaga_flask import Rejected, Saga, StackSaga, StepContext
from stacksaga_flask.demo.timeline import announce

PRICES = {"mug": Decimal("12.50"), "lamp": Decimal("49.00")}

# -- the saga --------------------------------------------------------------------------------------------------


@dataclass
class Order:
    """What the steps know and find out. It is stored after each of them."""

    item: str
    quantity: int
    total: Decimal
    payment: str | None = None
    parcel: str | None = None


def receipt(order: Order) -> dict[str, str | None]:
    """What the customer gets to see of a completed order."""
    return {"total": str(order.total), "payment": order.payment, "parcel": order.parcel}


place_order = Saga("place-order", payload=Order, result=receipt)


@place_order.step
def reserve(order: Order, context: StepContext[Order]) -> None:
    call(context, "stock", "reserve", item=order.item, quantity=order.quantity)


@reserve.revert
def release(order: Order, context: StepContext[Order]) -> None:
    call(context, "stock", "release")


@place_order.step
def charge(order: Order, context: StepContext[Order]) -> None:
    order.payment = call(context, "payments", "charge", amount=str(order.total))["number"]


@charge.revert
def refund(order: Order, context: StepContext[Order]) -> None:
    call(context, "payments", "refund")


@place_order.pivot
def ship(order: Order, context: StepContext[Order]) -> None:
    order.parcel = call(context, "shipping", "ship", item=order.item, quantity=order.quantity)["number"]


@place_order.step
def confirm(order: Order, context: StepContext[Order]) -> None:
    call(context, "stock", "confirm")


# -- how a step calls a participant ----------------------------------------------------------------------------

# The participants are on this machine, whatever proxy the environment names.
_opener = build_opener(ProxyHandler({}))


def call(context: StepContext[Order], service: str, action: str, **body: Any) -> dict[str, Any]:
    """Ask a participant to act, once per idempotency key.

    Raises:
        Rejected: It refused, and did nothing.
        OSError: Anything else; the engine recognises which errors are passing (503, time-outs, resets).
    """
    options = context.request_options()
    asked = Request(
        f"{current_app.config[f'{service.upper()}_URL']}/{action}",
        data=json.dumps({"order": str(context.transaction_id), **body}).encode(),
        headers={"Content-Type": "application/json", **options["headers"]},
    )
    try:
        with _opener.open(asked, timeout=options["timeout"]) as response:
            answer: dict[str, Any] = json.load(response)
            return answer
    except HTTPError as error:
        with error:
            if error.code in (402, 409):
                raise Rejected(json.load(error)["reason"]) from None
        raise


# -- the web application ---------------------------------------------------------------------------------------


def may_see(transaction_id: UUID) -> bool:
    """A stand-in: a real shop asks whether the order is one of the customer who is logged in."""
    return request.headers.get("Authorization") == f"Bearer {current_app.config['TOKEN']}"


def create_app() -> Flask:
    """The shop, configured from the environment: ``SHOP_STACKSAGA_STORE``, ``SHOP_STOCK_URL`` and so on."""
    app = Flask(__name__)
    app.config["STACKSAGA_SERVICE_NAME"] = "shop"
    app.config.from_prefixed_env("SHOP")
    stacksaga = StackSaga(app, sagas=[place_order])
    stacksaga.add_status_view(app, authorize=may_see, url="/orders/<uuid:transaction_id>")
    if "TIMELINE" in app.config:
        announce(app, app.config["TIMELINE"])

    @app.post("/orders")
    def place() -> Response:
        asked = request.get_json()
        item, quantity = asked["item"], int(asked["quantity"])
        if item not in PRICES or quantity < 1:
            abort(400)
        return stacksaga.run(place_order, Order(item, quantity, total=PRICES[item] * quantity))

    @app.get("/health")
    def health() -> str:
        # A real question to the event store, so that the answer is no when orders could not be placed.
        stacksaga.engine.find(UUID(int=0))
        return "ok"

    return app
