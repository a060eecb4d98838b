"""Signals for every change of state, sent with the Flask application as sender once the change is recorded.

A receiver runs in the thread or greenlet that runs the transaction. If it fails, that is logged with the transaction id
and the transaction goes on.
"""

from __future__ import annotations

from blinker import Namespace
from flask import Flask

from stacksaga_flask.engine.node import Observer, StateChange
from stacksaga_flask.store.contract import TransactionRow, Tryout

_namespace = Namespace()

transaction_state_changed = _namespace.signal("transaction-state-changed")
"""Sent with ``change``, a `stacksaga_flask.StateChange`."""

step_attempted = _namespace.signal("step-attempted")
"""Sent with ``transaction_id``, ``saga_name`` and ``tryout``, a `stacksaga_flask.Tryout`."""


class SignalObserver(Observer):
    """Sends what an engine recorded as signals of one application."""

    def __init__(self, app: Flask) -> None:
        self._app = app

    def state_changed(self, change: StateChange) -> None:
        if transaction_state_changed.receivers:
            transaction_state_changed.send(self._app, change=change)

    def step_attempted(self, row: TransactionRow, tryout: Tryout) -> None:
        if step_attempted.receivers:
            step_attempted.send(self._app, transaction_id=row.transaction_id, saga_name=row.saga_name, tryout=tryout)
