"""Sweep, re-invocation and compaction together, by real engines on each store (R4, R5, R6, R12, R13)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path as File
from typing import Any
from uuid import UUID

import pytest

from stacksaga_flask import Engine, ManualTime
from stacksaga_flask.clock import SECOND, SystemTime
from stacksaga_flask.directory.writer import PointerKind
from stacksaga_flask.errors import NotStarted
from stacksaga_flask.store.contract import Marker, Path, RunningStatus, Store
from stacksaga_flask.store.memory import MemoryStore
from stacksaga_flask.testing.conformance.samples import fresh_scope
from stacksagad.recovery.compactor import Compactor
from stacksagad.recovery.observed import Ended, TickSummary
from stacksagad.recovery.sweeper import Sweeper
from stacksagad.recovery.workers import AtOnce, ThreadWorkers
from tests.support.opening import open_url, settings_of
from tests.support.shop import CARD_REFUSED, UNAVAILABLE, Order, Shop, place_order_saga
from tests.support.sweeping import HOUR, MINUTE, Directory, MadeUp, WatchedStore

DAY = 24 * HOUR
STORES = ["memory", "sqlite", pytest.param("cassandra", marks=pytest.mark.timeout(func_only=True))]


class Killed(BaseException):
    """The process ends here."""


class Bench:
    """A shop on some store. Its time begins in the past of the store's clock, as no write may lie in its future."""

    def __init__(self, url: str, stack: ExitStack, **settings: object) -> None:
        self.shop = Shop()
        now = SystemTime().wall()
        self.time = ManualTime(now - now % HOUR - 12 * DAY + 30 * SECOND)
        self.saga = place_order_saga(self.shop)
        self.settings = settings_of(url, fresh_scope(), **settings)
        self._url = url
        self._stack = stack
        self._memory = MemoryStore(self.settings.scope, self.time)
        self._open(url).record_grid(self.settings.grid)
        self.web = self.process()
        self.engine = self.process()
        self.store: Any = self.engine.node().store
        self.directory = Directory(self.engine, self.store, self.time)

    def process(self) -> Engine:
        """An engine on the same store, as another process has it."""
        return Engine(
            self.settings,
            sagas=[self.saga],
            open_store=lambda: WatchedStore(self._open(self._url), self.time),
            time_source=self.time,
        )

    def _open(self, url: str) -> Store:
        if url == "memory://":
            return self._memory.beside(self.settings.scope)
        store = open_url(url, self.settings.scope)
        self._stack.callback(store.close)
        return store

    def sweeper(self, **options: Any) -> Sweeper:
        options.setdefault("workers", AtOnce())
        return Sweeper(self.engine.node(), self.engine.reinvoke, **options)

    def paused(self) -> UUID:
        """A transaction whose second step met a passing failure."""
        self.shop.errors["charge"] = [UNAVAILABLE]
        transaction = self.web.run(self.saga, Order())
        assert transaction.status is RunningStatus.PROCESS_PAUSED
        return transaction.transaction_id

    def killed(self, step: str = "charge") -> UUID:
        """A transaction whose process was killed in a step."""

        def kill() -> None:
            raise Killed

        self.shop.during[step] = kill
        with pytest.raises(Killed):
            self.web.run(self.saga, Order())
        del self.shop.during[step]
        return self.shop.transaction_ids[-1]

    def forget_claims(self, ids: Iterable[UUID]) -> None:
        """Delete claims by hand.

        A claim's ballot is of Cassandra's own clock, which is ahead of this test's: so the batch that ends a
        transaction does not hide it, as it does where clocks are right (H1).
        """
        for one in ids:
            claim = self.store.marker(one, "#claim")
            if claim is not None:
                self.store.delete_marker(one, "#claim", expected_state=claim.execution_state)

    def status(self, transaction_id: UUID) -> RunningStatus:
        stored = self.store.read(transaction_id)
        assert stored is not None
        status: RunningStatus = stored.row.running_status
        return status


@pytest.fixture(params=STORES)
def new_bench(request: pytest.FixtureRequest, tmp_path: File) -> Iterator[Callable[..., Bench]]:
    """Makes a bench on each store."""
    if request.param == "cassandra":
        keyspace = request.getfixturevalue("cassandra_keyspace")
        url = request.getfixturevalue("cassandra").url(keyspace)
    else:
        url = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path / 'shop.db'}"}[request.param]
    with ExitStack() as stack:
        yield lambda **settings: Bench(url, stack, **settings)


@pytest.fixture
def bench(new_bench: Callable[..., Bench]) -> Bench:
    return new_bench()


def test_a_paused_transaction_is_finished_and_leaves_nothing_in_the_directory_but_its_window(bench: Bench) -> None:
    transaction_id = bench.paused()
    window = bench.directory.window(-1)
    sweeper = bench.sweeper()
    assert sweeper.tick().dispatched == 0
    bench.time.advance(MINUTE)
    bench.shop.calls.clear()
    summary = sweeper.tick()
    assert summary.outcomes == {"completed": 1}
    assert bench.shop.calls == ["charge", "ship"]
    assert bench.status(transaction_id) is RunningStatus.PROCESS_COMPLETED
    assert list(bench.directory.pointers()) == []
    assert window in bench.directory.tier_2()


