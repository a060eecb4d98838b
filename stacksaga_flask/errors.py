"""Every error that this library raises, under one root.

The docstring of each class is its default message; the facts are attributes, and the error of a driver is
``__cause__``. Errors of a saga's own steps (`Retryable`, `Rejected`) stand in `stacksaga_flask.saga.outcome`.
"""

from __future__ import annotations

from uuid import UUID


class StackSagaError(Exception):
    """Something went wrong in stacksaga_flask."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class ConfigurationError(StackSagaError):
    """A setting is missing, unknown or breaks a rule; nothing was opened."""


class UnsupportedPlatform(StackSagaError):
    """stacksaga_flask runs on Linux (and on macOS for development)."""


class DefinitionError(StackSagaError):
    """A saga is declared in a way that could not be kept correct."""


class SagaNotRegistered(StackSagaError):
    """The saga is not registered with this application, so a recovery could not find it."""

    def __init__(self, saga_name: str) -> None:
        super().__init__(
            f"the saga {saga_name!r} is not registered with this application, so a recovery could not find it: "
            f"pass it as StackSaga(app, sagas=[...]) or call register() before the first request"
        )
        self.saga_name = saga_name


class PayloadError(StackSagaError):
    """A payload cannot be stored, or could not be read back as it was."""


class PayloadTooLarge(PayloadError):
    """A payload is over the limit."""

    def __init__(self, size: int, limit: int) -> None:
        super().__init__(
            f"the payload has {size} bytes and STACKSAGA_PAYLOAD_LIMIT is {limit}: keep large data in a store of "
            f"your own and put its key into the payload"
        )
        self.size = size
        self.limit = limit


class RequestUsedInStep(StackSagaError):
    """A step touched the request, the session or the view's g: put it into the payload."""


class NoSuchTransaction(StackSagaError):
    """There is no such transaction, or it may not be seen."""


# -- stores ----------------------------------------------------------------------------------------------------


class StoreError(StackSagaError):
    """The event store did not do what was asked."""


class StoreUnavailable(StoreError):
    """The event store cannot be reached; nothing was written."""


class StoreRefused(StoreError):
    """The event store refused the operation for good; nothing was written."""


class OutcomeUnknown(StoreError):
    """The event store did not acknowledge a write, which may have been applied."""


class Fenced(StoreError):
    """Another owner has written this transaction; nothing was written (R6, R13)."""


class CorruptRow(StoreRefused):
    """A row holds what no version of ours writes."""

    def __init__(self, message: str, *, transaction_id: UUID) -> None:
        super().__init__(message)
        self.transaction_id = transaction_id


class SchemaMissing(StoreRefused):
    """The event store lacks tables: run `flask stacksaga init-schema`."""


class SchemaMismatch(StoreRefused):
    """The event store was set up with another schema version, window interval or clock skew margin (R15)."""


# -- running a transaction -------------------------------------------------------------------------------------


class TransactionError(StackSagaError):
    """A transaction could not be run as asked."""

    def __init__(self, message: str | None = None, *, transaction_id: UUID | None = None) -> None:
        super().__init__(message)
        self.transaction_id = transaction_id


class RightEnded(TransactionError):
    """This process may no longer write the transaction (R6)."""


class NotStarted(TransactionError):
    """The transaction was not started and no step ran; it may be started again."""


class StartUnknown(TransactionError):
    """Whether the transaction was started is unknown; no step ran here (R2, R17)."""

    def __init__(self, message: str | None = None, *, transaction_id: UUID | None = None, keyed: bool = False) -> None:
        super().__init__(message, transaction_id=transaction_id)
        self.keyed = keyed
        """Whether the request carried an Idempotency-Key, and so may be repeated with it."""


class KeyConflict(TransactionError):
    """The Idempotency-Key was used before with another saga or payload (R17)."""


class ClockSkew(TransactionError):
    """This machine's clock is further from the store's than the clock skew margin, so nothing is started (R14)."""


class InvalidKey(TransactionError):
    """An Idempotency-Key is from 1 to 512 printable ASCII characters."""


class Compensated(TransactionError):
    """The transaction was refused, and everything that had been done is undone."""
