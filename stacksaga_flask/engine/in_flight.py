"""The runs of this process, and whether it was told to stop.

A process that is stopping ends the attempt that each run is in, records it, and parks the run with a retry pointer.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from stacksaga_flask.clock import SECOND, TimeSource
from stacksaga_flask.errors import NotStarted

_LOOK_EVERY = SECOND // 50


class InFlight:
    """Counts runs. A fork's child has none, and was told nothing (R11)."""

    def __init__(self) -> None:
        # By process, and the length counts. `setdefault`, appending and popping need no lock, which a signal's handler
        # must not wait for, and which threads that come first to a child at the same time would need twice.
        self._runs: dict[int, deque[None]] = {}
        self._stopped_pid: int | None = None

    @property
    def stopping(self) -> bool:
        """Whether this process was told to stop."""
        return self._stopped_pid is not None and self._stopped_pid == os.getpid()

    @property
    def runs(self) -> int:
        """How many runs are in flight in this process."""
        return len(self._runs.get(os.getpid(), ()))

    def stop(self) -> None:
        """Let no step begin from now on. It only sets a flag, so a signal's handler may call it."""
        self._stopped_pid = os.getpid()

    def drain(self, time_source: TimeSource, timeout: int) -> bool:
        """Wait for the runs in flight, and tell whether they have all ended or are parked.

        Args:
            time_source: Whose time passes.
            timeout: Microseconds.
        """
        deadline = time_source.boot() + timeout
        while self.runs:
            if time_source.boot() >= deadline:
                return False
            time_source.sleep(_LOOK_EVERY)
        return True

    @contextmanager
    def run(self) -> Iterator[None]:
        """Count a run.

        Raises:
            NotStarted: This process is stopping.
        """
        if self.stopping:
            raise NotStarted(
                "this process is stopping, so nothing was started and no step ran here: repeat it in another one"
            )
        # Kept, since a child gets copies of greenlets, which must not count in its own.
        runs = self._runs.setdefault(os.getpid(), deque())
        runs.append(None)
        try:
            yield
        finally:
            runs.pop()
