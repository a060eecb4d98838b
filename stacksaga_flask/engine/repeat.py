"""Waiting and repeating: one place for backoff, which is a library's business."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_random_exponential

from stacksaga_flask.clock import SECOND, Clock
from stacksaga_flask.errors import StoreError

T = TypeVar("T")

_FIRST_WAIT = 0.05
_LONGEST_WAIT = 2.0


def repeatedly(call: Callable[[], T], errors: tuple[type[StoreError], ...], clock: Clock, *, at_most: int) -> T:
    """Call, and after one of these errors wait and call again, until it returns or the time is used up.

    Args:
        call: What to do. The first attempt costs nothing beside it.
        errors: Those after which it may be done again.
        clock: Whose time passes.
        at_most: Microseconds after which no further attempt is made.

    Raises:
        StoreError: The last attempt's error, or any other one at once.
    """
    deadline = clock.boot() + at_most
    try:
        return call()
    except errors:
        retrying = Retrying(
            retry=retry_if_exception_type(errors),
            stop=lambda state: clock.boot() >= deadline,
            wait=wait_random_exponential(multiplier=_FIRST_WAIT, max=_LONGEST_WAIT),
            sleep=lambda seconds: clock.sleep(round(seconds * SECOND)),
            reraise=True,
        )
        clock.sleep(round(_FIRST_WAIT * SECOND))
        return retrying(call)


def step_backoff(attempt: int, longest_first_wait: int) -> int:
    """Microseconds to wait after so many failed in-process attempts: full jitter, doubled for each further one."""
    return round(_full_jitter(attempt, longest_first_wait / SECOND) * SECOND)


def window_backoff(attempt: int, cap: int) -> int:
    """Windows to wait after so many failed attempts: full jitter over ``min(2^attempt, cap)``, at least 1."""
    return max(1, math.ceil(_full_jitter(attempt + 1, 1, cap)))


def _full_jitter(attempt: int, first: float, cap: float = math.inf) -> float:
    state = RetryCallState(retry_object=Retrying(), fn=None, args=(), kwargs={})
    state.attempt_number = attempt
    return wait_random_exponential(multiplier=first, max=cap)(state)
