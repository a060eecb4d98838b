"""The Flask extension: the only place that imports flask."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote
from uuid import UUID

from flask import Blueprint, Flask, Response, current_app, has_request_context, request

from stacksaga_flask.config import read_settings
from stacksaga_flask.engine.engine import Engine, Transaction, check_key
from stacksaga_flask.errors import (
    ConfigurationError,
    NoSuchTransaction,
    NotStarted,
    PayloadError,
    StackSagaError,
    StoreUnavailable,
)
from stacksaga_flask.extension.answers import HANDLED, Answers
from stacksaga_flask.extension.cli import stacksaga_commands
from stacksaga_flask.extension.signals import SignalObserver
from stacksaga_flask.extension.surroundings import step_surroundings
from stacksaga_flask.saga.definition import Saga

P = TypeVar("P")
R = TypeVar("R")

KEY_HEADER = "Idempotency-Key"
Authorize = Callable[[UUID], bool]
"""Whether the client of the current request may see the transaction."""


@dataclass
class StackSagaState:
    """What `app.extensions["stacksaga"]` holds: everything of one application."""

    engine: Engine
    answers: Answers
    status_endpoint: str | None = None


class StackSaga:
    """Sagas for a Flask application.

    Args:
        app: The application; without it call `init_app`.
        sagas: The application's sagas, registered with each application that is initialised.
        answers: How states and errors are told to clients.
        key_scope: Whose keys the current request's are, such as the id of the account that is logged in. Without it
            the ``Idempotency-Key`` header alone is the key, and two clients that send the same one meet.

    Raises:
        ConfigurationError: A ``STACKSAGA_`` setting is wrong. Nothing was opened or registered.
        DefinitionError: A saga is incomplete.
    """

    def __init__(
        self,
        app: Flask | None = None,
        *,
        sagas: Iterable[Saga[Any, Any]] = (),
        answers: Answers | None = None,
        key_scope: Callable[[], str] | None = None,
    ) -> None:
        self._sagas = list(sagas)
        self._answers = answers or Answers()
        self._key_scope = key_scope
        if app is not None:
            self.init_app(app)

    def init_app(self, app: Flask) -> None:
        """Check the application's settings and prepare it. Opens nothing: that happens at first use.

        Raises:
            ConfigurationError, DefinitionError: As for the class.
        """
        if "stacksaga" in app.extensions:
            raise ConfigurationError(f"the application {app.name!r} has a StackSaga already: call init_app once")
        settings = read_settings(app.config, application_name=app.name)
        engine = Engine(settings, sagas=self._sagas, surroundings=step_surroundings(app), observer=SignalObserver(app))
        app.extensions["stacksaga"] = StackSagaState(engine, self._answers)
        if StackSagaError not in app.error_handler_spec[None][None]:
            # One handler for the root, so that any handler of the application is a more specific one.
            app.register_error_handler(StackSagaError, self._problem)
        app.cli.add_command(stacksaga_commands)

    def register(self, saga: Saga[Any, Any]) -> None:
        """Register a saga with every application that is initialised after this, and with the current one if any.

        Raises:
            DefinitionError: It is incomplete.
        """
        self._sagas.append(saga)
        if current_app:
            self.engine.register(saga)

    @property
    def engine(self) -> Engine:
        """The engine of the current application.

        Raises:
            ConfigurationError: The application was not initialised.
        """
        return self._state().engine

    def execute(self, saga: Saga[P, R], payload: P, *, key: str | None = None) -> Transaction[R]:
        """Run a saga and return its transaction, for views that answer in their own way.

        Errors are those of `stacksaga_flask.Engine.run`.
        """
        return self.engine.run(saga, payload, key=self._key(key))

    def run(self, saga: Saga[P, R], payload: P, *, key: str | None = None) -> Response:
        """Run a saga and answer: ``return stacksaga.run(place_order, order)``.

        Args:
            saga: A registered saga.
            payload: Its payload.
            key: By default the request's ``Idempotency-Key`` header, if it has one.

        Raises:
            StackSagaError: See `stacksaga_flask.extension.answers`; each is answered unless the application handles it.
        """
        return self.answer(self.engine.run(saga, payload, key=self._key(key)))

    def start(self, saga: Saga[P, R], payload: P, *, key: str | None = None) -> Response:
        """Start a saga, answer 202 at once and leave the run to the daemon. Arguments and errors as for `run`."""
        return self.answer(self.engine.start(saga, payload, key=self._key(key)))

    def answer(self, transaction: Transaction[Any]) -> Response:
        """The answer for a transaction in its present state.

        Raises:
            Compensated: It was refused and is undone.
        """
        state = self._state()
        if transaction.completed:
            return state.answers.completed(transaction)
        if transaction.compensated:
            return state.answers.compensated(transaction)
        return state.answers.working(transaction, state.engine.settings)

    def add_status_view(
        self, target: Flask | Blueprint, *, authorize: Authorize, url: str = "/transactions/<uuid:transaction_id>"
    ) -> None:
        """Register the status endpoint, which 202 answers then point to.

        Args:
            target: An initialised application, or a blueprint.
            authorize: Whether the client of the current request may see the transaction. An unknown transaction and
                a forbidden one get the same 404.
            url: Rule with one ``uuid`` converter named ``transaction_id``.
        """
        if not callable(authorize) or "transaction_id" not in url:
            raise ConfigurationError(
                f"the status endpoint needs a callable authorize and a url with <uuid:transaction_id>, not "
                f"{authorize!r} and {url!r}"
            )
        view = self._status_view(authorize)
        endpoint = "stacksaga_status"
        target.add_url_rule(url, endpoint=endpoint, view_func=view)
        if isinstance(target, Flask):
            _state_of(target).status_endpoint = endpoint
            return

        def remember(setup: Any) -> None:
            _state_of(setup.app).status_endpoint = f"{setup.name}.{endpoint}"

        target.record(remember)

    def _key(self, key: str | None) -> str | None:
        """The given key, or the one in the request's header.

        Raises:
            InvalidKey: It cannot be a key.
        """
        if key is not None or not has_request_context():
            return key
        key = request.headers.get(KEY_HEADER)
        if key is None or self._key_scope is None:
            return key
        check_key(key)
        # The client chooses the key, so no scope may end where another's key begins.
        return f"{quote(self._key_scope(), safe='')}/{key}"

    def _status_view(self, authorize: Authorize) -> Callable[[UUID], Response]:
        def stacksaga_status(transaction_id: UUID) -> Response:
            state = self._state()
            transaction = state.engine.find(transaction_id)
            if not authorize(transaction_id) or transaction is None:
                raise NoSuchTransaction
            return state.answers.status(transaction)

        return stacksaga_status

    def _problem(self, error: StackSagaError) -> Response:
        if not isinstance(error, HANDLED):
            raise error
        state = self._state()
        response = state.answers.problem(error, state.engine.settings)
        if response.status_code >= 500:
            # In an outage of the store each request would leave a traceback that tells no more than its message.
            expected = isinstance(error, (NotStarted, StoreUnavailable))
            current_app.logger.error("%s", error, exc_info=None if expected else error)
        elif isinstance(error, PayloadError):
            current_app.logger.warning("%s", error)
        return response

    def _state(self) -> StackSagaState:
        return _state_of(current_app)


def _state_of(app: Flask) -> StackSagaState:
    state = app.extensions.get("stacksaga")
    if not isinstance(state, StackSagaState):
        raise ConfigurationError(f"the application {app.name!r} has no StackSaga: call stacksaga.init_app(app) first")
    return state
