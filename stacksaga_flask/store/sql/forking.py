"""Nothing of a store is open while its process forks, or what the child acknowledges may be lost (R2).

SQLite keeps the locks on a file in a table of the process. A fork copies the table, but the operating system gives the
child none of the locks. So the child believes that the file is held, the parent believes that it leaves last and
removes the log, and the child goes on committing into a log that nobody else will ever read.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any

from stacksaga_flask.errors import StoreRefused
from stacksaga_flask.store.sql.backend import Backend
from stacksaga_flask.store.sql.greenlets import threads_are_greenlets
from stacksaga_flask.store.sql.writer import Unit, Writer


class CallsUnderWay:
    """Counts the calls of a store, within a ``with`` each; a fork waits for them and holds new ones up."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._at_rest = threading.Condition(self._mutex)
        self._over = threading.Condition(self._mutex)
        # Its length counts. Appending and popping need no lock, which sixteen threads would wait for at every call.
        self._begun: deque[None] = deque()
        self._held_up = False
        self._pid = os.getpid()

    def __enter__(self) -> None:
        # Counted first and looked second, while a fork first says that it holds up and then counts: one sees the other.
        self._begun.append(None)
        while self._held_up:
            self.__exit__()
            with self._mutex:
                self._wait_for_the_fork()
            self._begun.append(None)

    def __exit__(self, *_: object) -> None:
        self._begun.pop()
        if self._held_up:
            with self._mutex:
                if not self._begun:
                    self._at_rest.notify_all()

    def hold_up(self, timeout: float) -> bool:
        """Let no call begin and wait for those under way. Without success all is as before."""
        # With a time-out even here: a signal's handler may fork while its own thread is inside.
        if not self._mutex.acquire(timeout=timeout):
            return False
        at_rest = False
        try:
            self._held_up = True
            at_rest = self._at_rest.wait_for(lambda: not self._begun, timeout)
        finally:
            if not at_rest:
                self._let_go_on()
            self._mutex.release()
        return at_rest

    def go_on(self) -> None:
        """Let calls begin."""
        with self._mutex:
            self._let_go_on()

    def _let_go_on(self) -> None:
        self._held_up = False
        self._over.notify_all()

    def _wait_for_the_fork(self) -> None:
        if self._held_up and os.getpid() != self._pid:
            raise StoreRefused("a forked child may not use the store of its parent (R11); nothing was written")
        # For ever in a child, which gets copies of the greenlets that wait here: their parent has the originals.
        while self._held_up:
            self._over.wait()


class HeldWriter(Writer):
    """A writer that a fork can hold up.

    It has a lock of its own, since a greenlet that was killed leaves its call to a native thread.
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._in_use = _native_lock()

    def run(self, calls: Sequence[Unit], *, patient: bool = True) -> bool:
        """As any writer's, once no fork is under way."""
        with self._in_use:
            return super().run(calls, patient=patient)

    def hold_up(self, timeout: float) -> bool:
        """Wait until nobody writes, keep it so, and close the connection. Without success all is as before."""
        if not self._in_use.acquire(timeout=timeout):
            return False
        self.close()
        return True

    def go_on(self) -> None:
        """Let others write."""
        self._in_use.release()


def _native_lock() -> Any:
    if not threads_are_greenlets():
        return threading.Lock()
    from gevent import monkey

    return monkey.get_original("_thread", "allocate_lock")()
