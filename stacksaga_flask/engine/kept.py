"""Results that could not be recorded because the store was away: kept by their process until it answers.

Without them the transaction would wait for its watchdog, and a step that is done would run again. Once the result is
recorded the transaction is parked with a retry pointer, and the daemon goes on with it. What another owner has taken
over meanwhile is dropped; what a process that ends still keeps is left to the watchdog (R1).
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final
from uuid import UUID

logger = logging.getLogger("stacksaga_flask")

LOOK_EVERY: Final = 1.0
"""Seconds between two attempts."""
MOST: Final = 10_000
"""The most results that are kept; others are left to their watchdogs."""

Record = Callable[[], bool]
"""Records one result, and tells whether that is settled."""


class Kept:
    """The results of one process.

    Args:
        in_background: Whether a thread (a greenlet, where threads are) looks after them; otherwise `look` does.
    """

    def __init__(self, *, in_background: bool) -> None:
        self._in_background = in_background
        self._results: deque[tuple[UUID, Record]] = deque()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._results)

    def __contains__(self, transaction_id: UUID) -> bool:
        return any(kept == transaction_id for kept, _ in list(self._results))

    def keep(self, transaction_id: UUID, record: Record) -> bool:
        """Keep a result of a transaction, and tell whether there was room for it."""
        with self._lock:
            if self._closed.is_set() or len(self._results) >= MOST:
                return False
            self._results.append((transaction_id, record))
            if self._in_background and self._thread is None:
                self._thread = threading.Thread(target=self._look_again_and_again, name="stacksaga-kept", daemon=True)
                self._thread.start()
        return True

    def look(self) -> None:
        """Try to record each result once."""
        for _ in range(len(self._results)):
            kept = self._results.popleft()
            if not kept[1]():
                self._results.append(kept)
                # The store is still away, so the others would only wait for it too.
                return

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _look_again_and_again(self) -> None:
        while not self._closed.wait(LOOK_EVERY):
            self.look()
            with self._lock:
                if not self._results:
                    self._thread = None
                    return
