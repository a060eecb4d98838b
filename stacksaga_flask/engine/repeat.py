"""Waiting and repeating: one place for backoff, which is a library's business."""

from __future__ import annotations

from collections.abc import Callable

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from stacksaga_flask.clock import SECOND, Clock
from stacksaga_flask.errors import StoreError

STORE_ATTEMPTS = 5
_FIRST_WAIT = 0.05
_LONGEST_WAIT = 2.0


def repeatedly(write: Callable[[], None], errors: tuple[type[StoreError], ...], clock: Clock) -> None:
    """Wait and write, a few times, while one of these errors comes back.

    Raises:
        StoreError: The last attempt's error, or any other one at once.
    """
    wait = wait_random_exponential(multiplier=_FIRST_WAIT, max=_LONGEST_WAIT)
    clock.sleep(round(_FIRST_WAIT * SECOND))
    for attempt in Retrying(
        retry=retry_if_exception_type(errors),
        stop=stop_after_attempt(STORE_ATTEMPTS),
        wait=wait,
        sleep=lambda seconds: clock.sleep(round(seconds * SECOND)),
        reraise=True,
    ):
        with attempt:
            write()


def step_backoff(attempt: int, longest_first_wait: int) -> int:
    """Microseconds to wait after so many failed in-process attempts: full jitter, doubled for each further one."""
    wait = wait_random_exponential(multiplier=longest_first_wait / SECOND, max=60)
    state = RetryCallState(retry_object=Retrying(), fn=None, args=(), kwargs={})
    state.attempt_number = attempt
    return round(wait(state) * SECOND)
