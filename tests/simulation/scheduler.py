"""Who goes on: greenlets that wait for a simulated time, and what happens by itself at one.

A greenlet gives way at every call to the store and at every wait, and nowhere else. Time passes only between two turns.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

import greenlet  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from tests.simulation.processes import Process

Turn: TypeAlias = "Task | Callable[[], None]"


class Killed(BaseException):
    """The process was killed: nothing of it goes on."""


class Task:
    """A greenlet of one simulated process."""

    def __init__(
        self, number: int, process: Process, name: str, body: Callable[[], None], hub: greenlet.greenlet
    ) -> None:
        self.number = number
        self.process = process
        self.name = name
        self.answered_at = 0
        """When it last heard from the store."""
        self.greenlet = greenlet.greenlet(body, parent=hub)

    def __repr__(self) -> str:
        return f"{self.process.name}/{self.name}"


class Scheduler:
    """Gives turns in the order of their simulated time; of those at the same time the seed chooses.

    Args:
        random: The seed's.
        now: The true time to begin at, in microseconds since 1970.

    Attributes:
        now: The true time.
        current: The task whose turn it is.
        stop: Set it to end `run`.
    """

    def __init__(self, random: Random, now: int) -> None:
        self.now = now
        self.current: Task | None = None
        self.stop = False
        self.crash: BaseException | None = None
        self._random = random
        self._turns: list[tuple[int, float, int, Turn]] = []
        self._numbers = count()
        self._hub = greenlet.getcurrent()

    def at(self, when: int, turn: Turn) -> None:
        """Give a turn at a time, at once if it has passed."""
        heapq.heappush(self._turns, (max(when, self.now), self._random.random(), next(self._numbers), turn))

    def spawn(self, process: Process, name: str, function: Callable[[], Any], *, after: int = 0) -> Task:
        """Begin a greenlet of a process."""

        def body() -> None:
            try:
                function()
            except Killed:
                pass
            except Exception as error:  # noqa: BLE001 - whatever an actor does not expect is reported with its trace
                self.crash, self.stop = error, True

        task = Task(next(self._numbers), process, name, body, self._hub)
        task.answered_at = self.now
        process.tasks.append(task)
        self.at(self.now + after, task)
        return task

    def sleep(self, microseconds: int) -> None:
        """Let the present task wait.

        Raises:
            Killed: Its process was killed.
        """
        task = self.task()
        self.at(self.now + max(0, microseconds), task)
        self._give_way(task)

    def task(self) -> Task:
        """The task whose turn it is.

        Raises:
            Killed: Its process was killed.
        """
        task = self.current
        assert task is not None, "only a task may wait"
        if task.process.dead:
            raise Killed
        return task

    def wait(self, waiting: deque[Task]) -> None:
        """Let the present task wait in a queue until somebody gives it a turn."""
        task = self.task()
        waiting.append(task)
        self._give_way(task)

    def discard(self, process: Process) -> None:
        """Throw a killed process's greenlets away, as soon as the present turn is over."""

        def throw() -> None:
            for task in process.tasks:
                if task.greenlet and not task.greenlet.dead:
                    self.current = task
                    task.greenlet.throw(Killed)
            process.tasks.clear()

        self.at(self.now, throw)

    def run(self, until: int) -> None:
        """Give turns until the time has come or `stop` is set."""
        while self._turns and self._turns[0][0] <= until and not self.stop:
            self.now, _, _, turn = heapq.heappop(self._turns)
            if isinstance(turn, Task):
                self._switch_to(turn)
            else:
                self.current = None
                turn()
        self.current = None
        if not self.stop:
            self.now = until

    def _switch_to(self, task: Task) -> None:
        process = task.process
        if process.dead:
            return
        if process.stopped_until > self.now:
            self.at(process.stopped_until, task)
            return
        self.current = task
        task.greenlet.switch()

    def _give_way(self, task: Task) -> None:
        self._hub.switch()
        if task.process.dead:
            raise Killed


class SteppableLock:
    """What stands for `threading.Lock` in the simulation: who finds it taken gives way."""

    scheduler: Scheduler | None = None
    """Of the world that runs now; without one nobody ever has to wait."""

    def __init__(self) -> None:
        self._taken = False
        self._waiting: deque[Task] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock. Waiting longer than the time-out is not simulated."""
        while self._taken:
            if not blocking:
                return False
            assert self.scheduler is not None
            self.scheduler.wait(self._waiting)
        self._taken = True
        return True

    def release(self) -> None:
        """Give it to whoever has waited longest."""
        self._taken = False
        if self._waiting:
            assert self.scheduler is not None
            self.scheduler.at(self.scheduler.now, self._waiting.popleft())

    def locked(self) -> bool:
        """Whether it is taken."""
        return self._taken

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()
