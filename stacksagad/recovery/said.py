"""One log line per cause and interval, so that a thousand failures do not fill a disk."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from stacksaga_flask.clock import SECOND

SAY_EVERY: Final = 300 * SECOND
_MOST_CAUSES: Final = 1_000


class Said:
    """Says a thing at most once in five minutes for each cause, and how often it was left unsaid.

    Args:
        logger: Where to.
        boot: Time elapsed, in microseconds.
    """

    def __init__(self, logger: logging.Logger, boot: Callable[[], int]) -> None:
        self._logger = logger
        self._boot = boot
        self._lock = threading.Lock()
        self._unsaid: dict[str, tuple[int, int]] = {}
        """For each cause when it was said last, and how often not since."""

    def say(self, cause: str, message: str, *, level: int = logging.WARNING, error: Exception | None = None) -> None:
        """Say it, unless it was said already.

        Args:
            cause: What is one and the same however the message differs.
            message: The line.
            level: Of the line.
            error: An error whose traceback is to be told.
        """
        now = self._boot()
        with self._lock:
            said_at, unsaid = self._unsaid.get(cause, (None, 0))
            if said_at is not None and now - said_at < SAY_EVERY:
                self._unsaid[cause] = said_at, unsaid + 1
                return
            if len(self._unsaid) >= _MOST_CAUSES:
                self._unsaid.clear()
            self._unsaid[cause] = now, 0
        more = f" ({unsaid} more like it since the last such line)" if unsaid else ""
        self._logger.log(level, "%s%s", message, more, exc_info=error)
