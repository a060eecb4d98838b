"""What a sweep does next, carried out on a directory of dicts; no store, clock or thread (R4, R5, R7, R12)."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stacksaga_flask.clock import SECOND
from stacksaga_flask.directory.windows import Window, WindowGrid
from stacksaga_flask.store.contract import Path
from stacksagad.recovery.requests import (
    BucketRead,
    Dispatch,
    DropInstance,
    Page,
    ReadBuckets,
    ReadDays,
    ReadInstances,
    ReadPointers,
    ReadWindows,
    Request,
    Strange,
    WindowsFound,
)
from stacksagad.recovery.sweep import WHOLE_RING, Cursor, Sector, horizon, sweep

MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE
GRID = WindowGrid(interval=60, skew_margin=SECOND)
NOON = 1_700_049_600 * SECOND
"""2023-11-15 12:00:00 UTC."""


def test_noon_is_noon() -> None:
    moment = datetime.datetime.fromtimestamp(NOON / SECOND, datetime.timezone.utc)
    assert moment.isoformat() == "2023-11-15T12:00:00+00:00"


@dataclass
class Directory:
    """A directory; instance ids are the tokens as text. `asked` holds the reads, `dispatched` the pointers."""

    pointers: dict[Path, list[UUID]] = field(default_factory=dict)
    extra_days: list[str] = field(default_factory=list)
    extra_windows: list[tuple[str, int]] = field(default_factory=list)
    extra_instances: set[tuple[Window, int]] = field(default_factory=set)
    busy: set[Path] = field(default_factory=set)
    page: int = 2
    keep: bool = False
    """Whether buckets stay, as if something in them were not durable."""
    asked: list[Request] = field(default_factory=list)
    dispatched: list[Dispatch] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)
    found: list[WindowsFound] = field(default_factory=list)
    read: dict[Path, int] = field(default_factory=dict)

    def add(self, date: str, window: int, token: int = 0, bucket: int = 0, pointers: int = 1) -> Path:
        path = Path(date, window, str(token), bucket)
        self.pointers.setdefault(path, []).extend(uuid4() for _ in range(pointers))
        return path

    def sweep(self, cursor: Cursor, *, now: int = NOON, sector: Sector = WHOLE_RING, **options: Any) -> bool:
        """A sweep; `cut` ends it before so many requests. Tells whether it came to its end."""
        self.asked.clear()
        self.read.clear()
        cut, walk = options.get("cut"), options.get("walk", False)
        steps = sweep(cursor, horizon(GRID, now=now, seal_delay=10 * SECOND), sector, walk=walk)
        answer: Any = None
        done = 0
        while True:
            try:
                request = steps.send(answer)
            except StopIteration:
                return True
            if done == cut:
                steps.close()
                return False
            answer = self.answer(request)
            done += 1

    def answer(self, request: Request) -> Any:
        if type(request).__name__.startswith("Read"):
            self.asked.append(request)
        match request:
            case ReadDays(year):
                dates = {path.date for path in self.pointers} | set(self.extra_days)
                return sorted(date for date in dates if date.startswith(str(year)))
            case ReadWindows(date, minimum, maximum):
                there = {(path.date, path.window) for path in self.pointers} | set(self.extra_windows)
                there |= {(window.date, window.window) for window, _ in self.extra_instances}
                return sorted(window for day, window in there if day == date and minimum <= window <= maximum)
            case ReadInstances(window, minimum, maximum):
                tokens = {int(path.instance_id) for path in self.pointers if path[:2] == window}
                tokens |= {token for there, token in self.extra_instances if there == window}
                return [(one, str(one)) for one in sorted(tokens) if minimum <= one <= maximum]
            case ReadBuckets(window, instance_id):
                return sorted(path.bucket for path in self.pointers if path[:3] == (*window, instance_id))
            case ReadPointers(path, token):
                assert path.instance_id == str(token)
                return self.next_page(path)
            case Dispatch():
                self.dispatched.append(request)
            case BucketRead(path):
                assert self.read.pop(path) == len(self.pointers[path])
                if not self.keep:
                    del self.pointers[path]
            case DropInstance(window, token, instance_id):
                assert instance_id == str(token)
                self.extra_instances.remove((window, token))
            case Strange(what):
                self.strange.append(what)
            case WindowsFound():
                self.found.append(request)
        return None

    def next_page(self, path: Path) -> Page | None:
        if path in self.busy:
            return None
        begin = self.read.get(path, 0)
        ids = tuple(self.pointers[path][begin : begin + self.page])
        self.read[path] = begin + len(ids)
        return Page(ids, last=len(ids) < self.page)

    def paths(self) -> list[Path]:
        return [dispatch.path for dispatch in self.dispatched]


def place(path: Path) -> tuple[str, int, int, int]:
    return path.date, path.window, int(path.instance_id), path.bucket


# -- what is found -----------------------------------------------------------------------------------------------


def test_pointers_come_oldest_first_by_date_window_token_and_bucket() -> None:
    directory = Directory()
    expected = [
        directory.add("2022-12-31", 1439, token=5),
        directory.add("2023-11-14", 1439, token=-7, bucket=1),
        directory.add("2023-11-15", 0, token=-9),
        directory.add("2023-11-15", 0, token=3, bucket=0),
        directory.add("2023-11-15", 0, token=3, bucket=1),
        directory.add("2023-11-15", 0, token=3, bucket=2),
        directory.add("2023-11-15", 100, token=-9),
    ]
    directory.pointers = dict(reversed(directory.pointers.items()))
    assert directory.sweep(Cursor())
    assert directory.paths() == expected


def test_within_a_bucket_the_order_is_the_stores_over_all_pages() -> None:
    directory = Directory()
    path = directory.add("2023-11-15", 7, pointers=5)
    ids = list(directory.pointers[path])
    directory.sweep(Cursor())
    assert [dispatch.transaction_id for dispatch in directory.dispatched] == ids


@pytest.mark.parametrize(("second", "is_swept"), [(9, False), (10, True)])
def test_a_window_is_swept_from_its_start_and_the_seal_delay_on(second: int, is_swept: bool) -> None:
    directory = Directory()
    directory.add("2023-11-15", 720)
    directory.sweep(Cursor(), now=NOON + second * SECOND)
    assert bool(directory.dispatched) == is_swept


def test_a_watchdog_of_tomorrow_is_not_even_looked_for() -> None:
    directory = Directory()
    directory.add("2023-11-16", 0, bucket=1)
    directory.sweep(Cursor())
    assert directory.asked == [ReadDays(year) for year in (2021, 2022, 2023, 2024)]


def test_only_the_sectors_instances_are_asked_for() -> None:
    directory = Directory()
    for token in (-10, -1, 0, 9, 10):
        directory.add("2023-11-15", 3, token=token)
    directory.sweep(Cursor(), sector=Sector(-1, 9))
    assert [int(path.instance_id) for path in directory.paths()] == [-1, 0, 9]


def test_an_instance_without_buckets_is_dropped() -> None:
    directory = Directory(extra_days=["2023-11-15"], extra_instances={(Window("2023-11-15", 3), 4)})
    directory.sweep(Cursor())
    assert directory.extra_instances == set()


def test_a_bucket_without_pointers_is_read_whole_and_so_dropped() -> None:
    directory = Directory()
    directory.add("2023-11-15", 3, bucket=1, pointers=0)
    directory.sweep(Cursor())
    assert directory.pointers == {}


def test_a_bucket_that_is_still_under_way_keeps_nobody_else() -> None:
    directory = Directory()
    slow = directory.add("2023-11-15", 3, bucket=0)
    others = [directory.add("2023-11-15", 3, bucket=2), directory.add("2023-11-15", 4)]
    directory.busy.add(slow)
    cursor = Cursor()
    directory.sweep(cursor)
    assert directory.paths() == others
    directory.busy.clear()
    directory.sweep(cursor)
    assert directory.paths() == [*others, slow]


def test_dates_and_windows_that_are_none_are_told_and_passed_over() -> None:
    directory = Directory()
    directory.extra_days = ["2023-02-30", "2023-1-1", "2023x", "20230101", "2023-11-15T00"]
    directory.extra_windows = [("2023-11-14", 1440), ("2023-11-14", 86_399)]
    good = [directory.add("2023-11-14", 1439), directory.add("2023-11-15", 5)]
    directory.sweep(Cursor())
    assert directory.paths() == good
    assert len(directory.strange) == 7
    assert any("'2023-02-30'" in what for what in directory.strange)
    assert any("1440" in what for what in directory.strange)


# -- the cursor --------------------------------------------------------------------------------------------------


def idle_cost(windows: int) -> list[Request]:
    """What is asked by a sweep that finds nothing, after so many windows of which each was swept."""
    directory, cursor, now = Directory(), Cursor(), NOON
    directory.sweep(cursor, now=now)
    for _ in range(windows):
        now += MINUTE
        directory.sweep(cursor, now=now)
    assert cursor.unfinished == set()
    # So that no walk is due in the next one.
    assert cursor.walked_at == (now - 10 * SECOND) // MINUTE
    directory.sweep(cursor, now=now + MINUTE)
    return list(directory.asked)


def test_an_idle_sweep_asks_once_however_many_windows_have_passed() -> None:
    at_first = idle_cost(0)
    assert at_first == [ReadWindows("2023-11-15", 720, 720)]
    assert len(idle_cost(10_000)) == len(at_first)


def test_a_second_sweep_of_one_window_asks_nothing() -> None:
    directory, cursor = Directory(), Cursor()
    directory.sweep(cursor)
    directory.sweep(cursor, now=NOON + SECOND)
    assert directory.asked == []


def test_over_midnight_it_asks_twice() -> None:
    directory, cursor = Directory(), Cursor()
    midnight = NOON + 12 * 60 * MINUTE
    directory.sweep(cursor, now=midnight - MINUTE)
    directory.sweep(cursor, now=midnight + MINUTE)
    assert directory.asked == [ReadWindows("2023-11-15", 1439, 1439), ReadWindows("2023-11-16", 0, 0)]


def test_after_the_last_window_of_a_day_only_the_next_day_is_asked_for() -> None:
    directory, cursor = Directory(), Cursor()
    midnight = NOON + 12 * 60 * MINUTE
    directory.sweep(cursor, now=midnight)
    assert cursor.seen_until == ("2023-11-15", 1439)
    directory.sweep(cursor, now=midnight + 2 * MINUTE)
    assert directory.asked == [ReadWindows("2023-11-16", 0, 1)]


def test_at_new_year_nothing_is_missed() -> None:
    directory, cursor = Directory(), Cursor()
    new_year = NOON + 46 * DAY + 12 * 60 * MINUTE
    directory.sweep(cursor, now=new_year - MINUTE)
    paths = [directory.add("2023-12-31", 1439), directory.add("2024-01-01", 0)]
    directory.sweep(cursor, now=new_year + MINUTE)
    assert directory.paths() == paths
    assert not [request for request in directory.asked if isinstance(request, ReadDays)]


def test_windows_of_days_are_found_one_after_the_other() -> None:
    grid, cursor = WindowGrid(interval=86_400, skew_margin=SECOND), Cursor()
    seen = horizon(grid, now=NOON, seal_delay=0)
    list_of(sweep(cursor, seen, WHOLE_RING))
    later = horizon(grid, now=NOON + 3 * DAY, seal_delay=0)
    asked = list_of(sweep(cursor, later, WHOLE_RING))
    assert asked[:3] == [ReadWindows(f"2023-11-{day}", 0, 0) for day in (16, 17, 18)]


def list_of(steps: Any) -> list[Request]:
    requests = []
    try:
        requests.append(next(steps))
        while True:
            requests.append(steps.send([]))
    except StopIteration:
        return requests


def test_tiers_1_and_2_are_walked_whole_every_ten_windows() -> None:
    directory, cursor = Directory(), Cursor()
    walks = []
    for minute in range(31):
        directory.sweep(cursor, now=NOON + minute * MINUTE)
        if ReadDays(2023) in directory.asked:
            walks.append(minute)
    assert walks == [0, 10, 20, 30]


def test_a_window_that_was_registered_behind_the_cursor_is_found_by_the_next_walk() -> None:
    directory, cursor = Directory(), Cursor()
    directory.sweep(cursor)
    late = directory.add("2023-11-15", 100)
    directory.sweep(cursor, now=NOON + MINUTE)
    assert directory.dispatched == []
    directory.sweep(cursor, now=NOON + 2 * MINUTE, walk=True)
    assert directory.paths() == [late]


def test_a_clock_that_was_set_back_puts_no_walk_off() -> None:
    directory, cursor = Directory(), Cursor()
    directory.sweep(cursor, now=NOON + 60 * MINUTE)
    directory.sweep(cursor)
    assert ReadDays(2023) in directory.asked
    assert cursor.seen_until == ("2023-11-15", 779)


def test_an_unfinished_window_is_visited_again_and_a_finished_one_is_not() -> None:
    directory, cursor = Directory(keep=True), Cursor()
    path = directory.add("2023-11-15", 100)
    directory.sweep(cursor)
    assert cursor.unfinished == {Window("2023-11-15", 100)}
    directory.keep = False
    directory.sweep(cursor, now=NOON + SECOND)
    assert directory.paths() == [path, path]
    directory.sweep(cursor, now=NOON + 2 * SECOND)
    directory.sweep(cursor, now=NOON + 3 * SECOND)
    assert directory.asked == []


def test_unfinished_windows_come_before_new_ones() -> None:
    directory, cursor = Directory(keep=True), Cursor()
    old = directory.add("2023-11-15", 100)
    directory.sweep(cursor)
    new = directory.add("2023-11-15", 720)
    directory.sweep(cursor, now=NOON + MINUTE)
    assert directory.paths() == [old, old, new]


def test_a_sector_that_grows_is_walked_whole() -> None:
    directory, cursor = Directory(), Cursor()
    directory.add("2023-11-15", 3, token=50)
    directory.sweep(cursor, sector=Sector(0, 9))
    assert directory.dispatched == []
    directory.sweep(cursor, sector=Sector(0, 99), now=NOON + SECOND)
    assert len(directory.dispatched) == 1


def test_a_sector_that_shrinks_keeps_what_was_seen_and_grows_to_what_was_not() -> None:
    directory, cursor = Directory(), Cursor()
    directory.sweep(cursor, sector=Sector(0, 99))
    directory.sweep(cursor, sector=Sector(0, 9), now=NOON + SECOND)
    assert directory.asked == []
    directory.add("2023-11-15", 719, token=50)
    directory.sweep(cursor, sector=Sector(0, 99), now=NOON + 2 * SECOND)
    assert len(directory.dispatched) == 1


def test_it_tells_beforehand_how_many_windows_it_visits() -> None:
    directory = Directory()
    for window in (1, 2, 3):
        directory.add("2023-11-14", window, pointers=3)
    directory.sweep(Cursor())
    assert directory.found == [WindowsFound(3, walked=True)]


# -- for any directory -------------------------------------------------------------------------------------------

DATES = ["2021-01-01", "2022-12-31", "2023-11-12", "2023-11-14", "2023-11-15", "2023-11-16", "2024-01-01"]
PLACES = st.lists(
    st.tuples(
        st.sampled_from(DATES),
        st.sampled_from([0, 1, 718, 719, 720, 1438, 1439]),
        st.sampled_from([-(2**63), -1, 0, 2**63 - 1]),
        st.integers(0, 3),
        st.integers(0, 5),
    ),
    max_size=12,
)


def filled(places: Iterable[tuple[str, int, int, int, int]]) -> Directory:
    directory = Directory()
    for date, window, token, bucket, pointers in places:
        directory.add(date, window, token, bucket, pointers)
    return directory


def is_sealed(path: Path) -> bool:
    return (path.date, path.window) < ("2023-11-15", 720)


@given(PLACES)
def test_everything_sealed_is_dispatched_once_in_order_and_nothing_else_is(
    places: list[tuple[str, int, int, int, int]],
) -> None:
    directory = filled(places)
    sealed = {one: path for path, ids in directory.pointers.items() if is_sealed(path) for one in ids}
    directory.sweep(Cursor())
    assert {one.transaction_id: one.path for one in directory.dispatched} == sealed
    assert len(directory.dispatched) == len(sealed)
    order = [place(path) for path in directory.paths()]
    assert order == sorted(order)
    assert all(not is_sealed(path) for path in directory.pointers)


@given(PLACES, st.lists(st.integers(0, 60), max_size=6), st.booleans())
def test_wherever_sweeps_are_cut_short_nothing_sealed_is_lost(
    places: list[tuple[str, int, int, int, int]], cuts: list[int], restarts: bool
) -> None:
    directory, cursor = filled(places), Cursor()
    sealed = {one for path, ids in directory.pointers.items() if is_sealed(path) for one in ids}
    for second, cut in enumerate(cuts):
        directory.sweep(cursor, now=NOON + second * SECOND, cut=cut)
        cursor = Cursor() if restarts else cursor
    directory.sweep(cursor, now=NOON + 8 * SECOND)
    assert {one.transaction_id for one in directory.dispatched} == sealed
    assert all(not is_sealed(path) for path in directory.pointers)


@given(PLACES, st.lists(st.tuples(st.integers(0, 60), st.sampled_from([(-(2**63), -1), (0, 2**63 - 1)])), max_size=5))
def test_whatever_sectors_it_had_the_whole_ring_leaves_nothing(
    places: list[tuple[str, int, int, int, int]], sectors: list[tuple[int, tuple[int, int]]]
) -> None:
    directory, cursor = filled(places), Cursor()
    for second, (cut, sector) in enumerate(sectors):
        directory.sweep(cursor, now=NOON + second * SECOND, sector=Sector(*sector), cut=cut)
    directory.sweep(cursor, now=NOON + 8 * SECOND)
    assert all(not is_sealed(path) for path in directory.pointers)