@pytest.mark.parametrize("step", ["reserve", "charge", "ship", "release"])
def test_a_killed_transaction_is_finished_when_its_watchdogs_window_is_sealed(bench: Bench, step: str) -> None:
    backward = step == "release"
    if backward:
        bench.shop.errors["charge"] = [CARD_REFUSED]
    transaction_id = bench.killed(step)
    bench.time.advance(11 * HOUR)
    summary = bench.sweeper().tick()
    assert summary.outcomes == {"compensated" if backward else "completed": 1}
    assert bench.status(transaction_id).terminal
    assert list(bench.directory.pointers()) == []


def test_after_an_outage_everything_is_finished_oldest_first(bench: Bench) -> None:
    ids = []
    for _ in range(6):
        ids.append(bench.paused())
        bench.time.advance(3 * MINUTE)
    bench.time.advance(2 * HOUR)
    bench.shop.transaction_ids.clear()
    bench.shop.calls.clear()
    summary = bench.sweeper().tick()
    assert summary.outcomes == {"completed": 6}
    charged = [one for one, call in zip(bench.shop.transaction_ids, bench.shop.calls, strict=True) if call == "charge"]
    assert charged == ids
    # Their watchdogs were deleted, so that the buckets are found empty and dropped.
    bench.time.advance(11 * HOUR)
    assert bench.sweeper().tick().dispatched == 0
    assert bench.directory.tier_3() == []


def test_within_a_bucket_those_that_failed_first_come_first_where_the_store_says_so(bench: Bench) -> None:
    ids = [bench.paused() for _ in range(5)]
    bench.time.advance(2 * MINUTE)
    bench.shop.transaction_ids.clear()
    bench.sweeper().tick()
    order = list(dict.fromkeys(bench.shop.transaction_ids))
    assert order == (ids if bench.store.first_in_first_out else sorted(ids))


def test_a_transaction_that_fails_again_is_registered_again_and_its_old_bucket_goes(bench: Bench) -> None:
    bench.paused()
    sweeper = bench.sweeper()
    for _ in range(3):
        bench.time.advance(MINUTE)
        bench.shop.errors["charge"] = [UNAVAILABLE]
        summary = sweeper.tick()
        assert summary.outcomes == {"paused": 1}
        assert summary.oldest_unfinished is None
    kinds = sorted(path.bucket % 2 for path, _ in bench.directory.pointers())
    assert kinds == [PointerKind.RETRY, PointerKind.WATCHDOG]
    bench.time.advance(MINUTE)
    assert sweeper.tick().outcomes == {"completed": 1}


def test_what_another_has_claimed_keeps_its_bucket_and_the_others_of_it_are_not_run_again(bench: Bench) -> None:
    ids = [bench.paused() for _ in range(3)]
    bench.time.advance(2 * MINUTE)
    claim = Marker(step_id="#claim", execution_state="other/1 -")
    bench.store.insert_marker(ids[1], claim, ttl=600)
    sweeper = bench.sweeper()
    summary = sweeper.tick()
    assert summary.outcomes == {"completed": 2, "claimed by another": 1}
    left = {one for path, one in bench.directory.pointers() if path.bucket % 2 == PointerKind.RETRY}
    # Where epochs fence, pointers go by their ids; elsewhere the bucket goes whole.
    assert left == ({ids[1]} if bench.store.fences_by_epoch else set(ids))
    bench.store.delete_marker(ids[1], "#claim", expected_state="other/1 -")
    assert sweeper.tick().outcomes == {"completed": 1}
    assert list(bench.directory.pointers()) == []


def test_a_node_that_died_in_the_middle_of_a_bucket_is_followed_by_one_that_ends_it(bench: Bench) -> None:
    ids = sorted(bench.paused() for _ in range(6))
    bench.time.advance(2 * MINUTE)

    class Dies(AtOnce):
        """Kills the node before its fourth task."""

        def __init__(self) -> None:
            super().__init__()
            self.left = 3

        def submit(self, task: Callable[[], None]) -> bool:
            if not self.left:
                raise Killed
            self.left -= 1
            return super().submit(task)

    with pytest.raises(Killed):
        bench.sweeper(workers=Dies()).tick()
    assert [bench.status(one) for one in ids].count(RunningStatus.PROCESS_COMPLETED) == 3
    bench.forget_claims(ids)
    bench.shop.calls.clear()
    bench.engine = bench.process()
    summary = bench.sweeper().tick()
    assert summary.ended is Ended.THROUGH
    assert {bench.status(one) for one in ids} == {RunningStatus.PROCESS_COMPLETED}
    assert bench.shop.calls == ["charge", "ship"] * 3
    assert list(bench.directory.pointers()) == []


