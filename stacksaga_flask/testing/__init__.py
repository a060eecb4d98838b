"""For the tests of an application's own sagas: the memory store, a clock that the test moves, failures on demand.

With pytest the fixture `stacksaga_testing` gives a `SagaTesting` for a Flask application, or for sagas alone::

    def test_a_refused_card_gives_the_stock_back(stacksaga_testing):
        sagas = stacksaga_testing(app)
        sagas.fail("charge", Rejected("card refused"))
        ...
"""

from __future__ import annotations

import datetime
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from stacksaga_flask.clock import SECOND, ManualTime
from stacksaga_flask.config import read_settings
from stacksaga_flask.engine.engine import Engine
from stacksaga_flask.engine.execute import Surroundings
from stacksaga_flask.engine.node import Observer, StateChange
from stacksaga_flask.saga.context import StepContext
from stacksaga_flask.saga.definition import Saga
from stacksaga_flask.store.contract import ExecutionType, RunningStatus
from stacksaga_flask.store.memory import MemoryStore

if TYPE_CHECKING:
    from flask import Flask


class Crashed(BaseException):
    """The process was "killed" by `SagaTesting.crash_after`. No step and no error handler may catch it."""


class Attempted(NamedTuple):
    """One recorded attempt, as `SagaTesting.history` lists it: ``("charge", "PROCESS", "SUCCEEDED")``."""

    step: str
    execution_type: str
    status: str


class _Fault(NamedTuple):
    step: str
    execution_type: ExecutionType
    error: BaseException
    after: bool


