from __future__ import annotations

import pytest

from stacksaga_flask.clock import SECOND, Clock, ManualTime
from stacksaga_flask.engine.repeat import repeatedly, step_backoff, window_backoff
from stacksaga_flask.errors import Fenced, StoreUnavailable


@pytest.mark.parametrize(
    ("attempt", "cap", "longest"), [(1, 60, 2), (2, 60, 4), (5, 60, 32), (6, 60, 60), (50, 60, 60)]
)
def test_windows_are_drawn_up_to_a_doubling_cap_and_are_at_least_one(attempt: int, cap: int, longest: int) -> None:
    drawn = {window_backoff(attempt, cap) for _ in range(4000)}
    assert min(drawn) == 1
    assert longest * 0.9 <= max(drawn) <= longest


@pytest.mark.parametrize(("attempt", "longest"), [(1, 1), (2, 2), (3, 4), (10, 512)])
def test_a_wait_between_in_process_attempts_is_drawn_below_a_doubling_bound(attempt: int, longest: int) -> None:
    drawn = [step_backoff(attempt, SECOND) for _ in range(1000)]
    assert 0 <= min(drawn) < longest * SECOND * 0.1
    assert longest * SECOND * 0.9 < max(drawn) <= longest * SECOND


def test_a_call_is_repeated_until_it_returns() -> None:
    clock = Clock(ManualTime(), skew_margin=SECOND)
    errors = [StoreUnavailable("1"), StoreUnavailable("2")]

    def call() -> str:
        if errors:
            raise errors.pop()
        return "done"

    assert repeatedly(call, (StoreUnavailable,), clock, at_most=10 * SECOND) == "done"


def test_a_call_is_given_up_once_its_time_is_used_up() -> None:
    time = ManualTime()
    clock = Clock(time, skew_margin=SECOND)
    calls: list[int] = []

    def call() -> None:
        calls.append(time.boot())
        raise StoreUnavailable("gone")

    with pytest.raises(StoreUnavailable):
        repeatedly(call, (StoreUnavailable,), clock, at_most=10 * SECOND)
    assert len(calls) > 3
    assert 10 * SECOND <= time.boot() < 13 * SECOND


def test_another_error_is_raised_at_once() -> None:
    def call() -> None:
        raise Fenced("no")

    with pytest.raises(Fenced):
        repeatedly(call, (StoreUnavailable,), Clock(ManualTime(), skew_margin=SECOND), at_most=SECOND)
