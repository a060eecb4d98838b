"""The sweep carried out on the memory store, with re-invocations made up (R4, R5, R7, R14)."""

from __future__ import annotations

import gc
import logging
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest

from stacksaga_flask import Engine, ManualTime, read_settings
from stacksaga_flask.directory.windows import Window
from stacksaga_flask.engine.circuit import Circuit
from stacksaga_flask.engine.reinvoke import Reinvocation
from stacksaga_flask.errors import NotStarted, RightEnded, StoreUnavailable
from stacksaga_flask.identity import token
from stacksaga_flask.store.contract import Path, Register
from stacksaga_flask.store.memory import MemoryStore
from stacksagad.recovery.observed import Ended, RecoveryCounters, RecoveryObserver, TickSummary
from stacksagad.recovery.sweep import WHOLE_RING, Sector
from stacksagad.recovery.sweeper import Sweeper
from stacksagad.recovery.workers import AtOnce, ThreadWorkers
from tests.support.sweeping import CLAIMED, COMPLETED, HOUR, MINUTE, Directory, MadeUp, WatchedStore
from tests.support.waiting import wait_until


def new_directory(**settings: object) -> Directory:
    config = {"STACKSAGA_STORE": "memory://", **{f"STACKSAGA_{k.upper()}": v for k, v in settings.items()}}
    read = read_settings(config, application_name="shop")
    time = ManualTime()
    store = WatchedStore(MemoryStore(read.scope, time))
    return Directory(Engine(read, open_store=lambda: store, time_source=time), store, time)


@pytest.fixture
def directory() -> Directory:
    return new_directory()


@pytest.fixture
def made_up() -> MadeUp:
    return MadeUp()


def sweeper_of(directory: Directory, made_up: MadeUp, **options: Any) -> Sweeper:
    options.setdefault("workers", AtOnce())
    return Sweeper(directory.node, made_up, **options)


@pytest.fixture
def threads() -> Iterator[Callable[[int], ThreadWorkers]]:
    made: list[ThreadWorkers] = []

    def new(most: int) -> ThreadWorkers:
        made.append(ThreadWorkers(most))
        return made[-1]

    yield new
    for workers in made:
        workers.stop()
        assert workers.drain(30)


# -- what a tick does --------------------------------------------------------------------------------------------


def test_what_is_durable_is_dropped_from_tier_5_up_to_tier_3(directory: Directory, made_up: MadeUp) -> None:
    window = directory.window(3)
    ids = directory.add(window, pointers=3)
    summary = sweeper_of(directory, made_up).tick()
    assert sorted(made_up.order) == sorted(ids)
    assert list(directory.pointers()) == []
    assert directory.tier_3() == []
    assert directory.tier_2() == [window], "tier 2 is Node-0's"
    assert (summary.ended, summary.walked, summary.found, summary.visited) == (Ended.THROUGH, True, 1, 1)
    assert (summary.buckets, summary.dispatched, summary.dropped, summary.kept) == (1, 3, 1, 0)
    assert summary.outcomes == {"completed": 3}
    assert summary.oldest_unfinished is None


