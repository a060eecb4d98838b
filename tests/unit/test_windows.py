from __future__ import annotations

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksaga_flask.clock import SECOND
from stacksaga_flask.directory.windows import Window, WindowGrid, start_of_date
from stacksaga_flask.store.contract import Path

MINUTE = WindowGrid(interval=60, skew_margin=SECOND)


def at(text: str) -> int:
    return round(datetime.datetime.fromisoformat(text + "+00:00").timestamp() * SECOND)


def test_the_seeds_example_of_14_23_is_window_863() -> None:
    assert MINUTE.at(at("2026-11-30T14:23:59.999999")) == Window("2026-11-30", 863)


def test_five_minute_windows_run_from_0_to_287() -> None:
    grid = WindowGrid(interval=300, skew_margin=SECOND)
    assert grid.at(at("2026-11-30T00:04:59")) == Window("2026-11-30", 0)
    assert grid.at(at("2026-11-30T23:59:59")) == Window("2026-11-30", 287)


def test_the_window_after_the_last_one_of_the_year_is_the_first_of_the_next() -> None:
    assert MINUTE.ahead(at("2026-12-31T23:59:30"), 1) == Window("2027-01-01", 0)


def test_a_watchdog_600_windows_ahead_crosses_midnight() -> None:
    assert MINUTE.ahead(at("2028-02-28T23:00:00"), 600) == Window("2028-02-29", 540)


def test_a_window_opens_at_its_first_second_and_its_fence_lies_the_skew_margin_before() -> None:
    assert MINUTE.opens(Window("2026-11-30", 863)) == at("2026-11-30T14:23:00")
    assert MINUTE.fence(Path("2026-11-30", 863, "i", 1)) == at("2026-11-30T14:22:59")


def test_directory_timestamps_lie_just_below_the_windows_first_microsecond() -> None:
    window = Window("2026-11-30", 863)
    opens = at("2026-11-30T14:23:00")
    assert (MINUTE.insert_timestamp(window), MINUTE.delete_timestamp(window)) == (opens - 2, opens - 1)
    assert start_of_date("2026-11-30") == at("2026-11-30T00:00:00")


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ("2026-11-30T14:22:00", 863),
        ("2026-11-30T14:22:48", 863),  # 11 s until the fence: δ + write timeout fits exactly
        ("2026-11-30T14:22:48.000001", 864),
        ("2026-11-30T14:22:59.900000", 864),
    ],
)
def test_a_retry_goes_to_the_next_window_unless_too_little_time_is_left(now: str, expected: int) -> None:
    window = MINUTE.write_window(at(now), delay_windows=1, not_before=0, write_timeout=10 * SECOND)
    assert window == Window("2026-11-30", expected)


def test_retry_after_is_respected() -> None:
    now = at("2026-11-30T23:58:10")
    window = MINUTE.write_window(now, delay_windows=1, not_before=now + 120 * SECOND, write_timeout=SECOND)
    assert window == Window("2026-12-01", 1)


@pytest.mark.parametrize("interval", [0, 7, 86_401])
def test_an_interval_that_does_not_divide_the_day_is_refused(interval: int) -> None:
    with pytest.raises(ValueError, match="does not divide the day"):
        WindowGrid(interval=interval, skew_margin=SECOND)


def test_a_date_that_is_no_date_is_refused() -> None:
    with pytest.raises(ValueError, match=r"2026-02-30|day"):
        start_of_date("2026-02-30")


intervals = st.sampled_from([5, 30, 60, 300, 3600])
times = st.integers(0, 4_000_000_000 * SECOND)


@given(interval=intervals, now=times, delay=st.integers(1, 3000), timeout=st.integers(0, 30 * SECOND))
def test_a_write_window_always_leaves_room_and_is_never_open_yet(
    interval: int, now: int, delay: int, timeout: int
) -> None:
    grid = WindowGrid(interval=interval, skew_margin=SECOND)
    window = grid.write_window(now, delay_windows=delay, not_before=0, write_timeout=timeout)
    assert grid.fence(window) - now >= SECOND + timeout
    assert grid.opens(window) >= grid.opens(grid.at(now)) + delay * interval * SECOND


@given(interval=intervals, now=times)
def test_every_time_lies_in_its_window(interval: int, now: int) -> None:
    grid = WindowGrid(interval=interval, skew_margin=SECOND)
    window = grid.at(now)
    moment = datetime.datetime.fromtimestamp(now // SECOND, datetime.timezone.utc)
    assert window.date == moment.date().isoformat()
    assert window.window == (moment.hour * 3600 + moment.minute * 60 + moment.second) // interval
    assert grid.opens(window) <= now < grid.opens(window) + interval * SECOND
