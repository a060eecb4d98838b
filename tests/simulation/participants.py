"""The participants: what a step calls. They honour idempotency keys and record every call.

What a participant does is decided for each transaction when it starts: how often it fails, how, and how it ends.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any
from uuid import UUID

from msgspec import Struct, field

from stacksaga_flask.saga.context import StepContext
from stacksaga_flask.saga.definition import Saga
from stacksaga_flask.saga.outcome import Rejected, Retryable
from stacksaga_flask.store.contract import ExecutionType
from tests.simulation.scheduler import Task

if TYPE_CHECKING:
    from tests.simulation.processes import Process
    from tests.simulation.world import World


class Answer(enum.Enum):
    """How a participant behaves at one call."""

    DONE = "has done it"
    BUSY = "is busy and has done nothing"
    LOST = "has done it, but its answer is lost"
    REFUSED = "refuses"
    UNASKED = "is not asked, as the step refuses by itself"
    BROKEN = "has done it, but its answer cannot be read"
    LONG = "has taken longer than the budget"


class Payload(Struct):
    """The payload: what the steps have added to it."""

    number: int
    done: list[str] = field(default_factory=list)


class Asked(Struct, eq=False):
    """One call of a participant, as it was made.

    Attributes:
        task: Whose greenlet called.
        late: Whether the caller stood still after it last heard from the store, and so may be late for anything.
        ended: When the caller had the answer; None while it has none, and for ever if it died meanwhile.
        answer: How the participant behaved; None until the request arrives.
    """

    transaction_id: UUID
    step: str
    side: ExecutionType
    key: str
    process: Any
    task: Task
    began: int
    budget: int
    late: bool
    ended: int | None = None
    answer: Answer | None = None

    def __str__(self) -> str:
        return f"{self.side.value.lower()} of {self.step} by {self.task} at {self.began / 1e6 % 86400:.3f}"


class Participants:
    """Everything that steps call, in one world.

    Attributes:
        calls: Every call in the order in which it began.
        effects: Per transaction, what was done, each side of each step once, in order.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.calls: list[Asked] = []
        self.effects: dict[UUID, list[tuple[str, ExecutionType]]] = {}
        self._behaviour: dict[tuple[int, str, ExecutionType], list[Answer]] = {}
        self._refused: set[str] = set()

    def will(self, number: int, step: str, side: ExecutionType, *answers: Answer) -> None:
        """Let a participant behave so at the first calls for the transaction of that number, then do it."""
        self._behaviour[number, step, side] = list(answers)

    def calls_of(self, transaction_id: UUID) -> list[Asked]:
        """The calls for one transaction."""
        return [call for call in self.calls if call.transaction_id == transaction_id]

    def call(self, process: Process, context: StepContext[Any]) -> None:
        """What a step does: one request to its participant.

        Raises:
            Retryable, Rejected, ValueError: As the participant behaves.
        """
        process.point(f"{context.execution_type.value.lower()} {context.step_name}")
        scheduler = self._world.scheduler
        budget = process.engine_settings.step_budget
        call = Asked(
            *(context.transaction_id, context.step_name, context.execution_type, context.idempotency_key),
            *(process, scheduler.task(), scheduler.now, budget),
            late=process.stood_still(scheduler.task().answered_at),
        )
        self.calls.append(call)
        process.note(f"calls {call.side.value.lower()} {call.step} of {self._world.short(call.transaction_id)}")
        self._world.watch.call_begins(call)
        planned = self._behaviour.get((context.payload.number, call.step, call.side))
        behaves = planned.pop(0) if planned else Answer.DONE
        latency = self._world.latency()
        if behaves is Answer.LONG:
            latency = budget + self._world.random.randrange(budget * 8)
        # The request arrives whether or not its caller lives to see the answer.
        scheduler.at(scheduler.now + latency // 2, lambda: self._arrives(call, behaves))
        scheduler.sleep(latency)
        call.ended = scheduler.now
        process.point(f"{call.side.value.lower()} {call.step} returned")
        assert call.answer is not None
        process.note(f"{call.step}: the participant {call.answer.value}")
        _raise(call.answer)

    def _arrives(self, call: Asked, behaves: Answer) -> None:
        effects = self.effects.setdefault(call.transaction_id, [])
        done = (call.step, call.side) in effects
        undone = call.side is ExecutionType.PROCESS and (call.step, ExecutionType.REVERT) in effects
        if behaves is Answer.UNASKED:
            call.answer = behaves
            return
        if undone or call.key in self._refused:
            behaves = Answer.REFUSED  # the answer belongs to the key, and what was undone is not done any more
        elif done and behaves is Answer.REFUSED:
            behaves = Answer.DONE
        call.answer = behaves
        if behaves is Answer.REFUSED:
            self._refused.add(call.key)
        elif behaves is not Answer.BUSY and not done:
            effects.append((call.step, call.side))


def _raise(answer: Answer) -> None:
    if answer in (Answer.BUSY, Answer.LOST):
        raise Retryable(answer.value)
    if answer in (Answer.REFUSED, Answer.UNASKED):
        raise Rejected("refused")
    if answer is Answer.BROKEN:
        raise ValueError(answer.value)


# -- the sagas -------------------------------------------------------------------------------------------------


def _declare(name: str, *steps: str) -> Saga[Payload, None]:
    """A saga of steps ``kind:name``, whose kinds are ``step``, ``query`` and ``pivot``."""
    saga: Saga[Payload, None] = Saga(name, payload=Payload)
    after_pivot = False
    for declared in steps:
        kind, step_name = declared.split(":")
        declare: Any = {"step": saga.step, "query": saga.query, "pivot": saga.pivot}[kind]

        def process(payload: Payload, context: StepContext[Payload]) -> None:
            payload.done.append(context.step_name)

        step = declare(process, name=step_name) if kind == "step" else declare(name=step_name)(process)
        if kind == "step" and not after_pivot:
            step.revert(_nothing)
        after_pivot = after_pivot or kind == "pivot"
    saga.plan  # noqa: B018 - checks it
    return saga


def _nothing(payload: Payload, context: StepContext[Payload]) -> None:
    """A revert changes nothing of the payload."""


def sagas() -> tuple[Saga[Payload, None], ...]:
    """The sagas that every world runs: commands alone, and commands around a pivot with a query."""
    return (
        _declare("commands", "step:reserve", "step:charge", "step:ship"),
        _declare("pivoted", "step:reserve", "query:quote", "pivot:charge", "step:ship"),
    )
