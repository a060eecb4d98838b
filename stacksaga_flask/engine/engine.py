"""What a caller sees of the engine: run, start and find transactions. No framework is needed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar
from uuid import UUID

from stacksaga_flask.clock import SECOND, SystemTime, TimeSource
from stacksaga_flask.config import Settings
from stacksaga_flask.engine.execute import Surroundings, run_plainly
from stacksaga_flask.engine.in_flight import InFlight
from stacksaga_flask.engine.node import Node, Observer, open_node
from stacksaga_flask.engine.owned import Owned
from stacksaga_flask.engine.process import NodeOfProcess
from stacksaga_flask.engine.reinvoke import Found, Reinvocation, reinvoke
from stacksaga_flask.engine.run import run
from stacksaga_flask.engine.start import Started, start, start_keyed, transaction_id_of
from stacksaga_flask.engine.takeover import as_it_may_be_told, compare_clock
from stacksaga_flask.errors import DefinitionError, InvalidKey, NotStarted, SagaNotRegistered, StoreError
from stacksaga_flask.saga.definition import Saga
from stacksaga_flask.stopping import park_at_exit, stop_at_sigterm, watch
from stacksaga_flask.store.contract import RunningStatus, Scope, Store, TransactionRow, Tryout
from stacksaga_flask.store.opening import check_store, open_store

P = TypeVar("P")
R = TypeVar("R")

LONGEST_KEY = 512


class Transaction(Generic[R]):
    """A transaction as it was recorded when it was asked for.

    Attributes:
        transaction_id: Its id.
        saga_name: Its saga's name.
        status: Its running status.
        reason: Why it is or was compensated, or is frozen.
        public_result: The saga's public result as JSON, once completed.
        retry_in: Seconds from then until the window of its retry pointer opens; None if it has none.
    """

    def __init__(self, row: TransactionRow, saga: Saga[Any, R] | None, *, retry_in: float | None = None) -> None:
        self.transaction_id: UUID = row.transaction_id
        self.saga_name = row.saga_name
        self.status = row.running_status
        self.reason = row.reason
        self.public_result = row.public_result
        self.retry_in = retry_in
        self._saga = saga

    def __repr__(self) -> str:
        return f"<Transaction {self.transaction_id} of {self.saga_name!r}: {self.status.value}>"

    @property
    def completed(self) -> bool:
        """Whether every step was committed."""
        return self.status is RunningStatus.PROCESS_COMPLETED

    @property
    def compensated(self) -> bool:
        """Whether everything that was done has been undone."""
        return self.status is RunningStatus.REVERT_COMPLETED

    @property
    def result(self) -> R | None:
        """The public result of a completed transaction, else None."""
        if self._saga is None or self.public_result is None:
            return None
        return self._saga.read_public_result(self.public_result)


def check_key(key: str) -> None:
    """Check that a text can be an `Idempotency-Key`; with the scope that an application puts before it, it is longer.

    Raises:
        InvalidKey: It cannot.
    """
    if not (isinstance(key, str) and 0 < len(key) <= LONGEST_KEY and key.isascii() and key.isprintable()):
        raise InvalidKey(f"an Idempotency-Key is from 1 to {LONGEST_KEY} printable ASCII characters: send another one")


class Engine:
    """Runs sagas for one service. Opens nothing before it is first used, and anew after a fork (R11).

    Args:
        settings: See `stacksaga_flask.config.read_settings`.
        sagas: The service's sagas; see `register`.
        open_store: Opens the event store; by default what the settings' URL names.
        time_source: The machine's clocks by default.
        surroundings: Where steps run.
        observer: Is told of what was recorded.
        in_background: Whether results that the store did not take are recorded later by a thread of this process.

    Raises:
        ConfigurationError: The settings name no store, or not all that is needed to reach it.
        DefinitionError: A saga is incomplete; see `register`.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        sagas: Iterable[Saga[Any, Any]] = (),
        open_store: Callable[[], Store] | None = None,
        time_source: TimeSource | None = None,
        surroundings: Surroundings = run_plainly,
        observer: Observer | None = None,
        in_background: bool = True,
    ) -> None:
        self.settings = settings
        self.surroundings = surroundings
        self.observer = observer or Observer()
        self._time_source = time_source or SystemTime()
        if open_store is None:
            check_store(settings)
        self._in_background = in_background
        self._open_store = open_store or self._open_named_store
        self._sagas: dict[str, Saga[Any, Any]] = {}
        self._in_flight = InFlight()
        self._node = NodeOfProcess(self._open_node, timeout=settings.request_timeout / SECOND)
        for saga in sagas:
            self.register(saga)
        if settings.stop_at_sigterm:
            watch(self._in_flight, self._time_source, settings.shutdown_grace)

    @property
    def scope(self) -> Scope:
        """Region, cluster and service name."""
        return self.settings.scope

    @property
    def sagas(self) -> dict[str, Saga[Any, Any]]:
        """The registered sagas by name."""
        return dict(self._sagas)

    def register(self, saga: Saga[Any, Any]) -> None:
        """Make a saga known, and check it as a whole. Registering it twice is fine.

        Raises:
            DefinitionError: It is incomplete, a budget of its does not fit, or another saga has its name.
        """
        if self._sagas.get(saga.name, saga) is not saga:
            raise DefinitionError(f"two sagas are named {saga.name!r}: rename one")
        saga.plan  # noqa: B018 - checks it
        domain = self.settings.domain(saga.name)
        room = (domain.restore_delay_windows - 1) * self.settings.window_interval - self.settings.clock_skew_margin
        for execution in saga.executions:
            budget = execution.budget or self.settings.step_budget
            if budget + self.settings.request_timeout > room:
                raise DefinitionError(
                    f"{saga.name}: the budget of {execution.function.__name__!r} ({budget / 1e6:g} s) and a write "
                    f"({self.settings.request_timeout / 1e6:g} s) do not fit before the watchdog's fence "
                    f"({room / 1e6:g} s): lower the budget or raise restore_delay_windows (R6)"
                )
        self._sagas[saga.name] = saga

    def run(self, saga: Saga[P, R], payload: P, *, key: str | None = None) -> Transaction[R]:
        """Start a transaction and run it until it ends, pauses or is frozen.

        Args:
            saga: A registered saga.
            payload: Its payload.
            key: An `Idempotency-Key`: the same key finds the same transaction.

        Raises:
            SagaNotRegistered, PayloadError, InvalidKey: Nothing was done.
            KeyConflict: The key was used before with another saga or payload.
            NotStarted: Nothing was started; it may be tried again.
            StartUnknown: Whether it was started is unknown; with a key, repeat with the same one.
            ClockSkew: This machine's clock is off, so nothing was started.
        """
        if self.settings.stop_at_sigterm:
            # A server may have set a handler of its own since.
            stop_at_sigterm()
        with self._in_flight.run():
            node, started = self._start(saga, payload, key, leave=False)
            if started.right is None:
                return self._transaction(node, started.row, saga)
            owned = Owned(node, saga, started.row, started.right, start_claim=started.claim)
            with node.running(owned.row.transaction_id):
                run(owned)
            return self._transaction(node, owned.row, saga)

    def start(self, saga: Saga[P, R], payload: P, *, key: str | None = None) -> Transaction[R]:
        """Start a transaction and leave its run to the daemon. Arguments and errors are those of `run`."""
        with self._in_flight.run():
            node, started = self._start(saga, payload, key, leave=True)
            return self._transaction(node, started.row, saga)

    def reinvoke(self, transaction_id: UUID, found: Found) -> Reinvocation:
        """Go on with a transaction that was found, as the daemon does; see `stacksaga_flask.engine.reinvoke`.

        Raises:
            NotStarted: This process is stopping.
            StoreError, RightEnded, ClockSkew: It is not known how it stands; the pointer stays.
        """
        with self._in_flight.run():
            node = self.node()
            with node.running(transaction_id):
                return reinvoke(node, self._sagas, transaction_id, found)

    def stop(self) -> None:
        """Let no step begin from now on in this process: runs in flight end the attempt they are in and are parked.

        SIGTERM does this too (`STACKSAGA_STOP_AT_SIGTERM`). What was recorded can still be found.
        """
        self._in_flight.stop()

    def drain(self, timeout: float) -> bool:
        """Wait until no run is in flight in this process, at most so many seconds, and tell whether none is."""
        return self._in_flight.drain(self._time_source, round(timeout * SECOND))

    def find(self, transaction_id: UUID) -> Transaction[Any] | None:
        """The transaction as recorded now, or None.

        Raises:
            StoreError: The store could not be asked.
        """
        node = self.node()
        stored = node.store.read(transaction_id)
        if stored is None:
            return None
        row = as_it_may_be_told(node, stored.row)
        return self._transaction(node, row, self._sagas.get(row.saga_name))

    def find_keyed(self, key: str) -> Transaction[Any] | None:
        """The transaction that an `Idempotency-Key` started, or None. Errors are those of `find`."""
        return self.find(transaction_id_of(key))

    def tryouts(self, transaction_id: UUID) -> list[Tryout]:
        """Every recorded attempt at the transaction's steps, in order.

        Raises:
            StoreError: The store could not be asked.
        """
        return list(self.node().store.tryouts(transaction_id))

    def node(self) -> Node:
        """This process's node, connected at first use.

        Raises:
            StoreError: The store cannot be used, or this process inherited it while it was open.
        """
        return self._node.get()

    def close(self) -> None:
        """Give back the store's connections. The engine opens them again if it is used."""
        self._node.close()

    def _transaction(self, node: Node, row: TransactionRow, saga: Saga[Any, R] | None) -> Transaction[R]:
        opens = None if row.retry is None else node.grid.opens(row.retry)
        return Transaction(row, saga, retry_in=None if opens is None else max(0, opens - node.clock.now()) / SECOND)

    def _start(self, saga: Saga[P, R], payload: P, key: str | None, *, leave: bool) -> tuple[Node, Started]:
        if self._sagas.get(saga.name) is not saga:
            raise SagaNotRegistered(saga.name)
        if key is not None:
            check_key(key)
        data = saga.codec.encode(payload, limit=self.settings.payload_limit)
        try:
            node = self.node()
            compare_clock(node)
        except StoreError as error:
            raise NotStarted(f"the transaction was not started and no step ran: {error}") from error
        if key is None:
            return node, start(node, saga, data, leave=leave)
        return node, start_keyed(node, saga, data, key, leave=leave)

    def _open_node(self) -> Node:
        node = open_node(
            self.settings,
            self._open_store,
            self._time_source,
            self.surroundings,
            self.observer,
            self._in_flight,
            in_background=self._in_background,
        )
        if self.settings.stop_at_sigterm:
            park_at_exit()
        return node

    def _open_named_store(self) -> Store:
        return open_store(self.settings, self._time_source)