def test_tier_by_tier_each_drop_is_acknowledged_before_the_next(directory: Directory, made_up: MadeUp) -> None:
    directory.add(directory.window(3))
    dropped: list[tuple[int, int]] = []

    def before(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "apply":
            dropped.extend((one.tier, one.timestamp) for one in arguments)

    directory.store.before = before
    sweeper_of(directory, made_up).tick()
    opens = directory.node.grid.opens(directory.window(3))
    assert dropped == [(5, opens), (4, opens), (3, opens)]


def test_pointers_are_handed_over_oldest_first(directory: Directory, made_up: MadeUp) -> None:
    instances = sorted(("web-1", "web-2", "web-3"), key=token)
    places = [
        (directory.window(ago), instance, bucket)
        for ago in (3000, 1441, 1440, 12, 1, 0)
        for instance in instances
        for bucket in (0, 1, 2)
    ]
    ids = {place: directory.add(place[0], instance_id=place[1], bucket=place[2])[0] for place in reversed(places)}
    sweeper_of(directory, made_up).tick()
    assert made_up.order == [ids[place] for place in places]


def test_what_is_not_sealed_is_left_alone(directory: Directory, made_up: MadeUp) -> None:
    directory.add(directory.window(-1))
    sweeper = sweeper_of(directory, made_up)
    sweeper.tick()
    assert made_up.order == []
    directory.time.advance(MINUTE)
    sweeper.tick()
    assert len(made_up.order) == 1


def test_the_re_invocations_of_one_tick_share_a_circuit_and_the_next_tick_has_its_own(
    directory: Directory, made_up: MadeUp
) -> None:
    first = directory.add(directory.window(3), pointers=2)
    sweeper = sweeper_of(directory, made_up)
    sweeper.tick()
    second = directory.add(directory.window(2))
    sweeper.tick(walk=True)
    circuits = [made_up.found[one].circuit for one in (*first, *second)]
    assert all(isinstance(circuit, Circuit) for circuit in circuits)
    assert circuits[0] is circuits[1]
    assert circuits[0] is not circuits[2]


def test_an_instance_without_buckets_and_a_bucket_without_pointers_are_dropped(
    directory: Directory, made_up: MadeUp
) -> None:
    directory.add(directory.window(3), tiers=3)
    directory.add(directory.window(2), tiers=4)
    sweeper_of(directory, made_up).tick()
    assert directory.tier_3() == []
    assert made_up.order == []


def test_a_row_of_tiers_1_or_2_with_nothing_below_does_no_harm(directory: Directory, made_up: MadeUp) -> None:
    directory.add(directory.window(3000), tiers=1)
    directory.add(directory.window(3), tiers=2)
    later = directory.add(directory.window(1))
    assert sweeper_of(directory, made_up).tick().ended is Ended.THROUGH
    assert made_up.order == later


def test_a_date_that_is_none_is_said_once_in_five_minutes(
    directory: Directory, made_up: MadeUp, caplog: pytest.LogCaptureFixture
) -> None:
    good = directory.add(directory.window(3))
    for date in ("2023-13-41", "2023-soon"):
        path = Path(date, 5, "web-1", 0)
        directory.store.apply(
            Register(
                path=path,
                transaction_id=uuid4(),
                instance_token=0,
                tiers=frozenset({1, 2, 3, 4, 5}),
                timestamp=1,
                day_timestamp=1,
            )
        )
    with caplog.at_level(logging.WARNING, "stacksagad"):
        sweeper = sweeper_of(directory, made_up)
        for _ in range(5):
            sweeper.tick(walk=True)
        assert made_up.order == good
        assert len(caplog.messages) == 2
        assert "'2023-13-41'" in caplog.text
        directory.time.advance(5 * MINUTE)
        sweeper.tick(walk=True)
    assert len(caplog.messages) == 4
    assert "(4 more like it since the last such line)" in caplog.messages[-1]


# -- what stays --------------------------------------------------------------------------------------------------


def test_what_is_not_durable_keeps_its_bucket_and_nobody_elses(directory: Directory, made_up: MadeUp) -> None:
    kept, other = directory.add(directory.window(3), pointers=3), directory.add(directory.window(3), bucket=2)
    made_up.says[kept[1]] = CLAIMED
    sweeper = sweeper_of(directory, made_up)
    summary = sweeper.tick()
    assert {one for _, one in directory.pointers()} == set(kept)
    assert other[0] in made_up.order
    assert (summary.dropped, summary.kept) == (1, 1)
    assert summary.oldest_unfinished == directory.window(3)
    assert sweeper.unfinished == 1


def test_the_next_tick_tries_only_what_was_left_and_then_drops_the_bucket(
    directory: Directory, made_up: MadeUp
) -> None:
    ids = directory.add(directory.window(3), pointers=700)
    left = ids[100], ids[600]
    for one in left:
        made_up.says[one] = CLAIMED
    sweeper = sweeper_of(directory, made_up)
    sweeper.tick()
    made_up.order.clear()
    directory.store.calls.clear()
    sweeper.tick()
    assert set(made_up.order) == set(left)
    assert directory.store.calls["pointers"] == 0
    made_up.says.clear()
    sweeper.tick()
    assert list(directory.pointers()) == []
    assert directory.tier_3() == []


def test_a_bucket_in_which_much_was_left_is_read_again(directory: Directory, made_up: MadeUp) -> None:
    ids = directory.add(directory.window(3), pointers=501)
    made_up.says.update(dict.fromkeys(ids, CLAIMED))
    sweeper = sweeper_of(directory, made_up)
    sweeper.tick()
    made_up.says.clear()
    directory.store.calls.clear()
    sweeper.tick()
    assert directory.store.calls["pointers"] == 1
    assert list(directory.pointers()) == []


def test_a_bucket_that_another_node_has_finished_is_forgotten(directory: Directory, made_up: MadeUp) -> None:
    ids = directory.add(directory.window(3))
    made_up.says[ids[0]] = CLAIMED
    sweeper, other = sweeper_of(directory, made_up), sweeper_of(directory, MadeUp())
    sweeper.tick()
    other.tick()
    assert sweeper.oldest_unfinished == directory.window(3)
    sweeper.tick()
    assert sweeper.unfinished == 0
    assert made_up.order == ids


@pytest.mark.parametrize("error", [StoreUnavailable("away"), RightEnded("late"), KeyError("a defect")])
def test_an_error_of_one_re_invocation_is_counted_and_logged_and_the_others_go_on(
    directory: Directory, made_up: MadeUp, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    ids = directory.add(directory.window(3), pointers=3)
    for one in ids[:2]:
        made_up.says[one] = error
    with caplog.at_level(logging.WARNING, "stacksagad"):
        summary = sweeper_of(directory, made_up).tick()
    assert summary.failures == {type(error).__name__: 2}
    assert summary.outcomes == {"completed": 1}
    assert summary.ended is Ended.THROUGH
    assert {one for _, one in directory.pointers()} == set(ids)
    assert len(caplog.messages) == 1
    assert f"transaction_id={min(ids[:2])}" in caplog.text
    assert ("Traceback" in caplog.text) == isinstance(error, KeyError)


def test_a_process_that_is_stopping_is_no_failure(directory: Directory, made_up: MadeUp) -> None:
    ids = directory.add(directory.window(3))
    made_up.says[ids[0]] = NotStarted()
    summary = sweeper_of(directory, made_up).tick()
    assert (summary.outcomes, summary.failures, summary.kept) == ({"not started": 1}, {}, 1)


def test_a_transaction_that_two_pointers_lead_to_is_not_run_twice_at_once(
    directory: Directory, made_up: MadeUp, threads: Callable[[int], ThreadWorkers]
) -> None:
    transaction_id, ends = uuid4(), threading.Event()
    for window, bucket in ((directory.window(3), 0), (directory.window(2), 1)):
        directory.add_pointer(Path(*window, "web-1", bucket), transaction_id)

    def slow() -> Reinvocation:
        assert ends.wait(30)
        return COMPLETED

    made_up.says[transaction_id] = slow
    workers = threads(10)
    sweeper = sweeper_of(directory, made_up, workers=workers)
    summary = sweeper.tick()
    assert (summary.dispatched, summary.skipped, sweeper.in_flight) == (1, 1, 1)
    ends.set()
    assert workers.drain(30)
    assert [path.bucket for path, _ in directory.pointers()] == [1]
    sweeper.tick()
    assert workers.drain(30)
    assert list(directory.pointers()) == []
    assert made_up.order == [transaction_id] * 2
    assert made_up.twice_at_once == []


def test_sweeping_everything_sees_to_both_pointers_of_one_transaction(
    directory: Directory, made_up: MadeUp, threads: Callable[[int], ThreadWorkers]
) -> None:
    transaction_id, others = uuid4(), directory.add(directory.window(1), pointers=20)
    for window, bucket in ((directory.window(3), 0), (directory.window(2), 1)):
        directory.add_pointer(Path(*window, "web-1", bucket), transaction_id)
    ends = threading.Event()
    # The first one ends when the last of the others begins.
    made_up.says[transaction_id] = lambda: COMPLETED if ends.wait(30) else CLAIMED
    made_up.says[max(others)] = lambda: ends.set() or COMPLETED  # type: ignore[func-returns-value]
    summary = sweeper_of(directory, made_up, workers=threads(10)).sweep_everything()
    assert list(directory.pointers()) == []
    assert (summary.ended, summary.dispatched, summary.skipped) == (Ended.THROUGH, 22, 0)
    assert summary.outcomes == {"completed": 22}
    assert (summary.dropped, summary.oldest_unfinished) == (3, None)


def test_a_slow_transaction_keeps_its_own_bucket_only_and_is_not_handed_over_again(
    directory: Directory, made_up: MadeUp, threads: Callable[[int], ThreadWorkers]
) -> None:
    slow = directory.add(directory.window(9), pointers=2)
    others = directory.add(directory.window(8), pointers=10) + directory.add(directory.window(9), bucket=1)
    ends = threading.Event()
    made_up.says[min(slow)] = lambda: COMPLETED if ends.wait(30) else CLAIMED
    workers = threads(2)
    sweeper = sweeper_of(directory, made_up, workers=workers)
    sweeper.tick()
    wait_until(lambda: {one for _, one in directory.pointers()} == set(slow))
    assert set(made_up.order) == {*slow, *others}
    for _ in range(3):
        directory.time.advance(MINUTE)
        new = directory.add(directory.window(0))
        sweeper.tick()
        wait_until(lambda new=new: new[0] in made_up.order)  # type: ignore[misc]
    assert sweeper.oldest_unfinished == directory.window(12)
    assert [made_up.order.count(one) for one in slow] == [1, 1]
    ends.set()
    wait_until(lambda: not list(directory.pointers()))
    assert workers.drain(30)
    assert sweeper.oldest_unfinished is None


def test_no_more_are_in_flight_than_workers_run(
    directory: Directory, made_up: MadeUp, threads: Callable[[int], ThreadWorkers]
) -> None:
    ids = directory.add(directory.window(3), pointers=60)
    both = threading.Barrier(4)

    def together() -> Reinvocation:
        # Were fewer than four at once, it would wait in vain.
        both.wait(30)
        seen.append(sweeper.in_flight)
        return COMPLETED

    seen: list[int] = []
    made_up.says.update(dict.fromkeys(ids, together))
    sweeper = sweeper_of(directory, made_up, workers=threads(4))
    sweeper.tick()
    wait_until(lambda: len(seen) == 60)
    # One more may stand at the door.
    assert max(seen) <= 5


# -- restarts, outages, leases -----------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


def killed_at(names: tuple[str, ...], call: int) -> Callable[[str, tuple[Any, ...]], None]:
    seen = [0]

    def before(name: str, arguments: tuple[Any, ...]) -> None:
        if name in names:
            seen[0] += 1
            if seen[0] == call:
                raise Killed

    return before


@pytest.mark.parametrize("call", range(1, 28))
def test_a_node_that_is_killed_at_any_call_loses_nothing(call: int, made_up: MadeUp) -> None:
    directory = new_directory()
    ids = [
        one
        for ago in (5, 3)
        for instance in ("web-1", "web-2")
        for one in directory.add(directory.window(ago), instance_id=instance, pointers=2)
    ]
    done: set[UUID] = set()

    def once(transaction_id: UUID) -> Reinvocation:
        done.add(transaction_id)
        return COMPLETED

    made_up.says.update({one: partial(once, one) for one in ids})
    names = ("windows", "instances", "buckets", "pointers", "apply")
    directory.store.before = killed_at(names, call)
    with pytest.raises(Killed):
        sweeper_of(directory, made_up).tick()
    directory.store.mend()
    unreached = {one for _, one in directory.pointers()}
    assert done | unreached == set(ids), "what was not done is still found from the top"
    sweeper_of(directory, made_up).tick()
    assert done == set(ids)
    assert directory.tier_3() == []


@pytest.mark.parametrize("name", ["windows", "instances", "buckets", "pointers", "now"])
def test_a_store_that_is_away_ends_the_tick_with_one_line_and_the_next_goes_on(
    directory: Directory, made_up: MadeUp, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    ids = [one for ago in (5, 4, 3) for one in directory.add(directory.window(ago), pointers=2)]
    sweeper = sweeper_of(directory, made_up)
    directory.store.fail(name, times=3)
    with caplog.at_level(logging.WARNING, "stacksagad"):
        summaries = [sweeper.tick() for _ in range(4)]
    assert [summary.ended for summary in summaries] == [Ended.STORE] * 3 + [Ended.THROUGH]
    assert isinstance(summaries[0].error, StoreUnavailable)
    assert caplog.messages == ["a sweep ended early, and the next one goes on: the store is not there"]
    assert set(made_up.order) == set(ids)
    assert list(directory.pointers()) == []


class SecondPageFails:
    """A bucket of which only the first page can be read at first."""

    def __init__(self, ids: list[UUID]) -> None:
        self._ids = sorted(ids)
        self._calls = 0

    def __call__(self, path: Path) -> Iterator[UUID]:
        self._calls += 1
        is_first = self._calls == 1
        for number, one in enumerate(self._ids):
            if number == 500 and is_first:
                raise StoreUnavailable("away")
            yield one


def test_a_store_that_goes_away_in_the_middle_of_a_bucket_keeps_the_bucket(
    directory: Directory, made_up: MadeUp
) -> None:
    ids = directory.add(directory.window(3), pointers=1200)
    directory.store.instead["pointers"] = SecondPageFails(ids)
    sweeper = sweeper_of(directory, made_up)
    assert sweeper.tick().ended is Ended.STORE
    assert len(made_up.order) == 500
    memory = directory.store.beside(directory.store.scope)
    assert len(list(memory.pointers(Path(*directory.window(3), "web-1", 0)))) == 1200
    assert sweeper.oldest_unfinished == directory.window(3)
    sweeper.tick()
    assert len(made_up.order) == 500 + 1200
    assert directory.tier_3() == []


def test_a_bucket_that_was_read_in_part_stays_while_something_of_it_is_in_flight_and_is_then_read_whole(
    directory: Directory, made_up: MadeUp, threads: Callable[[int], ThreadWorkers]
) -> None:
    ids = directory.add(directory.window(3), pointers=600)
    directory.store.instead["pointers"] = SecondPageFails(ids)
    ends = threading.Event()
    made_up.says[min(ids)] = lambda: COMPLETED if ends.wait(30) else CLAIMED
    workers = threads(2)
    sweeper = sweeper_of(directory, made_up, workers=workers)
    assert sweeper.tick().ended is Ended.STORE
    assert sweeper.tick().ended is Ended.THROUGH
    ends.set()
    assert workers.drain(30)
    assert directory.tier_3() == ["web-1"]
    assert set(made_up.order) < set(ids)
    sweeper.tick()
    assert workers.drain(30)
    assert set(made_up.order) == set(ids)
    assert directory.tier_3() == []


def test_a_bucket_that_could_not_be_dropped_is_dropped_by_the_next_tick_without_a_re_invocation(
    directory: Directory, made_up: MadeUp
) -> None:
    ids = directory.add(directory.window(3), pointers=2)
    sweeper = sweeper_of(directory, made_up)
    directory.store.fail("apply")
    summary = sweeper.tick()
    assert (summary.dropped, summary.kept, len(made_up.order)) == (0, 1, 2)
    sweeper.tick()
    assert directory.tier_3() == []
    assert sorted(made_up.order) == sorted(ids)


@pytest.mark.parametrize("call", [2, 3])
def test_a_row_above_a_dropped_bucket_that_could_not_be_dropped_goes_later(
    directory: Directory, made_up: MadeUp, call: int
) -> None:
    directory.add(directory.window(3))
    sweeper = sweeper_of(directory, made_up)
    seen = [0]

    def before(name: str, arguments: tuple[Any, ...]) -> None:
        if name == "apply":
            seen[0] += 1
            if seen[0] == call:
                raise StoreUnavailable("away")

    directory.store.before = before
    sweeper.tick()
    assert directory.tier_3() == ["web-1"]
    for _ in range(2):
        sweeper.tick()
    assert directory.tier_3() == []
    assert len(made_up.order) == 1
    assert sweeper.unfinished == 0


def test_ten_re_invocations_without_an_answer_end_the_tick(
    directory: Directory, made_up: MadeUp, caplog: pytest.LogCaptureFixture
) -> None:
    ids = directory.add(directory.window(3), pointers=100)
    made_up.says.update(dict.fromkeys(ids, StoreUnavailable("away")))
    sweeper = sweeper_of(directory, made_up)
    with caplog.at_level(logging.WARNING, "stacksagad"):
        summary = sweeper.tick()
    assert (summary.ended, summary.dispatched) == (Ended.STORE, 10)
    assert len(caplog.messages) == 2
    made_up.says.clear()
    assert sweeper.tick().dispatched == 100
    assert directory.tier_3() == []


def test_a_few_that_the_store_does_not_answer_for_stop_nobody(directory: Directory, made_up: MadeUp) -> None:
    ids = sorted(directory.add(directory.window(3), pointers=100))
    made_up.says.update(dict.fromkeys(ids[::2], StoreUnavailable("away")))
    summary = sweeper_of(directory, made_up).tick()
    assert (summary.ended, summary.dispatched) == (Ended.THROUGH, 100)


def test_a_clock_that_is_off_sweeps_nothing_and_says_so(
    directory: Directory, made_up: MadeUp, caplog: pytest.LogCaptureFixture
) -> None:
    directory.add(directory.window(3))
    theirs = directory.time.wall()
    directory.store.instead["now"] = lambda: theirs
    directory.time.set_wall(theirs + HOUR)
    sweeper = sweeper_of(directory, made_up)
    with caplog.at_level(logging.WARNING, "stacksagad"):
        summary = sweeper.tick()
    assert summary.ended is Ended.CLOCK
    assert made_up.order == []
    assert "nothing is swept: this machine's clock is +3600.000 s from the store's" in caplog.text
    directory.time.set_wall(theirs)
    assert sweeper.tick().ended is Ended.THROUGH
    assert len(made_up.order) == 1


def test_a_clock_that_goes_wrong_during_a_long_sweep_ends_it(directory: Directory, made_up: MadeUp) -> None:
    ids = sorted(directory.add(directory.window(3), pointers=3))

    def long() -> Reinvocation:
        directory.time.advance(2 * MINUTE)
        directory.store.instead["now"] = lambda: directory.time.wall() + HOUR
        return COMPLETED

    made_up.says[ids[0]] = long
    assert sweeper_of(directory, made_up).tick().ended is Ended.CLOCK
    assert made_up.order == ids[:1]


def test_without_a_sector_nothing_is_asked(directory: Directory, made_up: MadeUp) -> None:
    directory.add(directory.window(3))
    directory.store.calls.clear()
    summary = sweeper_of(directory, made_up, sector=lambda: None).tick()
    assert summary.ended is Ended.NO_SECTOR
    assert directory.store.calls == {}


@pytest.mark.parametrize("then", [None, Sector(-(2**63), 0)])
def test_a_sector_that_ends_or_shrinks_ends_the_tick_before_the_next_dispatch(
    directory: Directory, made_up: MadeUp, then: Sector | None
) -> None:
    ids = sorted(directory.add(directory.window(3), pointers=5))
    present: list[Sector | None] = [WHOLE_RING]

    def shrink() -> Reinvocation:
        present[0] = then
        return COMPLETED

    made_up.says[ids[1]] = shrink
    sweeper = sweeper_of(directory, made_up, sector=lambda: present[0])
    assert sweeper.tick().ended is Ended.NO_SECTOR
    assert made_up.order == ids[:2]
    assert {one for _, one in directory.pointers()} == set(ids)
    present[0] = WHOLE_RING
    made_up.says.clear()
    sweeper.tick()
    assert list(directory.pointers()) == []


def test_two_sectors_have_every_instance_once(directory: Directory, made_up: MadeUp) -> None:
    instances = [f"web-{number}" for number in range(20)]
    ids = {one: directory.add(directory.window(3), instance_id=one)[0] for one in instances}
    halves = (Sector(-(2**63), 0), Sector(1, 2**63 - 1))
    for half in halves:
        sweeper_of(directory, made_up, sector=lambda half=half: half).tick()
    lower = {ids[one] for one in instances if token(one) <= 0}
    assert set(made_up.order[: len(lower)]) == lower
    assert sorted(made_up.order) == sorted(ids.values())


def test_a_growing_sector_finds_what_lay_behind_the_cursor(directory: Directory, made_up: MadeUp) -> None:
    for instance in ("web-1", "web-2", "web-3", "web-4"):
        directory.add(directory.window(3), instance_id=instance)
    present = [Sector(5, 5)]
    sweeper = sweeper_of(directory, made_up, sector=lambda: present[0])
    sweeper.tick()
    assert made_up.order == []
    present[0] = WHOLE_RING
    sweeper.tick()
    assert len(made_up.order) == 4


# -- stopping ----------------------------------------------------------------------------------------------------


def test_stopping_ends_the_tick_and_keeps_the_unfinished_bucket(directory: Directory, made_up: MadeUp) -> None:
    ids = sorted(directory.add(directory.window(3), pointers=5))
    sweeper = sweeper_of(directory, made_up)

    def stop() -> Reinvocation:
        sweeper.stop()
        return COMPLETED

    made_up.says[ids[1]] = stop
    assert sweeper.tick().ended is Ended.STOPPED
    assert made_up.order == ids[:2]
    assert {one for _, one in directory.pointers()} == set(ids)
    assert sweeper.tick().ended is Ended.STOPPED
    assert len(made_up.order) == 2


def test_an_engine_that_is_stopping_stops_the_sweep(directory: Directory, made_up: MadeUp) -> None:
    directory.add(directory.window(3))
    directory.engine.stop()
    assert sweeper_of(directory, made_up).tick().ended is Ended.STOPPED
    assert made_up.order == []


def test_stopping_frees_a_tick_that_waits_for_a_worker(
    directory: Directory, made_up: MadeUp, threads: Callable[[int], ThreadWorkers]
) -> None:
    ids = sorted(directory.add(directory.window(3), pointers=5))
    ends = threading.Event()
    made_up.says[ids[0]] = lambda: COMPLETED if ends.wait(30) else CLAIMED
    workers = threads(1)
    sweeper = sweeper_of(directory, made_up, workers=workers)
    summaries: list[TickSummary] = []
    ticking = threading.Thread(target=lambda: summaries.append(sweeper.tick()))
    ticking.start()
    wait_until(lambda: sweeper.in_flight == 2)
    sweeper.stop()
    ticking.join(30)
    assert [summary.ended for summary in summaries] == [Ended.STOPPED]
    assert not workers.drain(0)
    ends.set()
    assert workers.drain(30)
    assert sweeper.in_flight == 0
    assert made_up.order == ids[:1]
    assert {one for _, one in directory.pointers()} == set(ids)


def test_a_second_tick_beside_a_running_one_does_nothing(directory: Directory, made_up: MadeUp) -> None:
    ids = directory.add(directory.window(3))
    sweeper = sweeper_of(directory, made_up)
    inner: list[TickSummary] = []

    def tick_again() -> Reinvocation:
        inner.append(sweeper.tick())
        return COMPLETED

    made_up.says[ids[0]] = tick_again
    assert sweeper.tick().ended is Ended.THROUGH
    assert [summary.ended for summary in inner] == [Ended.ANOTHER]


# -- cost --------------------------------------------------------------------------------------------------------


def idle_cost(windows: int) -> int:
    """Calls to the store of an idle tick after so many windows that each held something."""
    directory, made_up = new_directory(), MadeUp()
    sweeper = sweeper_of(directory, made_up)
    sweeper.tick()
    for number in range(windows):
        directory.time.advance(MINUTE)
        if number % 100 == 0:
            directory.add(directory.window(0))
        sweeper.tick()
    sweeper.tick(walk=True)
    directory.time.advance(MINUTE)
    directory.store.calls.clear()
    assert not sweeper.tick().walked
    assert sum(made_up.found[one].path is not None for one in made_up.order) == windows // 100
    total: int = directory.store.calls.total()
    return total


def test_an_idle_tick_asks_as_much_after_ten_thousand_windows_as_after_none() -> None:
    assert idle_cost(10_000) == idle_cost(0) == 2, "tier 2 from the cursor on, and the store's clock"


def test_memory_stays_flat_over_fifty_thousand_pointers(directory: Directory, made_up: MadeUp) -> None:
    window = directory.window(3)
    path = Path(*window, "web-1", 0)
    directory.add(window)
    count = 50_000
    # As a paged store gives them: each is made when it is asked for.
    directory.store.instead["pointers"] = lambda path: (UUID(int=number) for number in range(count))
    seen = [0]

    def reinvoke(transaction_id: UUID, found: Any) -> Reinvocation:
        assert found.path == path
        seen[0] += 1
        return CLAIMED if transaction_id.int % 5 == 0 else COMPLETED

    sweeper = Sweeper(directory.node, reinvoke, workers=AtOnce())
    gc.collect()
    tracemalloc.start()
    try:
        sweeper.tick()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen[0] == count
    assert peak < 1_000_000


# -- what is told ------------------------------------------------------------------------------------------------


def test_counters_and_progress_tell_what_was_done(directory: Directory, made_up: MadeUp) -> None:
    for ago in (3, 2, 1):
        directory.add(directory.window(ago), pointers=2)
    lost = directory.add(directory.window(0))
    made_up.says[lost[0]] = StoreUnavailable("away")
    counters = RecoveryCounters()
    sweeper_of(directory, made_up, observer=counters).tick()
    assert counters.outcomes == {"completed": 6}
    assert counters.failures == {"StoreUnavailable": 1}
    assert counters.totals == {"dispatched": 7, "buckets dropped": 3}
    assert counters.ticks == {Ended.THROUGH: 1}
    assert counters.oldest_unfinished == directory.window(0)


def test_progress_is_told_window_by_window(directory: Directory, made_up: MadeUp) -> None:
    windows = [directory.window(ago) for ago in (3, 2, 1)]
    for window in windows:
        directory.add(window)
    told: list[tuple[Window | None, int, int]] = []

    class Progress(RecoveryObserver):
        def windows_found(self, summary: TickSummary) -> None:
            told.append((None, summary.visited, summary.found))

        def window_visited(self, window: Window, summary: TickSummary) -> None:
            told.append((window, summary.visited, summary.found))

    sweeper_of(directory, made_up, observer=Progress()).tick()
    assert told == [(None, 0, 3), (windows[0], 1, 3), (windows[1], 2, 3), (windows[2], 3, 3)]


# -- workers -----------------------------------------------------------------------------------------------------


def test_workers_begin_tasks_in_order_and_no_more_at_once_than_allowed(threads: Callable[[int], ThreadWorkers]) -> None:
    workers, order, now, most = threads(3), list[int](), [0], [0]
    lock = threading.Lock()

    def task(number: int) -> None:
        with lock:
            order.append(number)
            now[0] += 1
            most[0] = max(most[0], now[0])
        with lock:
            now[0] -= 1

    for number in range(1000):
        assert workers.submit(partial(task, number))
    assert workers.drain(30)
    assert sorted(order) == list(range(1000))
    assert most[0] <= 3


def test_one_worker_keeps_the_order(threads: Callable[[int], ThreadWorkers]) -> None:
    workers, order = threads(1), list[int]()
    for number in range(100):
        assert workers.submit(partial(order.append, number))
    assert workers.drain(30)
    assert order == list(range(100))


def test_tasks_that_wait_for_each_other_have_a_worker_each(threads: Callable[[int], ThreadWorkers]) -> None:
    workers = threads(2)
    for _ in range(50):
        # One rests by now, and must not be counted on twice.
        assert workers.submit(lambda: None)
        assert workers.drain(30)
        both = threading.Barrier(2, timeout=20)
        for _ in range(2):
            assert workers.submit(lambda both=both: both.wait() and None)  # type: ignore[misc]
        assert workers.drain(30)
        assert not both.broken


def test_stopped_workers_take_nothing(threads: Callable[[int], ThreadWorkers]) -> None:
    workers = threads(1)
    workers.stop()
    assert not workers.submit(lambda: None)
    assert workers.drain(0)


def test_workers_must_be_at_least_one() -> None:
    with pytest.raises(ValueError, match="allow at least one"):
        ThreadWorkers(0)
