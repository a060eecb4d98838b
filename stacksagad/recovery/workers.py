"""Who runs what a sweep hands over, at most so many at once."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol, TypeAlias

logger = logging.getLogger("stacksagad")

Task: TypeAlias = Callable[[], None]


class Workers(Protocol):
    """Runs tasks at the same time; tasks begin in the order in which they were submitted."""

    def submit(self, task: Task) -> bool:
        """Have a task run; waits while as many run as may. False: it is not run, since the workers were stopped."""

    def stop(self) -> None:
        """Take no task any more. What runs goes on; a `submit` that waits returns."""

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until nothing runs, at most so many seconds, and tell whether nothing does."""


class ThreadWorkers:
    """Threads, or greenlets where gevent has replaced threads. They are begun as they are needed.

    They do not keep a process from ending: what still runs then is left to its claim and its watchdog.

    Args:
        most: How many tasks run at once.
    """

    def __init__(self, most: int) -> None:
        if most < 1:
            raise ValueError(f"{most} tasks at once are none: allow at least one")
        self._most = most
        self._tasks: deque[Task] = deque()
        self._busy = 0
        self._idle = 0
        self._threads = 0
        self._stopped = False
        self._lock = threading.Lock()
        self._there_is_room = threading.Condition(self._lock)
        self._there_is_work = threading.Condition(self._lock)
        self._all_rest = threading.Condition(self._lock)

    @property
    def busy(self) -> int:
        """How many tasks run or are about to."""
        return self._busy

    def submit(self, task: Task) -> bool:
        """Have a task run; waits while as many run as may. False: it is not run, since the workers were stopped."""
        with self._lock:
            while self._busy >= self._most and not self._stopped:
                self._there_is_room.wait()
            if self._stopped:
                return False
            self._busy += 1
            self._tasks.append(task)
            if self._idle >= len(self._tasks):
                self._there_is_work.notify()
                return True
            self._threads += 1
        self._begin_a_thread(task)
        return True

    def stop(self) -> None:
        """Take no task any more, and let each thread end as soon as it has nothing to do."""
        with self._lock:
            self._stopped = True
            self._there_is_room.notify_all()
            self._there_is_work.notify_all()

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until nothing runs, at most so many seconds, and tell whether nothing does."""
        with self._lock:
            return self._all_rest.wait_for(lambda: not self._busy, timeout)

    def _begin_a_thread(self, task: Task) -> None:
        try:
            threading.Thread(target=self._work, name="stacksagad-worker", daemon=True).start()
        except RuntimeError as error:
            # A container may allow fewer threads than the setting: those that there are do the work.
            with self._lock:
                self._threads -= 1
                if not self._threads:
                    self._tasks.remove(task)
                    self._busy -= 1
                    raise
            logger.warning("no more than %d threads can be started: %s", self._threads, error)

    def _work(self) -> None:
        try:
            while (task := self._next()) is not None:
                try:
                    task()
                finally:
                    self._ended()
        finally:
            with self._lock:
                self._threads -= 1

    def _ended(self) -> None:
        with self._lock:
            self._busy -= 1
            self._there_is_room.notify()
            if not self._busy:
                self._all_rest.notify_all()

    def _next(self) -> Task | None:
        with self._lock:
            self._idle += 1
            while not self._tasks and not self._stopped:
                self._there_is_work.wait()
            self._idle -= 1
            return self._tasks.popleft() if self._tasks else None


class AtOnce:
    """Runs each task where it is submitted: one after the other, as a test wants it."""

    def __init__(self) -> None:
        self._stopped = False

    def submit(self, task: Task) -> bool:
        """Run a task, unless stopped."""
        if self._stopped:
            return False
        task()
        return True

    def stop(self) -> None:
        """Take no task any more."""
        self._stopped = True

    def drain(self, timeout: float | None = None) -> bool:
        """Nothing is left running."""
        return True
