"""Nothing of a store is open while its process forks, or what the child acknowledges may be lost (R2).

SQLite keeps the locks on a file in a table of the process. A fork copies the table, but the operating system gives the
child none of the locks. So the child believes that the file is held, the parent believes that it leaves last and
removes the log, and the child goes on committing into a log that nobody else will ever read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stacksaga_flask.store.sql.backend import Backend
from stacksaga_flask.store.sql.writer import Unit, Writer
from stacksaga_flask.threads import native


class HeldWriter(Writer):
    """A writer that a fork can hold up.

    It has a lock of its own, since a greenlet that was killed leaves its call to a native thread.
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._in_use: Any = native("allocate_lock")()

    def run(self, calls: Sequence[Unit], *, patient: bool = True) -> bool:
        """As any writer's, once no fork is under way."""
        with self._in_use:
            return super().run(calls, patient=patient)

    def hold_up(self, timeout: float) -> bool:
        """Wait until nobody writes, keep it so, and close the connection. Without success all is as before."""
        if not self._in_use.acquire(timeout=timeout):
            return False
        try:
            self.close()
        except BaseException:
            self.go_on()
            raise
        return True

    def go_on(self) -> None:
        """Let others write."""
        self._in_use.release()
