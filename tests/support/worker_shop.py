"""An application for real web servers, whose second step waits until the test lets it go.

The environment says where: WORKER_STORE, WORKER_SERVICE, WORKER_FOLDER and, as JSON, WORKER_SETTINGS.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from flask import Flask, request

from stacksaga_flask import Saga, StackSaga, StepContext

FOLDER = Path(os.environ["WORKER_FOLDER"])

saga: Saga[dict[str, Any], None] = Saga("place-order", payload=dict)


@saga.step
def reserve(order: dict[str, Any], context: StepContext[dict[str, Any]]) -> None:
    """Note the call."""
    note("reserve", order, context)


@reserve.revert
def release(order: dict[str, Any], context: StepContext[dict[str, Any]]) -> None:
    """Note the call."""
    note("release", order, context)


@saga.step
def charge(order: dict[str, Any], context: StepContext[dict[str, Any]]) -> None:
    """Note the call, and wait if the order says so."""
    note("charge", order, context)
    if not order["waits"]:
        return
    (FOLDER / f"inside-{order['name']}").touch()
    while not (FOLDER / f"go-{order['name']}").exists():
        if stacksaga_of(app)._in_flight.stopping:
            (FOLDER / f"stopping-{order['name']}").touch()
        time.sleep(0.01)


@charge.revert
def refund(order: dict[str, Any], context: StepContext[dict[str, Any]]) -> None:
    """Note the call."""
    note("refund", order, context)


@saga.pivot
def ship(order: dict[str, Any], context: StepContext[dict[str, Any]]) -> None:
    """Note the call."""
    note("ship", order, context)


def note(step: str, order: dict[str, Any], context: StepContext[dict[str, Any]]) -> None:
    """One line for one call, written at once."""
    line = f"{step} {order['name']} {context.transaction_id}\n".encode()
    file = os.open(FOLDER / "calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, line)
    os.close(file)


def stacksaga_of(application: Flask) -> Any:
    """The application's engine."""
    return application.extensions["stacksaga"].engine


app = Flask("shop")
app.config.update(
    STACKSAGA_STORE=os.environ["WORKER_STORE"],
    STACKSAGA_SERVICE_NAME=os.environ["WORKER_SERVICE"],
    **json.loads(os.environ.get("WORKER_SETTINGS", "{}")),
)
stacksaga = StackSaga(app, sagas=[saga])


@app.get("/ready")
def ready() -> str:
    """Says that the server serves."""
    return str(os.getpid())


@app.post("/orders")
def orders() -> Any:
    """Run the saga."""
    return stacksaga.run(saga, request.get_json())


if "WORKER_CONNECTS_EARLY" in os.environ:
    # As an application would that runs a saga while it is imported.
    stacksaga_of(app).node()
