"""The retry nodes of a world: the real sweep, compaction and re-invocation, with workers that the scheduler steps."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING
from uuid import UUID

from stacksaga_flask.clock import SECOND
from stacksaga_flask.engine.reinvoke import Found
from stacksaga_flask.errors import ClockSkew, NotStarted, RightEnded, StoreError
from stacksagad.recovery.compactor import Compactor
from stacksagad.recovery.observed import Ended, RecoveryObserver, TickSummary
from stacksagad.recovery.sweeper import Sweeper
from stacksagad.recovery.workers import Task
from tests.simulation.scheduler import Task as Turn

if TYPE_CHECKING:
    from tests.simulation.processes import Process

FORESEEN = (StoreError, RightEnded, ClockSkew, NotStarted)


class SteppedWorkers:
    """Runs each re-invocation in a greenlet of its process, two at once."""

    def __init__(self, process: Process, most: int = 2) -> None:
        self._process = process
        self._most = most
        self._busy = 0
        self._waiting: deque[Turn] = deque()

    def submit(self, task: Task) -> bool:
        """Have a task run; waits for a free worker."""
        while self._busy >= self._most:
            self._process.world.scheduler.wait(self._waiting)
        self._busy += 1
        self._process.spawn("worker", lambda: self._run(task))
        return True

    def _run(self, task: Task) -> None:
        try:
            task()
        finally:
            self._busy -= 1
            if self._waiting:
                scheduler = self._process.world.scheduler
                scheduler.at(scheduler.now, self._waiting.popleft())
        self._process.keep()

    def stop(self) -> None:
        """No world stops a node gently."""

    def drain(self, timeout: float | None = None) -> bool:
        """No world waits for them."""
        return not self._busy


class _Listener(RecoveryObserver):
    """Notes what a node says, and reports what nobody foresees."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def ended(self, outcome: str, *, durable: bool) -> None:
        self._process.note(f"re-invoked: {outcome}" + ("" if durable else ", its pointer stays"))

    def failed(self, error: Exception) -> None:
        self._process.note(f"re-invocation failed: {error}")
        if not isinstance(error, FORESEEN):
            self._process.world.crashed(error)

    def tick_ended(self, summary: TickSummary) -> None:
        if summary.ended is not Ended.THROUGH:
            self._process.note(f"ends its tick: {summary.ended.value}")


def sweep(process: Process) -> None:
    """Sweep again and again."""
    world, node = process.world, process.engine.node()
    sweeper = Sweeper(
        node,
        process.engine.reinvoke,
        workers=SteppedWorkers(process),
        sector=lambda: world.sector(process),
        observer=_Listener(process),
    )
    while True:
        sweeper.tick()
        process.time.sleep(world.settings.window_interval // 2 + world.random.randrange(SECOND))


def compact(process: Process) -> None:
    """Compact again and again, if this is Node-0."""
    world, node = process.world, process.engine.node()
    compactor = Compactor(node, sector=lambda: world.sector(process), observer=_Listener(process))
    while True:
        compactor.tick()
        process.time.sleep(world.settings.window_interval + world.random.randrange(SECOND))


def recover_dead(process: Process, instance_id: str, transaction_ids: list[UUID]) -> None:
    """What the finder does about an instance that it knows to be dead by its lock (R18)."""
    process.time.sleep(process.engine_settings.clock_skew_margin)
    left = transaction_ids
    while left:
        left = [one for one in left if not _recover(process, instance_id, one)]
        process.keep()
        process.time.sleep(SECOND)


def _recover(process: Process, instance_id: str, transaction_id: UUID) -> bool:
    short = process.world.short(transaction_id)
    try:
        outcome = process.engine.reinvoke(transaction_id, Found(dead_instance=instance_id))
    except FORESEEN as error:
        process.note(f"re-invocation of {short} of the dead: {error}")
        return False
    process.note(f"re-invoked {short} of the dead: {outcome.outcome}")
    return outcome.durable
