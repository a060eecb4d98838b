"""Ticks lie on a grid of the node's clock, and those that were left out are counted."""

from __future__ import annotations

import logging
import threading

import pytest

from stacksaga_flask import ManualTime, SystemTime
from stacksaga_flask.clock import SECOND, Clock
from stacksagad.ticks import Tick, Ticks
from tests.support.waiting import wait_until

MINUTE = 60 * SECOND
NOON = 19_700 * 86_400 * SECOND + 12 * 60 * MINUTE


class OtherYear(SystemTime):
    """A machine whose wall clock says 2001, and runs."""

    def wall(self) -> int:
        return super().wall() - 25 * 365 * 86_400 * SECOND


def clock_of(time: ManualTime | SystemTime) -> Clock:
    return Clock(time, skew_margin=SECOND)


@pytest.mark.parametrize(
    ("now", "due"),
    [
        (NOON, NOON - 50 * SECOND),
        (NOON + 10 * SECOND - 1, NOON - 50 * SECOND),
        (NOON + 10 * SECOND, NOON + 10 * SECOND),
        (NOON + 69 * SECOND, NOON + 10 * SECOND),
        (NOON + 70 * SECOND, NOON + 70 * SECOND),
    ],
)
def test_a_tick_is_due_so_long_after_each_multiple(now: int, due: int) -> None:
    assert Tick("sweep", lambda: None, every=MINUTE, offset=10 * SECOND).due(now) == due


def test_runs_that_were_left_out_are_counted_as_missed() -> None:
    tick = Tick("sweep", lambda: None, every=MINUTE, offset=10 * SECOND)
    for minutes in (0, 1, 2, 5, 6):
        tick.run(NOON + minutes * MINUTE)
    assert (tick.runs, tick.missed) == (5, 2)


def test_two_runs_in_one_window_miss_nothing() -> None:
    tick = Tick("sweep", lambda: None, every=MINUTE)
    for seconds in (0, 59, 60):
        tick.run(NOON + seconds * SECOND)
    assert (tick.runs, tick.missed) == (3, 0)


def test_a_tick_that_fails_is_logged_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ZeroDivisionError("a defect")

    tick = Tick("sweep", fail, every=MINUTE)
    tick.run(NOON)
    tick.run(NOON + MINUTE)
    assert (tick.runs, tick.failed, tick.running) == (2, 2, False)
    assert "the tick 'sweep' failed" in caplog.text
    assert "ZeroDivisionError: a defect" in caplog.text


@pytest.mark.parametrize("time", [SystemTime(), OtherYear()], ids=["this year", "another year"])
def test_ticks_follow_the_clock_and_not_the_machines_wall_clock(time: SystemTime) -> None:
    every, offset = SECOND // 10, SECOND // 25
    clock, seen = clock_of(time), list[int]()
    tick = Tick("sweep", lambda: seen.append(clock.now()), every=every, offset=offset, at_start=False)
    ticks = Ticks(clock, [tick])
    began = clock.now()
    ticks.start()
    try:
        wait_until(lambda: len(seen) >= 5, 20)
    finally:
        ticks.stop()
    grid = [tick.due(moment) for moment in seen]
    assert grid == sorted(set(grid)), "never twice in one place"
    assert grid[0] > began
    assert all(moment >= place for moment, place in zip(seen, grid, strict=True))
    assert (grid[4] - grid[0]) // every == 4 + tick.missed


def test_a_tick_that_runs_long_is_run_by_one_at_a_time(caplog: pytest.LogCaptureFixture) -> None:
    clock, inside, most, let_go = clock_of(SystemTime()), list[int](), list[int](), threading.Event()

    def run() -> None:
        inside.append(1)
        most.append(len(inside))
        let_go.wait(20)
        inside.pop()

    tick = Tick("sweep", run, every=SECOND // 50)
    ticks = Ticks(clock, [tick])
    with caplog.at_level(logging.WARNING, "apscheduler"):
        ticks.start()
        try:
            wait_until(lambda: "maximum number of running instances" in caplog.text, 20)
            assert ticks.running == ["sweep"]
            let_go.set()
            wait_until(lambda: tick.runs >= 3, 20)
        finally:
            let_go.set()
            ticks.stop()
    wait_until(lambda: not ticks.running, 20)
    assert set(most) == {1}
    assert ticks.missed > 0


def test_a_tick_at_the_start_runs_at_once() -> None:
    ran = threading.Event()
    ticks = Ticks(clock_of(SystemTime()), [Tick("sweep", ran.set, every=3600 * SECOND)])
    ticks.start()
    try:
        assert ran.wait(20)
    finally:
        ticks.stop()


def test_stopping_twice_or_before_the_start_is_fine() -> None:
    ticks = Ticks(clock_of(ManualTime()), [Tick("sweep", lambda: None, every=MINUTE)])
    ticks.stop()
    ticks.start()
    ticks.stop()
    ticks.stop()
    assert ticks.running == []
