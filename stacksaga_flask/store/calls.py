"""The calls of a store that are under way, which a fork waits for (R2, R11)."""

from __future__ import annotations

import os
import threading
from collections import deque

from stacksaga_flask.errors import StoreRefused


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
