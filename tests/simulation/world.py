"""One world: what a plan says, run to its end under a seed."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

from stacksaga_flask.clock import SECOND
from stacksaga_flask.directory.windows import WindowGrid
from stacksaga_flask.saga.definition import Saga
from stacksaga_flask.store.memory import MemoryStore
from stacksagad.recovery.sweep import WHOLE_RING, Sector
from tests.simulation import nodes
from tests.simulation.checks.rule import Rule
from tests.simulation.checks.watch import Watch
from tests.simulation.clients import Client
from tests.simulation.clocks import StoreTime
from tests.simulation.network import Call, Fate
from tests.simulation.participants import Participants, sagas
from tests.simulation.plan import Plan
from tests.simulation.processes import Process
from tests.simulation.scheduler import Scheduler, SteppableLock, Task
from tests.simulation.script import Leave, Script, Stop
from tests.simulation.standins import FILES
from tests.simulation.trace import Trace

_SAGAS = {saga.name: saga for saga in sagas()}


class World:
    """Processes, a store and participants.

    Args:
        plan: What is decided beforehand.
        random: The seed's, for everything else.
        rules: What is checked.

    Attributes:
        serving: Which client's request a task serves.
        under_way: How many writes have been sent and have not landed yet.
        numbers: The transactions in the order in which the trace first spoke of them.
    """

    def __init__(self, plan: Plan, random: Random, rules: tuple[type[Rule], ...]) -> None:
        self.plan = plan
        self.random = random
        self.settings = plan.settings
        self.faults_end = plan.faults_end
        self.scheduler = Scheduler(random, plan.begins)
        SteppableLock.scheduler = self.scheduler
        self.trace = Trace(self.scheduler)
        self.memory = MemoryStore(plan.settings.scope, StoreTime(self.scheduler))
        self.memory.record_grid(plan.settings.grid)
        grid = WindowGrid(interval=plan.settings.window_interval // SECOND, skew_margin=plan.settings.clock_skew_margin)
        self.watch = Watch(self, self.memory._tables, grid, rules)
        self.participants = Participants(self)
        self.sagas: tuple[Saga[Any, Any], ...] = tuple(_SAGAS.values())
        self.clients = {request.number: Client(self, request) for request in plan.requests}
        self.serving: dict[Task, Client] = {}
        self.under_way = 0
        self.numbers: dict[UUID, str] = {}
        self.processes: list[Process] = []
        self.script = Script(plan.script)

    # -- what the parts ask ------------------------------------------------------------------------------------

    def saga(self, name: str) -> Saga[Any, Any]:
        """A saga by name."""
        return _SAGAS[name]

    def short(self, transaction_id: UUID) -> str:
        """A transaction's name in traces."""
        return self.numbers.setdefault(transaction_id, f"t{len(self.numbers) + 1}")

    def latency(self) -> int:
        """How long a participant takes, in microseconds."""
        return (
            self.random.choice((10_000, self.plan.slowness, self.plan.slowness)) * self.random.randrange(1, 101) // 100
        )

    def fate(self, process: Process, call: Call) -> Fate:
        """What becomes of a call to the store."""
        scripted = None if self.scheduler.now >= self.faults_end else self.script.of_call(process, call.name)
        if scripted is None:
            return self.plan.weather.fate(self.random, call, self.scheduler.now, self.settings.request_timeout)
        if scripted.kills is not None:
            self.scheduler.at(self.scheduler.now + scripted.kills, process.kill)
        return scripted.fate

    def at_point(self, process: Process, what: str) -> None:
        """Kill or stop a process that has come to a point, if its time has come."""
        deed = None if self.scheduler.now >= self.faults_end else self.script.at_point(process, what)
        if deed is None:
            return
        process.note(f"is at: {what}")
        if isinstance(deed, Stop):
            process.stop(deed.length)
            return
        self._restart_later(process, deed.restart)
        if isinstance(deed, Leave):
            process.leave(deed.grace)
        else:
            process.kill()

    def sector(self, process: Process) -> Sector | None:
        """The sector that a retry node may sweep now; the whole ring once the faults are over."""
        if self.scheduler.now >= self.faults_end:
            return WHOLE_RING
        return self.plan.ring.sector(process.name, self.scheduler.now)

    def started(self, transaction_id: UUID) -> None:
        """A process has started a transaction for the client whose request it serves."""
        client = self.serving.get(self.scheduler.task())
        if client is not None:
            client.transaction_id = transaction_id

    def crashed(self, error: BaseException) -> None:
        """End the world with an error that nobody foresees."""
        self.scheduler.crash, self.scheduler.stop = error, True

    def is_dead(self, process: Process) -> None:
        """Let a retry node find out, if one stands on the same host."""
        if not self.plan.finds_dead:
            return
        instance_id = process.instance_id
        ids = list(FILES[instance_id].in_flight)

        def find() -> None:
            nodes_there = [one for one in self.processes if not one.dead and one.name.startswith("retry")]
            if nodes_there:
                finder = self.random.choice(nodes_there)
                finder.spawn("finder", lambda: nodes.recover_dead(finder, instance_id, ids))

        self.scheduler.at(self.scheduler.now + self.random.randint(*self.plan.found_after), find)

    def a_standard_node(self, number: int | None = None) -> Process | None:
        """A standard node that takes requests, if one does; that of the number if it lives."""
        living = [one for one in self.processes if one.serves and one.name.startswith("web")]
        if not living and self.scheduler.now >= self.faults_end:
            living = [self.begin("web")]
        named = [one for one in living if one.name == f"web{number}"]
        return self.random.choice(named or living) if living else None

    # -- processes ---------------------------------------------------------------------------------------------

    def begin(self, role: str, skew: int = 0) -> Process:
        """Begin a process: ``web``, a standard node, or ``retry``. Its name is its role and a number."""
        name = f"{role}{len(self.processes)}"
        process = Process(self, name, self.settings, skew=skew)
        self.processes.append(process)
        if role == "retry":
            process.spawn("sweep", lambda: nodes.sweep(process), after=self.random.randrange(5 * SECOND))
            process.spawn("compact", lambda: nodes.compact(process), after=self.random.randrange(10 * SECOND))
        return process

    def _restart_later(self, process: Process, after: int | None) -> None:
        if after is None:
            return
        role, skew = process.name.rstrip("0123456789"), process.time.skew

        def restart() -> None:
            self.begin(role, skew)

        self.scheduler.at(self.scheduler.now + after, restart)
