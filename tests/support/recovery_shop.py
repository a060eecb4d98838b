"""The application of the recovery tests, for web servers and for retry nodes.

The environment says where: SHOP_STORE, SHOP_SERVICE, SHOP_FOLDER and, as JSON, SHOP_SETTINGS.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from flask import Flask, Response, request

from stacksaga_flask import StackSaga
from tests.support.recovery_saga import Participants, place_order_saga


def _is_stopping() -> bool:
    stopping: bool = app.extensions["stacksaga"].engine._in_flight.stopping
    return stopping


app = Flask("shop")
app.config.update(
    STACKSAGA_STORE=os.environ["SHOP_STORE"],
    STACKSAGA_SERVICE_NAME=os.environ["SHOP_SERVICE"],
    **json.loads(os.environ["SHOP_SETTINGS"]),
)
saga = place_order_saga(Participants(Path(os.environ["SHOP_FOLDER"]), _is_stopping))
stacksaga = StackSaga(app, sagas=[saga])


@app.get("/ready")
def ready() -> str:
    """Says that the server serves."""
    return str(os.getpid())


@app.post("/orders")
def orders() -> Response:
    """Run the saga."""
    return stacksaga.run(saga, request.get_json())
