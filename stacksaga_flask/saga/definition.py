"""What a user declares: a saga and its steps.

Every rule that can be checked at declaration is checked there, before any transaction exists.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, overload

import msgspec

from stacksaga_flask.config_values import plain_name
from stacksaga_flask.errors import DefinitionError
from stacksaga_flask.saga.payload import PayloadCodec, Upcaster, payload_codec
from stacksaga_flask.saga.result import result_type
from stacksaga_flask.saga.step import Duration, Execution, Step, StepFunction, check_signature
from stacksaga_flask.transitions import Plan, PlannedStep, StepKind

P = TypeVar("P")
R = TypeVar("R")


class Saga(Generic[P, R]):
    """A named, versioned sequence of steps over one payload.

    Args:
        name: ASCII; stored with each transaction and the key for per-domain settings. Never change it while
            transactions of it are unfinished.
        payload: A msgspec Struct, a dataclass, a TypedDict or ``dict``.
        result: Makes the public result of a completed transaction from its payload; without it the result is None.
        version: Of the sequence of steps.
        payload_version: Of the payload's shape; raise it when that changes, and declare an `upcast`.

    Raises:
        DefinitionError: The name or the payload's type cannot be stored.
    """

    @overload
    def __init__(
        self: Saga[P, None], name: str, *, payload: type[P], version: int = ..., payload_version: int = ...
    ) -> None: ...

    @overload
    def __init__(
        self: Saga[P, R],
        name: str,
        *,
        payload: type[P],
        result: Callable[[P], R],
        version: int = ...,
        payload_version: int = ...,
    ) -> None: ...

    def __init__(
        self,
        name: str,
        *,
        payload: type[P],
        result: Callable[[P], R] | None = None,
        version: int = 1,
        payload_version: int = 1,
    ) -> None:
        self.name = _stored_name("saga", name)
        self.version = _version(self.name, "version", version)
        self.payload_type = payload
        self.codec: PayloadCodec[P] = payload_codec(
            payload, version=_version(self.name, "payload_version", payload_version)
        )
        self._result = result
        self._result_type = result_type(name, result)
        self._steps: dict[str, Step[P]] = {}
        self._pivot: str | None = None
        self._plan: Plan | None = None

    def __repr__(self) -> str:
        return f"<Saga {self.name!r} version {self.version}: {', '.join(self._steps) or 'no step'}>"

    @overload
    def step(self, function: StepFunction[P], /) -> Step[P]: ...

    @overload
    def step(
        self,
        *,
        name: str | None = ...,
        budget: Duration | None = ...,
        attempts: int | None = ...,
        backoff: Duration | None = ...,
    ) -> Callable[[StepFunction[P]], Step[P]]: ...

    def step(
        self,
        function: StepFunction[P] | None = None,
        *,
        name: str | None = None,
        budget: Duration | None = None,
        attempts: int | None = None,
        backoff: Duration | None = None,
    ) -> Step[P] | Callable[[StepFunction[P]], Step[P]]:
        """Declare the next command step; give it a `Step.revert`. After the pivot it is retriable and has none.

        Args:
            function: The process function.
            name: Stored; the function's name by default.
            budget: Time budget of one attempt.
            attempts: In-process attempts before the transaction is paused.
            backoff: Longest wait before the second attempt; doubled for each further one.

        Raises:
            DefinitionError: The name is taken or not ASCII, or the function cannot be a step.
        """

        def declare(process: StepFunction[P]) -> Step[P]:
            kind = StepKind.COMMAND if self._pivot is None else StepKind.RETRIABLE
            check_signature(self.name, self.payload_type, process)
            return self._add(kind, process, name, Execution(process, budget=budget, attempts=attempts, backoff=backoff))

        return declare if function is None else declare(function)

    @overload
    def query(self, function: StepFunction[P], /) -> Step[P]: ...

    @overload
    def query(
        self,
        *,
        name: str | None = ...,
        budget: Duration | None = ...,
        attempts: int | None = ...,
        backoff: Duration | None = ...,
    ) -> Callable[[StepFunction[P]], Step[P]]: ...

    def query(
        self,
        function: StepFunction[P] | None = None,
        *,
        name: str | None = None,
        budget: Duration | None = None,
        attempts: int | None = None,
        backoff: Duration | None = None,
    ) -> Step[P] | Callable[[StepFunction[P]], Step[P]]:
        """Declare the next step as one that only reads, so that there is nothing to revert. See `step`."""

        def declare(process: StepFunction[P]) -> Step[P]:
            kind = StepKind.QUERY if self._pivot is None else StepKind.RETRIABLE
            check_signature(self.name, self.payload_type, process)
            return self._add(kind, process, name, Execution(process, budget=budget, attempts=attempts, backoff=backoff))

        return declare if function is None else declare(function)

    @overload
    def pivot(self, function: StepFunction[P], /) -> Step[P]: ...

    @overload
    def pivot(
        self,
        *,
        name: str | None = ...,
        budget: Duration | None = ...,
        attempts: int | None = ...,
        backoff: Duration | None = ...,
        honours_keys: bool = ...,
    ) -> Callable[[StepFunction[P]], Step[P]]: ...

    def pivot(
        self,
        function: StepFunction[P] | None = None,
        *,
        name: str | None = None,
        budget: Duration | None = None,
        attempts: int | None = None,
        backoff: Duration | None = None,
        honours_keys: bool = True,
    ) -> Step[P] | Callable[[StepFunction[P]], Step[P]]:
        """Declare the point of no return: until it is rejected or done it is retried, then it is never undone.

        Args:
            function, name, budget, attempts, backoff: See `step`.
            honours_keys: Whether its participant answers every request under one idempotency key alike. If not, a
                rejection after an attempt whose outcome is unknown freezes the transaction (R8).

        Raises:
            DefinitionError: There is a pivot already; otherwise see `step`.
        """

        def declare(process: StepFunction[P]) -> Step[P]:
            check_signature(self.name, self.payload_type, process)
            execution = Execution(process, budget=budget, attempts=attempts, backoff=backoff)
            return self._add(StepKind.PIVOT, process, name, execution, honours_keys=honours_keys)

        return declare if function is None else declare(function)

    def upcast(self, from_version: int) -> Callable[[Upcaster], Upcaster]:
        """Declare how a payload of one version, as plain JSON values, becomes one of the next version.

        What was a plain dict holds its values as the steps saw them while it stays one; where it becomes a typed
        payload, `stacksaga_flask.untagged` gives them.

        Raises:
            DefinitionError: The version is not below the saga's, or has an upcaster already.
        """

        def declare(upcaster: Upcaster) -> Upcaster:
            self.codec.upcast(from_version, upcaster)
            return upcaster

        return declare

    @property
    def plan(self) -> Plan:
        """The steps as the transitions see them. Complete from here on: no step may be added.

        Raises:
            DefinitionError: There is no step, or a command step before the pivot lacks its revert.
        """
        if self._plan is None:
            if not self._steps:
                raise DefinitionError(f"{self.name}: the saga has no step: declare one with @saga.step")
            for step in self._steps.values():
                if step.plan.kind is StepKind.COMMAND and step.reverting is None:
                    raise DefinitionError(
                        f"{self.name}: the command step {step.name!r} has no revert, so it could not be compensated: "
                        f"declare one with @{step.name}.revert, or use @saga.query if it only reads"
                    )
            self._plan = Plan(tuple(step.plan for step in self._steps.values()))
        return self._plan

    def declared(self, name: str) -> Step[P]:
        """The step of that name.

        Raises:
            KeyError: There is none.
        """
        return self._steps[name]

    def public_result(self, payload: bytes) -> bytes | None:
        """The public result, as JSON, of a transaction that completed with this payload, in the saga's version."""
        if self._result is None:
            return None
        return msgspec.json.encode(self._result(self.codec.decode(payload, self.codec.version)))

    def read_public_result(self, data: bytes) -> R:
        """The public result that was stored.

        Raises:
            msgspec.ValidationError: It was stored by a version that declared another type.
        """
        result: R = msgspec.json.decode(data, type=self._result_type)
        return result

    @property
    def steps(self) -> tuple[Step[P], ...]:
        """The steps in order."""
        return tuple(self._steps.values())

    @property
    def executions(self) -> tuple[Execution[P], ...]:
        """Every process and revert of the saga."""
        steps = self._steps.values()
        return (*(s.process for s in steps), *(s.reverting for s in steps if s.reverting is not None))

    def _add(
        self,
        kind: StepKind,
        function: StepFunction[P],
        name: str | None,
        execution: Execution[P],
        *,
        honours_keys: bool = True,
    ) -> Step[P]:
        name = _stored_name("step", name or function.__name__)
        if self._plan is not None:
            raise DefinitionError(f"{self.name}: {name!r} comes after the saga was registered: declare it before")
        if name in self._steps:
            raise DefinitionError(f"{self.name}: two steps are named {name!r}: rename one")
        if kind is StepKind.PIVOT and self._pivot is not None:
            raise DefinitionError(
                f"{self.name}: {self._pivot!r} and {name!r} are both pivots; there is one point of no return: "
                f"declare what follows it with @saga.step"
            )
        step = Step(self.name, self.payload_type, PlannedStep(name, kind, honours_keys), execution)
        self._steps[name] = step
        if kind is StepKind.PIVOT:
            self._pivot = name
        return step


def _stored_name(what: str, name: str) -> str:
    try:
        return plain_name(name)
    except ValueError as error:
        raise DefinitionError(f"the {what} name {name!r} cannot be stored: {error}") from error


def _version(name: str, option: str, version: int) -> int:
    if not isinstance(version, int) or not 1 <= version < 2**31:
        raise DefinitionError(f"{name}: {option}={version!r} is no whole number from 1 on: count versions 1, 2, 3")
    return version
