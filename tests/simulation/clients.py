"""What clients do: start a transaction, with a key again and again, and ask how it stands."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from stacksaga_flask.engine.operator import Operator
from stacksaga_flask.engine.start import transaction_id_of
from stacksaga_flask.errors import (
    ClockSkew,
    KeyConflict,
    NotStarted,
    StartUnknown,
    StoreError,
)
from stacksaga_flask.store.contract import RunningStatus
from tests.simulation.participants import Payload

if TYPE_CHECKING:
    from tests.simulation.processes import Process
    from tests.simulation.world import World


_OTHER = 1_000
"""Added to a request's number in a payload that is not its own."""


class Request(NamedTuple):
    """A client's wish.

    Attributes:
        number: Names it, and its transaction.
        saga: The saga's name.
        at: After how many microseconds it is sent first.
        key: Its `Idempotency-Key`, if it has one.
        leave: Whether the run is left to the daemon.
        again: After how many microseconds a client with a key repeats it, each after the one before.
        clash: After how many microseconds another client uses the key for another payload; None for not at all.
        nodes: By which standard nodes it is served, in turn, by their numbers; by any if there are no more.
        asks: After how many microseconds the client asks how it stands.
    """

    number: int
    saga: str
    at: int
    key: str | None = None
    leave: bool = False
    again: tuple[int, ...] = ()
    asks: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    clash: int | None = None


class Client:
    """Sends one request, and repeats it if it has a key.

    Attributes:
        transaction_id: Its transaction, once it is known.
        told: How it stood when the client asked last.
    """

    def __init__(self, world: World, request: Request) -> None:
        self._world = world
        self._request = request
        self.told: RunningStatus | None = None
        self.transaction_id: UUID | None = None if request.key is None else transaction_id_of(request.key)

    def begin(self) -> None:
        """Send it when its time comes."""
        request, after = self._request, self._request.at
        for nth, wait in enumerate((0, *request.again)):
            after += wait
            self._world.scheduler.at(self._world.scheduler.now + after, partial(self._send, nth))
        if request.clash is not None:
            clash = partial(self._send, 0, _OTHER)
            self._world.scheduler.at(self._world.scheduler.now + request.at + request.clash, clash)
        after = request.at
        for wait in request.asks:
            after += wait
            self._world.scheduler.at(self._world.scheduler.now + after, self.ask)

    def repeat(self) -> None:
        """Send a request with a key once more."""
        if self._request.key is not None:
            self._send(-1)

    def _send(self, nth: int, other: int = 0) -> None:
        named = self._request.nodes[nth : nth + 1] if nth >= 0 else ()
        process = self._world.a_standard_node(*named)
        if process is not None:
            task = process.spawn(f"request {self._request.number}", lambda: self._run(process, other))
            self._world.serving[task] = self

    def _run(self, process: Process, other: int) -> None:
        request, engine = self._request, process.engine
        saga: Any = self._world.saga(request.saga)
        payload = Payload(request.number + other)
        try:
            run = engine.start if request.leave else engine.run
            transaction = run(saga, payload, key=request.key)
        except (NotStarted, StartUnknown, KeyConflict, ClockSkew) as error:
            if isinstance(error, NotStarted) and error.transaction_id is not None and request.key is None:
                self._world.watch.story(error.transaction_id).not_started = True
            process.note(f"answers request {request.number}: {type(error).__name__}: {error}")
        except StoreError as error:
            process.note(f"answers request {request.number}: {error}")
        else:
            self.transaction_id = transaction.transaction_id
            process.note(f"answers request {request.number}: {transaction.status.value}")
            self._world.watch.answered(transaction.transaction_id, payload.number)
            self._world.watch.told(transaction.transaction_id, transaction.status)
        process.keep()

    def ask(self) -> None:
        """Ask how the transaction stands."""
        process = self._world.a_standard_node()
        if process is not None and self.transaction_id is not None:
            process.spawn(f"question {self._request.number}", lambda: self._find(process))

    def _find(self, process: Process) -> None:
        assert self.transaction_id is not None
        try:
            transaction = process.engine.find(self.transaction_id)
        except StoreError:
            return
        if transaction is not None:
            self.told = transaction.status
            process.note(f"tells that {self._world.short(self.transaction_id)} is {transaction.status.value}")
            self._world.watch.told(transaction.transaction_id, transaction.status)


class Hand(NamedTuple):
    """What a person does by hand.

    Attributes:
        number: For which request's transaction.
        at: After how many microseconds.
        what: ``retry`` or ``restore``.
    """

    number: int
    at: int
    what: str


def by_hand(process: Process, what: str, transaction_id: UUID) -> None:
    """Do it, in a process of its own as far as anybody can tell."""
    operator = Operator(process.engine)
    try:
        answer = (operator.retry if what == "retry" else operator.restore)(transaction_id)
    except StoreError as error:
        process.note(f"{what} {process.world.short(transaction_id)}: {error}")
    else:
        process.note(f"{what} {process.world.short(transaction_id)}: {answer.told}")
    process.keep()
