from __future__ import annotations

import pytest

from stacksaga_flask.clock import SECOND, Clock, ManualTime, SystemTime
from stacksaga_flask.errors import ClockSkew, UnsupportedPlatform

pytestmark = pytest.mark.varies_by_python


def test_now_follows_elapsed_time_and_not_a_step_of_the_wall_clock() -> None:
    time = ManualTime(1000 * SECOND)
    clock = Clock(time, skew_margin=SECOND)
    time.set_wall(5 * SECOND)
    time.advance(3 * SECOND)
    assert clock.now() == 1003 * SECOND


def test_a_comparison_takes_over_the_wall_clock_once_a_minute() -> None:
    time = ManualTime(1000 * SECOND)
    clock = Clock(time, skew_margin=SECOND)
    clock.compare(time.wall)
    time.set_wall(1000 * SECOND + 500_000)
    time.advance(59 * SECOND)
    clock.compare(lambda: pytest.fail("compared again within a minute"))
    assert clock.now() == 1059 * SECOND
    time.advance(SECOND)
    clock.compare(time.wall)
    assert clock.now() == 1060 * SECOND + 500_000


@pytest.mark.parametrize("offset", [-2 * SECOND, 2 * SECOND])
def test_a_clock_beyond_the_margin_is_refused_until_it_is_set(offset: int) -> None:
    time = ManualTime()
    clock = Clock(time, skew_margin=SECOND)
    with pytest.raises(ClockSkew, match=r"2\.000 s from the store's"):
        clock.compare(lambda: time.wall() + offset)
    with pytest.raises(ClockSkew):
        clock.compare(lambda: time.wall() + offset)
    clock.compare(time.wall)


def test_an_answer_slower_than_the_margin_is_asked_for_again() -> None:
    time = ManualTime()
    clock = Clock(time, skew_margin=SECOND)
    delays = [10 * SECOND, 2 * SECOND, SECOND]

    def slow_at_first() -> int:
        time.advance(delays.pop(0))
        return time.wall()

    clock.compare(slow_at_first)
    assert delays == []


def test_a_store_that_stays_slow_cannot_be_compared_with() -> None:
    time = ManualTime()
    clock = Clock(time, skew_margin=SECOND)

    def slow() -> int:
        time.advance(10 * SECOND)
        return time.wall() - 5 * SECOND

    with pytest.raises(ClockSkew, match=r"took 10\.000 s to tell its time"):
        clock.compare(slow)


def test_the_machines_clocks_advance() -> None:
    time = SystemTime()
    wall, boot = time.wall(), time.boot()
    time.sleep(2000)
    assert time.boot() - boot >= 2000
    assert time.wall() > wall


def test_an_unknown_platform_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "win32")
    with pytest.raises(UnsupportedPlatform, match="runs on Linux, and on macOS for development; this is 'win32'"):
        SystemTime()


def test_macos_falls_back_to_the_monotonic_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    monkeypatch.delattr("time.CLOCK_BOOTTIME", raising=False)
    assert SystemTime().boot() > 0
