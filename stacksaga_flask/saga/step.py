"""A step of a saga as it was declared: its functions, what they may cost, what undoes it."""

from __future__ import annotations

import datetime
import inspect
import typing
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

from stacksaga_flask.config_values import duration
from stacksaga_flask.errors import DefinitionError
from stacksaga_flask.saga.context import StepContext
from stacksaga_flask.store.contract import ExecutionType
from stacksaga_flask.transitions import PlannedStep, StepKind

P = TypeVar("P")

StepFunction = Callable[[P, StepContext[P]], P | None]
"""Takes the payload and the context. Returns the new payload, or None to keep the (changed) one it was given."""

Duration = str | int | float | datetime.timedelta


class Execution(Generic[P]):
    """One side of a step: its function and what it may cost.

    Attributes:
        function: The step function.
        budget: Time budget of one attempt in microseconds; None takes STACKSAGA_STEP_BUDGET.
        attempts: In-process attempts; None takes STACKSAGA_STEP_ATTEMPTS.
        backoff: Longest wait before the second attempt in microseconds, doubled for each further one and drawn at
            random below that; None takes STACKSAGA_STEP_BACKOFF.
    """

    __slots__ = ("attempts", "backoff", "budget", "function")

    def __init__(
        self,
        function: StepFunction[P],
        *,
        budget: Duration | None,
        attempts: int | None,
        backoff: Duration | None,
    ) -> None:
        name = function.__name__
        if attempts is not None and (not isinstance(attempts, int) or attempts < 1):
            raise DefinitionError(f"{name}: attempts={attempts!r} is no whole number above 0; the first attempt counts")
        self.function = function
        self.attempts = attempts
        self.budget = _positive(name, "budget", budget)
        self.backoff = _positive(name, "backoff", backoff)


def _positive(name: str, option: str, value: Duration | None) -> int | None:
    if value is None:
        return None
    try:
        microseconds: int = duration(at_least=1000)(value)
    except ValueError as error:
        raise DefinitionError(f"{name}: {option}={value!r} is refused: {error}") from error
    return microseconds


class Step(Generic[P]):
    """A declared step. Call it to run its process function, as a unit test does."""

    def __init__(self, saga_name: str, payload_type: type[P], plan: PlannedStep, process: Execution[P]) -> None:
        self._saga_name = saga_name
        self._payload_type = payload_type
        self.plan = plan
        self.process = process
        self.reverting: Execution[P] | None = None

    @property
    def name(self) -> str:
        """The step's name, as stored."""
        return self.plan.name

    def execution(self, execution_type: ExecutionType) -> Execution[P]:
        """One side of the step."""
        if execution_type is ExecutionType.PROCESS:
            return self.process
        if self.reverting is None:
            raise AssertionError(f"{self._saga_name}: {self.name} was planned to be reverted but declares no revert")
        return self.reverting

    def __call__(self, payload: P, context: StepContext[P]) -> P | None:
        return self.process.function(payload, context)

    @overload
    def revert(self, function: StepFunction[P], /) -> StepFunction[P]: ...

    @overload
    def revert(
        self, *, budget: Duration | None = ..., attempts: int | None = ..., backoff: Duration | None = ...
    ) -> Callable[[StepFunction[P]], StepFunction[P]]: ...

    def revert(
        self,
        function: StepFunction[P] | None = None,
        *,
        budget: Duration | None = None,
        attempts: int | None = None,
        backoff: Duration | None = None,
    ) -> StepFunction[P] | Callable[[StepFunction[P]], StepFunction[P]]:
        """Declare what undoes this step.

        It must tolerate that the step never happened: it runs too when a step failed and nobody knows what was done
        (R8). It has an idempotency key of its own.

        Raises:
            DefinitionError: The step is never reverted, or already has a revert.
        """

        def declare(revert: StepFunction[P]) -> StepFunction[P]:
            if self.plan.kind is not StepKind.COMMAND:
                raise DefinitionError(
                    f"{self._saga_name}: {self.name!r} is a {self.plan.kind.value} step, which is never reverted"
                    f"{_WHY_NOT_REVERTED[self.plan.kind]}: remove its revert"
                )
            if self.reverting is not None:
                raise DefinitionError(f"{self._saga_name}: {self.name!r} has two reverts: keep one")
            check_signature(self._saga_name, self._payload_type, revert)
            self.reverting = Execution(revert, budget=budget, attempts=attempts, backoff=backoff)
            return revert

        return declare if function is None else declare(function)


_WHY_NOT_REVERTED = {
    StepKind.QUERY: " since it only reads",
    StepKind.PIVOT: ", being the point of no return",
    StepKind.RETRIABLE: " since it stands after the pivot and is retried until it succeeds",
}


def check_signature(saga_name: str, payload_type: Any, function: Callable[..., Any]) -> None:
    """Refuse what cannot be called as a step, or is annotated to return what is no payload.

    Raises:
        DefinitionError: It does.
    """
    _check_call(saga_name, function)
    try:
        returned = typing.get_type_hints(function).get("return", Any)
    except NameError:
        # Names that exist for type checkers only; what the step returns is checked when it does.
        return
    accepted = (Any, type(None), _bare(payload_type))
    for kind in typing.get_args(returned) if typing.get_origin(returned) in _UNIONS else (returned,):
        if _bare(kind) not in accepted:
            raise DefinitionError(
                f"{saga_name}: {function.__name__!r} is declared to return {kind!r}, which is not the payload "
                f"{payload_type!r}: return the payload, or None to keep the one given"
            )


def _check_call(saga_name: str, function: Callable[..., Any]) -> None:
    name = getattr(function, "__name__", None)
    if not callable(function) or name is None:
        raise DefinitionError(
            f"{saga_name}: {function!r} is no function: declare a step with @saga.step above a def, and options by name"
        )
    if any(is_other(function) for is_other in _NOT_CALLED_ONCE):
        raise DefinitionError(
            f"{saga_name}: {name!r} is a coroutine or a generator function, which a call only begins: make it a plain "
            f"function"
        )
    try:
        inspect.signature(function).bind(None, None)
    except (TypeError, ValueError) as error:
        raise DefinitionError(
            f"{saga_name}: {name!r} cannot be called with a payload and a context ({error}): declare it as "
            f"def {name}(payload, context)"
        ) from error


_NOT_CALLED_ONCE = (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def _bare(kind: Any) -> Any:
    """The class behind a parametrised type."""
    return typing.get_origin(kind) or kind


_UNIONS = (typing.Union, type(int | None))
