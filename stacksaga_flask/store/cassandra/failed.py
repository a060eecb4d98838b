"""A failure to connect, which those who come right after it get too.

Whoever wants to connect waits for its turn. If each then waited for the connect time-out as well, the last of sixteen
callers would have its answer after sixteen of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from stacksaga_flask.clock import SECOND, SystemTime
from stacksaga_flask.errors import StoreUnavailable

REMEMBERED: Final = SECOND
"""Microseconds for which a failure counts."""


class LastFailure:
    """The last failure to connect to a store that was unavailable."""

    def __init__(self) -> None:
        self._time_source = SystemTime()
        self._last: tuple[object, int, str] | None = None

    @contextmanager
    def attempt(self, wanted: object) -> Iterator[None]:
        """Connect within the block, unless that has just failed.

        Args:
            wanted: What to connect to; a failure counts for an equal one.

        Raises:
            StoreUnavailable: It has just failed, or it fails.
        """
        last = self._last
        if last is not None:
            failed, at, text = last
            if self._time_source.boot() - at < REMEMBERED and failed == wanted:
                raise StoreUnavailable(text)
        try:
            yield
        except StoreUnavailable as error:
            self._last = (wanted, self._time_source.boot(), str(error))
            raise
        self._last = None