class SagaTesting:
    """An engine on the memory store whose time stands still until the test moves it.

    Args:
        app: A Flask application with a StackSaga. Its engine is replaced until `close`.
        sagas: Sagas to run without an application.
        settings: ``STACKSAGA_`` settings that differ from the application's.

    Attributes:
        time: The clock; see `stacksaga_flask.ManualTime`.
        store: The memory store.
        engine: The engine, for `run` and `find` without an application.
    """

    def __init__(self, app: Flask | None = None, *, sagas: Iterable[Saga[Any, Any]] = (), **settings: object) -> None:
        self.time = ManualTime()
        self._faults: deque[_Fault] = deque()
        self._started: list[UUID] = []
        self._state: Any = None
        config: dict[str, object] = dict(settings)
        if app is not None:
            self._state = app.extensions["stacksaga"]
            self._replaced: Engine = self._state.engine
            sagas = [*self._replaced.sagas.values(), *sagas]
            config = {**{k: v for k, v in app.config.items() if k.startswith("STACKSAGA_")}, **config}
        self._inner: Surroundings | None = None if self._state is None else self._replaced.surroundings
        config["STACKSAGA_STORE"] = "memory://"
        self.engine = Engine(
            read_settings(config, application_name=app.name if app is not None else "testing"),
            sagas=sagas,
            open_store=lambda: self.store,
            time_source=self.time,
            surroundings=self._surround,
            observer=_Remember(self._started, None if self._state is None else self._replaced.observer),
        )
        self.store = MemoryStore(self.engine.scope, self.time)
        if self._state is not None:
            self._state.engine = self.engine

    def close(self) -> None:
        """Give the application its own engine back."""
        if self._state is not None:
            self._state.engine = self._replaced

    def fail(
        self,
        step: str,
        error: BaseException | type[BaseException],
        *,
        times: int = 1,
        execution_type: ExecutionType = ExecutionType.PROCESS,
    ) -> None:
        """Let the next executions of a step raise an error instead of being called.

        Args:
            step: The step's name.
            error: What is raised: an exception, or a class to make one of.
            times: How many executions fail.
            execution_type: Which side of the step.
        """
        self._check(step)
        raised = _made(error) if isinstance(error, type) else error
        self._faults.extend([_Fault(step, execution_type, raised, after=False)] * times)

    def crash_after(self, step: str, *, execution_type: ExecutionType = ExecutionType.PROCESS) -> None:
        """Kill the process after the step was called and before that is recorded: `run` raises `Crashed`."""
        self._check(step)
        self._faults.append(_Fault(step, execution_type, Crashed(), after=True))

    def advance(self, duration: datetime.timedelta | None = None, *, windows: int = 0) -> None:
        """Let time pass, and with `windows` let the daemon's sweep go on with what it finds, window by window.

        Args:
            duration: How much time passes, without a sweep.
            windows: How many windows pass after that. Each is swept once it is sealed, in this process.
        """
        if duration is not None:
            self.time.advance(round(duration.total_seconds() * SECOND))
        if windows:
            self._sweep(windows)

    def _sweep(self, windows: int) -> None:
        from stacksagad.recovery.sweeper import Sweeper
        from stacksagad.recovery.workers import AtOnce

        settings, now = self.engine.settings, self.time.wall()
        # Each tick comes when a window has just been sealed, as the daemon's do.
        sealed = (now - settings.seal_delay) // settings.window_interval * settings.window_interval
        sweeper = Sweeper(self.engine.node(), self.engine.reinvoke, workers=AtOnce())
        for n in range(1, windows + 1):
            self.time.advance(sealed + n * settings.window_interval + settings.seal_delay - self.time.wall())
            sweeper.tick()

    def history(self, transaction_id: UUID | None = None) -> list[Attempted]:
        """The recorded attempts of a transaction, in order; by default of the one started last."""
        tryouts = self.engine.tryouts(transaction_id or self.last)
        return [Attempted(t.executor, t.execution_type.value, t.status.value) for t in tryouts]

    def status(self, transaction_id: UUID | None = None) -> RunningStatus:
        """The running status of a transaction; by default of the one started last.

        Raises:
            LookupError: There is no such transaction.
        """
        transaction = self.engine.find(transaction_id or self.last)
        if transaction is None:
            raise LookupError(f"there is no transaction {transaction_id}")
        return transaction.status

    @property
    def last(self) -> UUID:
        """The transaction that was started last.

        Raises:
            LookupError: None was started.
        """
        if not self._started:
            raise LookupError("no transaction was started yet")
        return self._started[-1]

    def _check(self, step: str) -> None:
        known = {declared.plan.name for saga in self.engine.sagas.values() for declared in saga.steps}
        if step not in known:
            raise LookupError(f"no saga has a step {step!r}; there are {', '.join(sorted(known)) or 'none'}")

    def _surround(self, context: StepContext[Any] | None, step: Callable[[], Any], /) -> Any:
        if context is None:
            return self._call(context, step)
        fault = next((f for f in self._faults if (f.step, f.execution_type) == _side(context)), None)
        if fault is None:
            return self._call(context, step)
        self._faults.remove(fault)
        if fault.after:
            with suppress(Exception):
                self._call(context, step)
            self.engine.close()
        raise fault.error

    def _call(self, context: StepContext[Any] | None, step: Callable[[], Any]) -> Any:
        return step() if self._inner is None else self._inner(context, step)


def _made(error: type[BaseException]) -> BaseException:
    """An exception of a class that takes no argument, or one that tells why (as `Rejected` does)."""
    try:
        return error()
    except TypeError:
        return error("made to fail by the test")


def _side(context: StepContext[Any]) -> tuple[str, ExecutionType]:
    return context.step_name, context.execution_type


class _Remember(Observer):
    """Remembers which transactions were started, and passes on what it is told."""

    def __init__(self, started: list[UUID], inner: Observer | None) -> None:
        self._started = started
        self._inner = inner or Observer()

    def state_changed(self, change: StateChange) -> None:
        if change.before is None:
            self._started.append(change.transaction_id)
        self._inner.state_changed(change)

    def step_attempted(self, row: Any, tryout: Any) -> None:
        self._inner.step_attempted(row, tryout)
