"""What Node-0 deletes, carried out on sets; no store, clock or thread (R5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksaga_flask.clock import SECOND
from stacksaga_flask.directory.windows import Window, WindowGrid
from stacksagad.recovery.compaction import (
    DeleteDate,
    DeleteWindow,
    IsDateEmpty,
    IsWindowEmpty,
    PutBackDate,
    PutBackWindow,
    Request,
    compaction,
    grace,
)
from stacksagad.recovery.requests import ReadDays, ReadWindows, Strange

MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE
GRID = WindowGrid(interval=60, skew_margin=SECOND)
NOON = 1_700_049_600 * SECOND
"""2023-11-15 12:00:00 UTC."""
GRACE = 22 * SECOND


@dataclass
class Tiers:
    """Tiers 1 to 3. Where a deletion is made, `behind` may do something before the tier below is read again."""

    days: set[str] = field(default_factory=set)
    windows: set[Window] = field(default_factory=set)
    instances: set[Window] = field(default_factory=set)
    behind: Callable[[Window | str], None] = lambda place: None
    unread: bool = False
    """Whether what lies below cannot be read after a deletion."""
    requests: list[Request] = field(default_factory=list)

    def window(self, date: str, number: int, *, instance: bool = False) -> Window:
        window = Window(date, number)
        self.days.add(date)
        self.windows.add(window)
        if instance:
            self.instances.add(window)
        return window

    def compact(self, now: int = NOON) -> None:
        steps = compaction(GRID, now=now, grace=GRACE)
        answer: Any = None
        while True:
            try:
                request = steps.send(answer)
            except StopIteration:
                return
            self.requests.append(request)
            answer = self.answer(request)

    def answer(self, request: Request) -> Any:
        match request:
            case ReadDays(year):
                return sorted(day for day in self.days if day.startswith(str(year)))
            case ReadWindows(date, minimum, maximum):
                assert (minimum, maximum) == (0, 86_399)
                return sorted(window.window for window in self.windows if window.date == date)
            case IsWindowEmpty(window, deleted):
                return window not in self.instances and not (deleted and self.unread)
            case IsDateEmpty(date, deleted):
                return not [one for one in self.windows if one.date == date] and not (deleted and self.unread)
            case DeleteWindow(window):
                self.windows.remove(window)
                self.behind(window)
            case DeleteDate(date):
                self.days.remove(date)
                self.behind(date)
            case PutBackWindow(window):
                self.windows.add(window)
            case PutBackDate(date):
                self.days.add(date)
        return None


def test_the_grace_is_two_write_timeouts_and_two_skew_margins() -> None:
    assert grace(write_timeout=10 * SECOND, skew_margin=SECOND) == 22 * SECOND


def test_an_empty_window_goes_and_then_its_date() -> None:
    tiers = Tiers()
    window = tiers.window("2023-11-14", 5)
    tiers.compact()
    assert (tiers.windows, tiers.days) == (set(), set())
    assert tiers.requests[2:] == [
        ReadDays(2023),
        ReadWindows("2023-11-14", 0, 86_399),
        IsWindowEmpty(window, deleted=False),
        DeleteWindow(window),
        IsWindowEmpty(window, deleted=True),
        IsDateEmpty("2023-11-14", deleted=False),
        DeleteDate("2023-11-14"),
        IsDateEmpty("2023-11-14", deleted=True),
        ReadDays(2024),
    ]


def test_a_window_in_which_any_instance_is_left_stays_with_its_date() -> None:
    tiers = Tiers()
    tiers.window("2023-11-14", 5)
    kept = tiers.window("2023-11-14", 6, instance=True)
    tiers.compact()
    assert (tiers.windows, tiers.days) == ({kept}, {"2023-11-14"})


@pytest.mark.parametrize(("seconds", "goes"), [(81, False), (82, True)])
def test_a_window_stays_until_the_grace_after_its_end(seconds: int, goes: bool) -> None:
    tiers = Tiers()
    window = tiers.window("2023-11-15", 720)
    tiers.compact(NOON + seconds * SECOND)
    assert tiers.windows == (set() if goes else {window})


@pytest.mark.parametrize(("seconds", "goes"), [(21, False), (22, True)])
def test_a_date_stays_until_the_grace_after_its_end(seconds: int, goes: bool) -> None:
    tiers = Tiers(days={"2023-11-14"})
    tiers.compact(NOON - DAY // 2 + seconds * SECOND)
    assert tiers.days == (set() if goes else {"2023-11-14"})


def test_the_present_date_stays_though_it_has_no_window() -> None:
    tiers = Tiers(days={"2023-11-15"})
    tiers.compact()
    assert tiers.days == {"2023-11-15"}


def test_windows_and_dates_to_come_are_not_even_read() -> None:
    tiers = Tiers()
    later = tiers.window("2023-11-15", 1439)
    tomorrow = tiers.window("2023-11-16", 0)
    next_year = tiers.window("2024-01-01", 0)
    tiers.compact()
    assert tiers.windows == {later, tomorrow, next_year}
    assert [one for one in tiers.requests if isinstance(one, ReadWindows)] == [ReadWindows("2023-11-15", 0, 86_399)]


def test_old_years_are_pruned_too() -> None:
    tiers = Tiers()
    tiers.window("2021-01-01", 0)
    tiers.window("2022-12-31", 1439)
    tiers.compact()
    assert tiers.days == set()


def test_what_was_registered_behind_the_deletion_puts_the_row_back() -> None:
    tiers = Tiers()
    window = tiers.window("2023-11-14", 5)
    tiers.behind = lambda place: tiers.instances.add(window)
    tiers.compact()
    assert (tiers.windows, tiers.days) == ({window}, {"2023-11-14"})


def test_what_was_registered_behind_the_deletion_of_a_date_puts_it_back() -> None:
    tiers = Tiers(days={"2023-11-14"})
    tiers.behind = lambda place: tiers.windows.add(Window("2023-11-14", 5))
    tiers.compact()
    assert tiers.days == {"2023-11-14"}


def test_what_cannot_be_read_after_the_deletion_puts_the_row_back() -> None:
    tiers = Tiers(unread=True)
    window = tiers.window("2023-11-14", 5)
    tiers.days.add("2023-11-13")
    tiers.compact()
    assert (tiers.windows, tiers.days) == ({window}, {"2023-11-14", "2023-11-13"})


def test_a_date_or_window_that_is_none_is_told_and_left_with_what_is_above_it() -> None:
    tiers = Tiers(days={"2023-02-31", "2023-11-14"})
    tiers.window("2023-11-14", 1440)
    tiers.compact()
    assert tiers.days == {"2023-02-31", "2023-11-14"}
    told = [one.what for one in tiers.requests if isinstance(one, Strange)]
    assert len(told) == 2
    assert "'2023-02-31'" in told[0]
    assert "1440" in told[1]


PLACES = st.tuples(
    st.sampled_from(["2021-06-01", "2023-11-14", "2023-11-15", "2023-11-16"]), st.sampled_from([0, 717, 718, 719, 1439])
)


@given(
    st.lists(st.tuples(PLACES, st.booleans()), max_size=12),
    st.dictionaries(PLACES, st.lists(PLACES, max_size=2), max_size=4),
    st.booleans(),
)
def test_whatever_comes_meanwhile_what_lies_below_stays_reachable(
    there: list[tuple[tuple[str, int], bool]],
    meanwhile: dict[tuple[str, int], list[tuple[str, int]]],
    unread: bool,
) -> None:
    """A late writer registers in any window just after any deletion."""
    tiers = Tiers(unread=unread)

    def behind(place: Window | str) -> None:
        # Its rows of tiers 1 and 2 were written before and are hidden by a deletion, so only tier 3 is new.
        if isinstance(place, Window):
            for late in meanwhile.get((place.date, place.window), []):
                if late == place or Window(*late) in tiers.windows:
                    tiers.instances.add(Window(*late))

    for place, instance in there:
        tiers.window(*place, instance=instance)
    tiers.behind = behind
    for _ in range(2):
        tiers.compact()
    assert tiers.instances <= tiers.windows
    assert {window.date for window in tiers.windows} <= tiers.days
    if not unread and not meanwhile:
        passed = {window for window in tiers.windows if window < ("2023-11-15", 719)}
        assert passed <= tiers.instances