def test_two_nodes_with_the_whole_ring_run_each_transaction_once(bench: Bench) -> None:
    ids = [bench.paused() for _ in range(20)]
    bench.time.advance(2 * MINUTE)
    bench.shop.calls.clear()
    workers = [ThreadWorkers(4), ThreadWorkers(4)]
    other = bench.process()
    sweepers = [
        Sweeper(engine.node(), engine.reinvoke, workers=one)
        for engine, one in zip((bench.engine, other), workers, strict=True)
    ]
    # The first one's tick returns while its workers are busy.
    summaries: list[TickSummary] = [sweeper.tick() for sweeper in sweepers]
    for one in workers:
        assert one.drain(60)
        one.stop()
    assert [summary.failures for summary in summaries] == [{}, {}]
    assert {bench.status(one) for one in ids} == {RunningStatus.PROCESS_COMPLETED}
    assert bench.shop.calls.count("charge") == len(ids)


def test_what_is_older_than_the_lookback_days_is_frozen_and_its_bucket_goes(bench: Bench) -> None:
    transaction_id = bench.paused()
    bench.time.advance(4 * DAY)
    assert bench.sweeper().tick().outcomes == {"frozen": 2}, "its retry pointer and its watchdog led to it"
    assert bench.status(transaction_id) is RunningStatus.FROZEN
    assert list(bench.directory.pointers()) == []


def test_pointers_are_deleted_page_by_page_where_epochs_fence(bench: Bench) -> None:
    window = bench.directory.window(2)
    bench.directory.add(window, pointers=1100)
    path = Path(*window, "web-1", 0)
    left: list[int] = []

    class Counts(AtOnce):
        """Looks at what is left before the last pointer is handed over."""

        def submit(self, task: Callable[[], None]) -> bool:
            left.append(-1)
            if len(left) == 1100:
                left[-1] = sum(1 for _ in bench.store.pointers(path))
            return super().submit(task)

    summary = Sweeper(bench.engine.node(), MadeUp(), workers=Counts()).tick()
    assert summary.outcomes == {"completed": 1100}
    assert left[1099] == (100 if bench.store.fences_by_epoch else 1100)
    assert list(bench.directory.pointers()) == []
    assert bench.directory.tier_3() == []


def test_a_pointer_that_comes_behind_the_reader_is_lost_nowhere_where_epochs_fence(bench: Bench) -> None:
    """Elsewhere no one may register there any more (R3), and what does so stays invisible (R13)."""
    transaction_id, late = bench.paused(), bench.paused()
    bench.time.advance(2 * MINUTE)
    stored = bench.store.read(late)
    assert stored is not None
    retry = stored.row.retry
    assert retry is not None
    bench.store.apply(bench.engine.node().writer.delete(retry, late))

    class Registers(AtOnce):
        """Registers one more pointer while the bucket is being worked on."""

        def submit(self, task: Callable[[], None]) -> bool:
            if bench.status(transaction_id) is RunningStatus.PROCESS_PAUSED:
                bench.directory.add_pointer(retry, late)
            return super().submit(task)

    sweeper = bench.sweeper(workers=Registers())
    sweeper.tick()
    sweeper.tick()
    if bench.store.fences_by_epoch:
        assert bench.status(late) is RunningStatus.PROCESS_COMPLETED
    assert bench.status(transaction_id) is RunningStatus.PROCESS_COMPLETED
    assert not [path for path, _ in bench.directory.pointers() if path == retry]


def test_node_0_leaves_an_empty_directory(bench: Bench) -> None:
    for _ in range(3):
        bench.paused()
        bench.time.advance(20 * MINUTE)
    bench.killed()
    bench.time.advance(11 * HOUR)
    compactor = Compactor(bench.engine.node())
    assert bench.directory.tier_1() != []
    kept = compactor.tick()
    assert (kept.walked, kept.dates) == (True, 0), "what is not swept is not pruned"
    assert {one for _, one in bench.directory.pointers()} == set(bench.shop.transaction_ids)
    bench.sweeper().tick()
    bench.time.advance(11 * HOUR)
    bench.sweeper().tick()
    bench.time.advance(DAY)
    compactor.tick()
    assert bench.directory.tier_2() == []
    assert bench.directory.tier_1() == []


def test_a_stopping_engine_parks_what_it_has_begun_and_the_next_node_goes_on(bench: Bench) -> None:
    ids = sorted(bench.paused() for _ in range(3))
    bench.time.advance(2 * MINUTE)
    bench.shop.during["charge"] = bench.engine.stop
    summary = bench.sweeper().tick()
    assert summary.ended is Ended.STOPPED
    assert summary.outcomes == {"paused": 1}
    with pytest.raises(NotStarted):
        bench.engine.run(bench.saga, Order())
    del bench.shop.during["charge"]
    bench.engine = bench.process()
    bench.time.advance(2 * MINUTE)
    bench.sweeper().tick()
    assert {bench.status(one) for one in ids} == {RunningStatus.PROCESS_COMPLETED}
