"""One attempt at one execution of a step: budget, surroundings, outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

from stacksaga_flask.clock import SECOND, Clock
from stacksaga_flask.errors import PayloadError
from stacksaga_flask.saga.context import StepContext, logger
from stacksaga_flask.saga.definition import Saga
from stacksaga_flask.saga.outcome import (
    FailedForNow,
    FailedUnexpectedly,
    Outcome,
    Retryable,
    Succeeded,
    described,
    outcome_of,
)
from stacksaga_flask.saga.step import Execution
from stacksaga_flask.store.contract import ExecutionType, TransactionRow
from stacksaga_flask.threads import threads_are_greenlets

T = TypeVar("T")


class Surroundings(Protocol):
    """Runs a step where the application wants it to run, and lets what it raises pass."""

    def __call__(self, context: StepContext[Any] | None, step: Callable[[], Any], /) -> Any:
        """Call the step and return what it returns. There is no context for a saga's result function."""


def run_plainly(context: StepContext[Any] | None, step: Callable[[], Any], /) -> Any:
    """Run a step as it is: the surroundings of a plain WSGI application."""
    return step()


class Attempt(NamedTuple):
    """How one attempt went, with the times at which it began and ended in microseconds.

    Attributes:
        interrupted: What ended the step from outside, a worker's time-out or end, and is to be raised again.
    """

    outcome: Outcome
    created_at: int
    finished_at: int
    interrupted: BaseException | None = None


class BudgetUsedUp(Retryable):
    """The step was interrupted when its time budget was used up."""


class Executor:
    """Calls steps for one process.

    Args:
        clock: The process's clock.
        surroundings: Where steps run.
        step_budget: Default time budget in microseconds.
        payload_limit: Bytes.
    """

    def __init__(self, clock: Clock, surroundings: Surroundings, *, step_budget: int, payload_limit: int) -> None:
        self._clock = clock
        self._surroundings = surroundings
        self._step_budget = step_budget
        self._payload_limit = payload_limit
        self.interrupts = threads_are_greenlets()
        self.interruptions = _interruptions(self.interrupts)

    def budget(self, execution: Execution[Any]) -> int:
        """Time budget of one attempt in microseconds."""
        return execution.budget or self._step_budget

    def outside(self, function: Callable[[], T]) -> T:
        """Run a function of the application that is no step in the surroundings of steps."""
        result: T = self._surroundings(None, function)
        return result

    def attempt(
        self,
        saga: Saga[Any, Any],
        row: TransactionRow,
        step_name: str,
        execution_type: ExecutionType,
        *,
        attempt: int,
    ) -> Attempt:
        """Run one side of a step on the recorded payload.

        The step gets a copy of its own, as a later recovery would, so what a failed attempt changed is gone.
        """
        execution = saga.declared(step_name).execution(execution_type)
        created_at = self._clock.now()
        try:
            outcome = self._outcome(saga, execution, row, step_name, execution_type, attempt)
        except Exception as error:  # noqa: BLE001 - whatever a step raises is its outcome, recorded by the caller
            outcome = outcome_of(error, self._clock.now())
            if isinstance(outcome, FailedUnexpectedly):
                logger.error(
                    "%s/%s %s failed unexpectedly; transaction_id=%s",
                    *(saga.name, step_name, execution_type.value, row.transaction_id),
                    exc_info=error,
                )
        except self.interruptions as error:
            # As with a time-out nobody knows what was done (R8), but there may be time to say so.
            outcome = FailedForNow(f"the step was interrupted by {described(error)}; what it did is unknown", None)
            return Attempt(outcome, created_at, self._clock.now(), error)
        return Attempt(outcome, created_at, self._clock.now())

    def _outcome(
        self,
        saga: Saga[Any, Any],
        execution: Execution[Any],
        row: TransactionRow,
        step_name: str,
        execution_type: ExecutionType,
        attempt: int,
    ) -> Outcome:
        payload = saga.codec.decode(row.payload, row.payload_version)
        budget = self.budget(execution)
        context: StepContext[Any] = StepContext(
            transaction_id=row.transaction_id,
            saga_name=saga.name,
            step_name=step_name,
            execution_type=execution_type,
            attempt=attempt,
            payload=payload,
            reason=row.reason,
            ends_at=self._clock.boot() + budget,
            clock=self._clock,
        )

        def call() -> Any:
            return execution.function(payload, context)

        surroundings = self._surroundings
        if self.interrupts:
            returned = _interrupted(budget, lambda: surroundings(context, call))
        else:
            returned = surroundings(context, call)
        return Succeeded(self._recorded(saga, step_name, payload if returned is None else returned))

    def _recorded(self, saga: Saga[Any, Any], step_name: str, payload: Any) -> bytes:
        try:
            return saga.codec.encode(payload, limit=self._payload_limit)
        except PayloadError as error:
            raise PayloadError(f"what the step {step_name!r} left cannot be recorded: {error}") from error


def _interruptions(gevent_too: bool) -> tuple[type[BaseException], ...]:
    """What a server raises in a step to end its worker."""
    if not gevent_too:
        return (SystemExit, KeyboardInterrupt)
    import gevent

    return (SystemExit, KeyboardInterrupt, gevent.GreenletExit, gevent.Timeout)


def _interrupted(budget: int, call: Callable[[], Any]) -> Any:
    import gevent

    timeout = gevent.Timeout.start_new(budget / SECOND)
    try:
        return call()
    except gevent.Timeout as error:
        if error is timeout:
            raise BudgetUsedUp(
                f"the step was interrupted after its time budget of {budget / SECOND:g} s; what it did is unknown"
            ) from error
        raise Retryable(f"a timeout of the step's own or of its caller ended it: {error}") from error
    finally:
        timeout.close()
