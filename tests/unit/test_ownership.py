"""The right to write: until when, and with which timestamps (R6, R13, R14)."""

from __future__ import annotations

import pytest

from stacksaga_flask.clock import SECOND, Clock, ManualTime
from stacksaga_flask.engine.ownership import Right
from stacksaga_flask.errors import RightEnded

START = 1_700_000_000 * SECOND


def right(seconds: int = 10, above: int = 0) -> tuple[ManualTime, Clock, Right]:
    time = ManualTime(START)
    clock = Clock(time, skew_margin=SECOND)
    return time, clock, Right(clock, ends_at=START + seconds * SECOND, above=above)


def test_timestamps_are_the_wall_clock_and_always_rise() -> None:
    time, _, owned = right()
    assert [owned.timestamp() for _ in range(3)] == [START, START + 1, START + 2]
    time.advance(SECOND)
    assert owned.timestamp() == START + SECOND


def test_a_takeover_starts_above_what_it_read_whatever_its_clock_says() -> None:
    _, _, owned = right(above=START + 5 * SECOND)
    assert owned.timestamp() == START + 5 * SECOND + 1


def test_no_timestamp_reaches_the_end_of_the_right() -> None:
    _, _, owned = right(above=START + 10 * SECOND - 2)
    assert owned.timestamp() == START + 10 * SECOND - 1
    with pytest.raises(RightEnded, match="no timestamp is left"):
        owned.timestamp()


def test_the_right_ends_at_its_fence() -> None:
    time, _, owned = right()
    time.advance(10 * SECOND - 1)
    owned.check()
    time.advance(1)
    with pytest.raises(RightEnded, match="ended"):
        owned.check()
    with pytest.raises(RightEnded):
        owned.timestamp()


def test_a_clock_set_back_at_a_comparison_does_not_prolong_the_right() -> None:
    time, clock, owned = right()
    time.advance(9 * SECOND)
    time.set_wall(START)
    clock.compare(time.wall)
    assert clock.now() == START
    time.advance(SECOND)
    with pytest.raises(RightEnded):
        owned.check()


def test_a_clock_set_forward_at_a_comparison_ends_the_right_early() -> None:
    time, clock, owned = right()
    time.set_wall(START + 10 * SECOND)
    clock.compare(time.wall)
    with pytest.raises(RightEnded):
        owned.check()


def test_a_retry_pointer_shrinks_the_right_and_a_later_one_does_not() -> None:
    time, _, owned = right()
    owned.shrink(START + 5 * SECOND)
    owned.shrink(START + 20 * SECOND)
    time.advance(5 * SECOND)
    with pytest.raises(RightEnded):
        owned.check()


def test_a_new_watchdog_extends_the_right_only_before_the_old_fence() -> None:
    time, _, owned = right()
    time.advance(9 * SECOND)
    owned.extend(START + 60 * SECOND)
    time.advance(20 * SECOND)
    owned.check()
    time.advance(31 * SECOND)
    with pytest.raises(RightEnded):
        owned.extend(START + 600 * SECOND)


def test_a_right_that_was_ended_is_over_at_once() -> None:
    _, _, owned = right()
    owned.end()
    with pytest.raises(RightEnded):
        owned.check()
