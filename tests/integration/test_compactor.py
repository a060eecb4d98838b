"""Node-0's compaction carried out on the memory store (R5, R7, R13)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from stacksaga_flask import Engine, ManualTime, read_settings
from stacksaga_flask.clock import SECOND
from stacksaga_flask.errors import OutcomeUnknown, StoreUnavailable
from stacksaga_flask.store.contract import Drop, Register
from stacksaga_flask.store.memory import MemoryStore
from stacksagad.recovery.compactor import Compactor
from stacksagad.recovery.observed import Ended, RecoveryCounters
from stacksagad.recovery.sweep import WHOLE_RING, Sector
from tests.support.sweeping import HOUR, MINUTE, Directory, WatchedStore

NODE_0 = Sector(WHOLE_RING.minimum, -1)


@pytest.fixture
def directory() -> Directory:
    settings = read_settings({"STACKSAGA_STORE": "memory://"}, application_name="shop")
    # 2023-11-15 12:00:00 UTC.
    time = ManualTime(1_700_049_600 * SECOND)
    store = WatchedStore(MemoryStore(settings.scope, time))
    return Directory(Engine(settings, open_store=lambda: store, time_source=time), store, time)


class Behind:
    """Something happens after the deletion of a row, or to the calls that follow it."""

    def __init__(self, directory: Directory, tier: int) -> None:
        self.deleted: list[int] = []
        self.put_back: list[Register] = []
        self.late: list[Any] = []
        self.read_fails = 0
        self.put_back_fails = 0
        self.delete_fails: list[Exception] = []
        self._tier = tier
        self._directory = directory
        directory.store.before = self

    def __call__(self, name: str, arguments: tuple[Any, ...]) -> None:
        operation = arguments[0] if name == "apply" else None
        if isinstance(operation, Drop) and operation.tier == self._tier:
            self.deleted.append(operation.timestamp)
            if self.delete_fails:
                raise self.delete_fails.pop()
        elif isinstance(operation, Register) and operation.instance_token == 0:
            if self.put_back_fails:
                self.put_back_fails -= 1
                raise StoreUnavailable("away")
            self.put_back.append(operation)
        elif name in ("instances", "windows") and self.deleted:
            if self.read_fails:
                self.read_fails -= 1
                raise StoreUnavailable("away")
            late, self.late = self.late, []
            for register in late:
                register()


def test_windows_and_dates_that_are_over_and_empty_go(directory: Directory) -> None:
    for ago in (2000, 1440, 5):
        directory.add(directory.window(ago), tiers=2)
    kept = directory.window(4)
    directory.add(kept)
    counters = RecoveryCounters()
    summary = Compactor(directory.node, observer=counters).tick()
    assert (summary.ended, summary.walked) == (Ended.THROUGH, True)
    assert (summary.windows, summary.dates, summary.put_back) == (3, 1, 0)
    assert counters.totals == {"windows pruned": 3, "dates pruned": 1}
    assert directory.tier_2() == [kept]
    assert directory.tier_1() == [kept.date]


def test_a_deletion_carries_the_wall_clock_and_they_rise(directory: Directory) -> None:
    for ago in (6, 5, 4):
        directory.add(directory.window(ago), tiers=2)
    behind = Behind(directory, 2)
    Compactor(directory.node).tick()
    now = directory.time.wall()
    assert behind.deleted == [now, now + 1, now + 2]


@pytest.mark.parametrize("sector", [None, Sector(WHOLE_RING.minimum + 1, WHOLE_RING.maximum)])
def test_other_nodes_ask_nothing(directory: Directory, sector: Sector | None) -> None:
    directory.add(directory.window(5), tiers=2)
    directory.store.calls.clear()
    assert Compactor(directory.node, sector=lambda: sector).tick().ended is Ended.NO_SECTOR
    assert directory.store.calls == {}


def test_node_0_looks_at_the_whole_ring_before_it_deletes(directory: Directory) -> None:
    windows = [directory.window(5), directory.window(4)]
    # "web-1" lies in the upper half of the ring, which is another node's.
    directory.add(windows[0], instance_id="web-1")
    directory.add(windows[1], tiers=2)
    assert Compactor(directory.node, sector=lambda: NODE_0).tick().windows == 1
    assert directory.tier_2() == windows[:1]


def test_it_walks_every_ten_windows_and_on_demand(directory: Directory) -> None:
    compactor = Compactor(directory.node)
    walked = []
    for minute in range(21):
        if compactor.tick().walked:
            walked.append(minute)
        directory.time.advance(MINUTE)
    assert walked == [0, 10, 20]
    assert not compactor.tick().walked
    assert compactor.tick(walk=True).walked


def test_between_two_walks_it_asks_nothing(directory: Directory) -> None:
    compactor = Compactor(directory.node)
    compactor.tick()
    directory.time.advance(MINUTE)
    directory.store.calls.clear()
    compactor.tick()
    assert directory.store.calls == {}


def test_what_was_registered_behind_the_deletion_is_put_back_above_it(directory: Directory) -> None:
    window = directory.window(5)
    directory.add(window, tiers=2)
    behind = Behind(directory, 2)
    behind.late = [lambda: directory.add(window)]
    summary = Compactor(directory.node).tick()
    assert (summary.windows, summary.put_back) == (1, 1)
    assert behind.put_back[0].timestamp > behind.deleted[0]
    assert [path[:2] for path, _ in directory.pointers()] == [window]


def test_what_was_registered_behind_the_deletion_of_a_date_puts_it_back(directory: Directory) -> None:
    window = directory.window(1440)
    directory.add(window, tiers=1)
    behind = Behind(directory, 1)
    behind.late = [lambda: directory.add(window)]
    assert Compactor(directory.node).tick().put_back == 1
    assert behind.put_back[0].day_timestamp > behind.deleted[0]
    assert [path[:2] for path, _ in directory.pointers()] == [window]


@pytest.mark.parametrize(("tier", "ago"), [(2, 5), (1, 1440)])
def test_what_cannot_be_read_after_a_deletion_is_put_back(directory: Directory, tier: int, ago: int) -> None:
    window = directory.window(ago)
    directory.add(window, tiers=tier)
    behind = Behind(directory, tier)
    behind.read_fails = 1
    summary = Compactor(directory.node).tick()
    assert summary.put_back == 1
    assert directory.tier_1() == [window.date]


def test_a_put_back_that_fails_is_what_the_next_tick_begins_with(directory: Directory) -> None:
    window = directory.window(5)
    directory.add(window, tiers=2)
    behind = Behind(directory, 2)
    behind.late = [lambda: directory.add(window)]
    behind.put_back_fails = 2
    present = [WHOLE_RING]
    compactor = Compactor(directory.node, sector=lambda: present[0])
    assert [compactor.tick().ended for _ in range(2)] == [Ended.STORE] * 2
    assert list(directory.pointers()) == []
    # Whoever is Node-0 by now: it has to be put back.
    present[0] = Sector(0, 1)
    assert [compactor.tick().ended for _ in range(2)] == [Ended.NO_SECTOR] * 2
    assert len(behind.put_back) == 1
    assert [path[:2] for path, _ in directory.pointers()] == [window]


def test_a_deletion_that_was_not_acknowledged_is_seen_to(directory: Directory) -> None:
    window = directory.window(5)
    directory.add(window, tiers=2)
    behind = Behind(directory, 2)
    behind.delete_fails = [OutcomeUnknown("no answer")]
    behind.late = [lambda: directory.add(window)]
    assert Compactor(directory.node).tick().put_back == 1
    assert [path[:2] for path, _ in directory.pointers()] == [window]


def test_a_sector_that_ends_after_a_deletion_does_not_end_what_follows_it(directory: Directory) -> None:
    windows = [directory.window(5), directory.window(4)]
    for window in windows:
        directory.add(window, tiers=2)
    present: list[Sector | None] = [WHOLE_RING]
    behind = Behind(directory, 2)
    behind.late = [lambda: directory.add(windows[0]), lambda: present.__setitem__(0, None)]
    summary = Compactor(directory.node, sector=lambda: present[0]).tick()
    assert (summary.ended, summary.windows, summary.put_back) == (Ended.NO_SECTOR, 1, 1)
    assert directory.tier_2() == windows


def test_two_node_0s_do_no_harm(directory: Directory) -> None:
    window = directory.window(5)
    directory.add(window, tiers=2)
    behind = Behind(directory, 2)
    other = Compactor(directory.node)
    # The other one walks between the deletion and the look below it, and so does a late writer.
    behind.late = [lambda: other.tick(), lambda: directory.add(window)]
    Compactor(directory.node).tick()
    assert [path[:2] for path, _ in directory.pointers()] == [window]


def test_a_store_that_is_away_ends_the_tick_with_one_line_and_the_next_goes_on(
    directory: Directory, caplog: pytest.LogCaptureFixture
) -> None:
    directory.add(directory.window(5), tiers=2)
    directory.store.fail("windows", times=2)
    compactor = Compactor(directory.node)
    with caplog.at_level(logging.WARNING, "stacksagad"):
        ended = [compactor.tick().ended for _ in range(3)]
    assert ended == [Ended.STORE, Ended.STORE, Ended.THROUGH]
    assert caplog.messages == ["a compaction ended early, and the next one goes on: the store is not there"]
    assert directory.tier_2() == []


def test_a_clock_that_is_off_prunes_nothing(directory: Directory) -> None:
    directory.add(directory.window(5), tiers=2)
    theirs = directory.time.wall()
    directory.store.instead["now"] = lambda: theirs
    directory.time.set_wall(theirs + HOUR)
    assert Compactor(directory.node).tick().ended is Ended.CLOCK
    assert len(directory.tier_2()) == 1


def test_stopping_ends_the_tick(directory: Directory) -> None:
    directory.add(directory.window(5), tiers=2)
    compactor = Compactor(directory.node)
    compactor.stop()
    assert compactor.tick().ended is Ended.STOPPED
    assert len(directory.tier_2()) == 1
