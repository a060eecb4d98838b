"""How a transaction's state and an error are told to a client. Subclass `Answers` to change any of it.

| outcome | answer |
|---|---|
| completed | 200 and the saga's public result |
| still worked on, frozen, or a step done but not recorded | 202, ``Location`` and ``Retry-After`` |
| compensated | 422 and the reason |
| key used with another payload | 409 |
| not started, unknown start, clock off | 503 and ``Retry-After`` |
"""

from __future__ import annotations

import math
from http import HTTPStatus
from typing import Any

import msgspec
from flask import Response, current_app, url_for

from stacksaga_flask.clock import SECOND
from stacksaga_flask.config import Settings
from stacksaga_flask.engine.engine import Transaction
from stacksaga_flask.errors import (
    ClockSkew,
    Compensated,
    InvalidKey,
    KeyConflict,
    NoSuchTransaction,
    NotStarted,
    PayloadError,
    PayloadTooLarge,
    StackSagaError,
    StartUnknown,
    StoreError,
    TransactionError,
)
from stacksaga_flask.store.contract import RunningStatus

# The answer says what the client can do about it; what the machine's own errors say stays in the log.
_PROBLEMS: dict[type[StackSagaError], tuple[HTTPStatus, str, bool]] = {
    Compensated: (HTTPStatus.UNPROCESSABLE_ENTITY, "The transaction was refused and is undone", True),
    KeyConflict: (HTTPStatus.CONFLICT, "The Idempotency-Key was used before", True),
    InvalidKey: (HTTPStatus.BAD_REQUEST, "The Idempotency-Key is not valid", True),
    PayloadTooLarge: (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "The payload is too large", False),
    PayloadError: (HTTPStatus.BAD_REQUEST, "The payload cannot be stored", False),
    NoSuchTransaction: (HTTPStatus.NOT_FOUND, "There is no such transaction", False),
    NotStarted: (HTTPStatus.SERVICE_UNAVAILABLE, "Nothing was started; repeat the request", False),
    StartUnknown: (HTTPStatus.SERVICE_UNAVAILABLE, "Whether it was started is unknown", False),
    ClockSkew: (HTTPStatus.SERVICE_UNAVAILABLE, "Nothing was started; repeat the request", False),
    StoreError: (HTTPStatus.SERVICE_UNAVAILABLE, "The event store cannot be asked now; repeat the request", False),
}
HANDLED = tuple(_PROBLEMS)
_REPEAT = "; repeat the request with the same Idempotency-Key"
_DO_NOT_REPEAT = "; repeating the request would be a second one, so ask what became of this one first"


class Answers:
    """The answers of one application."""

    def completed(self, transaction: Transaction[Any]) -> Response:
        """200 with the public result, or with id and status where the saga declares none."""
        body = transaction.public_result
        return self._answer(HTTPStatus.OK, transaction, self.described(transaction) if body is None else body)

    def working(self, transaction: Transaction[Any], settings: Settings) -> Response:
        """202 for a transaction that is still worked on: where to ask, and when."""
        response = self._answer(HTTPStatus.ACCEPTED, transaction, self.described(transaction))
        location = self.location(transaction)
        if location is not None:
            response.headers["Location"] = location
        if transaction.status is not RunningStatus.FROZEN:
            response.headers["Retry-After"] = str(self.retry_after(transaction, settings))
        return response

    def compensated(self, transaction: Transaction[Any]) -> Response:
        """422 with the reason: raises `Compensated`, which an errorhandler of the application may catch."""
        raise Compensated(transaction.reason, transaction_id=transaction.transaction_id)

    def status(self, transaction: Transaction[Any]) -> Response:
        """The status endpoint's 200: status, saga and public result only."""
        described = self.described(transaction)
        if transaction.public_result is not None:
            described["result"] = msgspec.Raw(transaction.public_result)
        response = self._answer(HTTPStatus.OK, transaction, described)
        response.headers["Cache-Control"] = "no-store"
        return response

    def problem(self, error: StackSagaError, settings: Settings) -> Response:
        """An error as ``application/problem+json``."""
        status, title, told = next(_PROBLEMS[kind] for kind in type(error).__mro__ if kind in _PROBLEMS)
        repeatable = not isinstance(error, StartUnknown) or error.keyed
        if isinstance(error, StartUnknown):
            title += _REPEAT if repeatable else _DO_NOT_REPEAT
        problem = {"type": "about:blank", "title": title, "status": status.value}
        if told:
            problem["detail"] = str(error)
        response = Response(status=status, mimetype="application/problem+json")
        transaction_id = error.transaction_id if isinstance(error, TransactionError) else None
        if transaction_id is not None:
            problem["transaction_id"] = str(transaction_id)
            response.headers["Transaction-Id"] = str(transaction_id)
        if status is HTTPStatus.SERVICE_UNAVAILABLE and repeatable:
            response.headers["Retry-After"] = str(math.ceil(settings.claim_ttl / SECOND))
        response.data = msgspec.json.encode(problem)
        return response

    def described(self, transaction: Transaction[Any]) -> dict[str, Any]:
        """What a client may know of a transaction besides its result."""
        return {
            "transaction_id": str(transaction.transaction_id),
            "saga": transaction.saga_name,
            "status": transaction.status.value,
        }

    def location(self, transaction: Transaction[Any]) -> str | None:
        """URL of the status endpoint, if one is registered."""
        endpoint = current_app.extensions["stacksaga"].status_endpoint
        return None if endpoint is None else url_for(endpoint, transaction_id=transaction.transaction_id)

    def retry_after(self, transaction: Transaction[Any], settings: Settings) -> int:
        """Seconds until a paused transaction is picked up: its window opens, and counts as sealed a little later."""
        opens_in = transaction.retry_in
        if opens_in is None:
            opens_in = settings.domain(transaction.saga_name).retry_delay_windows * settings.window_interval / SECOND
        return math.ceil(opens_in + settings.seal_delay / SECOND)

    def _answer(self, status: HTTPStatus, transaction: Transaction[Any], body: bytes | dict[str, Any]) -> Response:
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        response = Response(data, status=status, mimetype="application/json")
        response.headers["Transaction-Id"] = str(transaction.transaction_id)
        return response
