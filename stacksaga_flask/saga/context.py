"""What a step is given besides its payload."""

from __future__ import annotations

import logging
import uuid
from collections.abc import MutableMapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypedDict, TypeVar
from uuid import UUID

from stacksaga_flask.clock import SECOND, Clock
from stacksaga_flask.store.contract import ExecutionType

P = TypeVar("P")

if TYPE_CHECKING:
    Adapter: TypeAlias = logging.LoggerAdapter[logging.Logger]
else:
    Adapter = logging.LoggerAdapter  # not generic at run time before Python 3.11

logger = logging.getLogger("stacksaga_flask.step")


class RequestOptions(TypedDict):
    """Keyword arguments that requests and httpx both take."""

    timeout: float
    headers: dict[str, str]


class StepContext(Generic[P]):
    """What a step knows of its transaction and of this attempt.

    Attributes:
        transaction_id: The transaction.
        saga_name: Name of its saga.
        step_name: Name of the step.
        execution_type: Whether the step is processed or reverted.
        attempt: Which attempt at this execution this is, counted from 1 over all processes.
        payload: The payload, the same object as the step's first argument.
        reason: Why the transaction is being compensated; None while it is processed.
    """

    def __init__(
        self,
        *,
        transaction_id: UUID,
        saga_name: str,
        step_name: str,
        execution_type: ExecutionType,
        attempt: int,
        payload: P,
        reason: str | None,
        ends_at: int,
        clock: Clock,
    ) -> None:
        self.transaction_id = transaction_id
        self.saga_name = saga_name
        self.step_name = step_name
        self.execution_type = execution_type
        self.attempt = attempt
        self.payload = payload
        self.reason = reason
        self._ends_at = ends_at
        self._clock = clock

    def remaining(self) -> float:
        """Seconds left of the step's time budget; 0 once it is used up.

        Under gevent the budget interrupts the step. Threads cannot be interrupted, so give this to every call that
        takes a timeout; `request_options` does so for requests and httpx.
        """
        return max(0.0, (self._ends_at - self._clock.boot()) / SECOND)

    @cached_property
    def idempotency_key(self) -> str:
        """The same for every attempt at this step and this side of it, whoever runs it (R8).

        A revert has a key of its own. Pass it to the participant, which must do one thing once per key.
        """
        return str(uuid.uuid5(self.transaction_id, f"{self.step_name}:{self.execution_type.value}"))

    def request_options(self) -> RequestOptions:
        """``timeout`` and the ``Idempotency-Key`` header: ``requests.post(url, **context.request_options())``."""
        # A client takes a timeout of 0 for an error or for none at all.
        return {"timeout": max(self.remaining(), 0.001), "headers": {"Idempotency-Key": self.idempotency_key}}

    @cached_property
    def logger(self) -> Adapter:
        """A logger whose records carry the facts above."""
        facts: dict[str, object] = {
            "transaction_id": str(self.transaction_id),
            "saga_name": self.saga_name,
            "step_name": self.step_name,
            "execution_type": self.execution_type.value,
            "attempt": self.attempt,
            "idempotency_key": self.idempotency_key,
        }
        return _StepLogger(logger, facts)


class _StepLogger(Adapter):
    """Puts the facts into the message too, since few log formats show extra fields."""

    def __init__(self, target: logging.Logger, facts: dict[str, object]) -> None:
        super().__init__(target, facts)
        self._suffix = (
            f" [{facts['saga_name']}/{facts['step_name']} {facts['execution_type']} "
            f"attempt={facts['attempt']} transaction_id={facts['transaction_id']} "
            f"idempotency_key={facts['idempotency_key']}]"
        )

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(self.extra or {}), **(kwargs.get("extra") or {})}
        return f"{msg}{self._suffix}", kwargs
