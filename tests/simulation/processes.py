"""A simulated process: its clocks, its engine, and how it is killed, stopped and started again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from stacksaga_flask.config import Settings
from stacksaga_flask.engine.engine import Engine
from stacksaga_flask.engine.node import Observer, StateChange
from stacksaga_flask.saga.context import StepContext
from tests.simulation.clocks import ProcessTime
from tests.simulation.connection import NetworkedStore
from tests.simulation.scheduler import Killed, Task

if TYPE_CHECKING:
    from tests.simulation.world import World

T = TypeVar("T")

_LOOK_EVERY = 1_000_000


class Process(Observer):
    """One process. A new one has another name, as it has another instance id.

    Args:
        world: Where it lives.
        name: As traces call it.
        settings: Of its engine.
        skew: By how much its clock is ahead, in microseconds.

    Attributes:
        dead: Whether it was killed.
        died_at: When.
        stopped_until: Until when it stands still.
        stops: When it stood still: from, until.
        points: How many points it has come to at which it can be killed or stopped.
    """

    def __init__(self, world: World, name: str, settings: Settings, *, skew: int = 0) -> None:
        self.world = world
        self.name = name
        self.engine_settings = settings
        self.time = ProcessTime(world.scheduler, skew, lambda: self.point("waits"))
        self.tasks: list[Task] = []
        self.dead = False
        self.died_at = 0
        self.stopped_until = 0
        self.stops: list[tuple[int, int]] = []
        self.faults: list[int] = []
        """When a call to the store of this process went wrong."""
        self.points = 0
        self.is_leaving = False
        self._keeping = False
        self.engine = Engine(
            settings,
            sagas=world.sagas,
            open_store=lambda: NetworkedStore(self, world.memory.beside(settings.scope)),
            time_source=self.time,
            surroundings=self._surround,
            observer=self,
            in_background=False,
        )

    @property
    def instance_id(self) -> str:
        """Its instance id."""
        return self.engine.node().instance_id

    @property
    def now(self) -> int:
        """What time it believes it is."""
        return self.engine.node().clock.now()

    @property
    def serves(self) -> bool:
        """Whether it lives and was not told to end."""
        return not (self.dead or self.is_leaving)

    def spawn(self, name: str, function: Callable[[], Any], *, after: int = 0) -> Task:
        """Let it do something in a greenlet of its own."""
        return self.world.scheduler.spawn(self, name, function, after=after)

    def note(self, what: str, *, fault: bool = False) -> None:
        """Add to the trace."""
        if fault:
            self.faults.append(self.world.scheduler.now)
        self.world.trace.add(self, what)

    def point(self, what: str) -> None:
        """Be killed or stopped here, if it is to be."""
        if self.dead:
            raise Killed
        self.points += 1
        self.world.at_point(self, what)
        while self.stopped_until > self.world.scheduler.now:
            self.world.scheduler.sleep(0)

    def kill(self) -> None:
        """Kill it. If it kills itself, nothing after this is run.

        Raises:
            Killed: In the process itself.
        """
        if self.dead:
            return
        self.note("is killed")
        self.dead, self.died_at = True, self.world.scheduler.now
        self.world.is_dead(self)
        self.world.scheduler.discard(self)
        current = self.world.scheduler.current
        if current is not None and current.process is self:
            raise Killed

    def leave(self, grace: int) -> None:
        """Let it begin nothing more, and be gone when its time is over."""
        self.note("is told to end")
        self.is_leaving = True
        self.engine.stop()
        self.world.scheduler.at(self.world.scheduler.now + grace, self.kill)

    def stop(self, microseconds: int) -> None:
        """Let it stand still, as SIGSTOP does."""
        now = self.world.scheduler.now
        until = now + microseconds
        self.note(f"stands still for {microseconds / 1e6:.3f} s")
        self.stopped_until = max(self.stopped_until, until)
        self.stops.append((now, until))

    def stood_still(self, since: int) -> bool:
        """Whether it stood still at any time since then."""
        return any(until >= since for _, until in self.stops)

    def keep(self) -> None:
        """Look after the results that could not be recorded."""
        node = self.engine.node()
        if not self._keeping and len(node.kept):
            self._keeping = True
            self.spawn("kept", self._look_after_kept)

    def _look_after_kept(self) -> None:
        node = self.engine.node()
        while len(node.kept):
            self.world.scheduler.sleep(_LOOK_EVERY)
            node.kept.look()
        self._keeping = False

    # -- what the engine calls ---------------------------------------------------------------------------------

    def state_changed(self, change: StateChange) -> None:
        """Remember what was acknowledged."""
        self.note(f"recorded {change.after.value} of {self.world.short(change.transaction_id)}")
        self.world.watch.recorded(self, change)

    def _surround(self, context: StepContext[Any] | None, step: Callable[[], T], /) -> T:
        if context is not None:
            self.world.participants.call(self, context)
        return step()
