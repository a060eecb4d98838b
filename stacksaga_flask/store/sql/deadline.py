"""Until when a call of the store may last: each wait and each statement of it gets what is left of one time-out.

Connections are opened by the pool, which hands nothing on. So the deadline is found through the context, which each
thread and each greenlet has to itself.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from stacksaga_flask.clock import SECOND, TimeSource
from stacksaga_flask.errors import StoreUnavailable


class Deadline:
    """The end of one call.

    Args:
        name: What messages call the database.
        timeout: Seconds from now.
        time_source: Whose time passes.
    """

    def __init__(self, name: str, timeout: float, time_source: TimeSource) -> None:
        self._name = name
        self._timeout = timeout
        self._time_source = time_source
        self._ends = time_source.boot() + round(timeout * SECOND)

    @property
    def over(self) -> bool:
        """Whether no time is left."""
        return self._time_source.boot() >= self._ends

    def left(self) -> float:
        """How many seconds are left; always some.

        Raises:
            StoreUnavailable: None are, so what was to come now is not sent.
        """
        left = (self._ends - self._time_source.boot()) / SECOND
        if left <= 0:
            raise StoreUnavailable(
                f"{self._name}: nothing is left of the {self._timeout:g} s that a call may take, connecting and "
                f"repeats included (STACKSAGA_REQUEST_TIMEOUT); nothing was written"
            )
        return left


CALL: Final[ContextVar[Deadline | None]] = ContextVar("stacksaga_store_call", default=None)
"""The deadline of the call that this thread or greenlet makes."""


def seconds_left(otherwise: float) -> float:
    """How many seconds are left to the call under way, or the other number outside of calls.

    Raises:
        StoreUnavailable: None are.
    """
    deadline = CALL.get()
    return otherwise if deadline is None else deadline.left()
