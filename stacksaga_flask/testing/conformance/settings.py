"""The grid is recorded once (R15), the store tells its time (R14), and neither a fork nor closing loses anything."""

from __future__ import annotations

import threading

from msgspec.structs import replace

from stacksaga_flask.clock import SECOND
from stacksaga_flask.store.contract import Grid, Store
from stacksaga_flask.testing.conformance.harness import Conformance, OpenStore, StoreHarness
from stacksaga_flask.testing.conformance.samples import GRID, first, fresh_scope, read_row, row


class SettingsConformance(Conformance):
    """The grid, the clock and the end."""

    def test_a_grid_is_read_as_recorded(self, store: Store, open_store: OpenStore) -> None:
        assert store.read_grid() is None
        assert store.record_grid(GRID) == GRID
        assert store.read_grid() == GRID
        assert open_store(store.scope).read_grid() == GRID

    def test_a_grid_is_recorded_once(self, store: Store, open_store: OpenStore) -> None:
        store.record_grid(GRID)
        other = Grid(schema_version=1, window_interval=5, clock_skew_margin=SECOND // 2)
        assert store.record_grid(other) == GRID
        assert open_store(store.scope).record_grid(other) == GRID
        assert store.read_grid() == GRID

    def test_a_grid_belongs_to_its_scope(self, store: Store, open_store: OpenStore) -> None:
        other, theirs = open_store(fresh_scope()), replace(GRID, window_interval=300)
        store.record_grid(GRID)
        assert other.read_grid() is None
        assert other.record_grid(theirs) == theirs
        assert (store.read_grid(), other.read_grid()) == (GRID, theirs)

    def test_of_grids_recorded_at_the_same_time_all_are_told_one(self, store: Store, open_store: OpenStore) -> None:
        grids = [replace(GRID, window_interval=interval) for interval in (5, 60, 300)]
        stores = [open_store(store.scope) for _ in grids]
        together = threading.Barrier(len(grids))
        told: list[Grid] = []

        def record(number: int) -> None:
            together.wait()
            told.append(stores[number].record_grid(grids[number]))

        threads = [threading.Thread(target=record, args=(number,)) for number in range(len(grids))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        recorded = store.read_grid()
        assert recorded in grids
        assert told == [recorded] * len(grids)

    def test_the_store_tells_the_time_to_a_second_and_it_moves(self, store: Store, harness: StoreHarness) -> None:
        before = store.now()
        assert abs(before - harness.now()) < SECOND
        harness.advance(2 * SECOND)
        after = store.now()
        assert abs(after - harness.now()) < SECOND
        assert after - before > SECOND

    def test_a_store_goes_on_after_it_came_to_rest_for_a_fork(self, store: Store, open_store: OpenStore) -> None:
        before, after = row(), row()
        store.apply(first(before))
        store.before_fork(10)
        store.after_fork_in_parent()
        assert read_row(store, before.transaction_id) == before
        store.apply(first(after))
        assert read_row(open_store(store.scope), after.transaction_id) == after

    def test_a_call_made_while_a_store_is_at_rest_is_answered_in_the_end(self, store: Store) -> None:
        started = row()
        told: list[object] = []

        def write_and_read() -> None:
            store.apply(first(started))
            told.append(read_row(store, started.transaction_id))

        store.before_fork(10)
        caller = threading.Thread(target=write_and_read)
        caller.start()
        store.after_fork_in_parent()
        caller.join()
        assert told == [started]

    def test_a_store_may_be_closed_twice_and_loses_nothing(self, store: Store, open_store: OpenStore) -> None:
        started = row()
        closing = open_store(store.scope)
        closing.apply(first(started))
        closing.close()
        closing.close()
        assert read_row(store, started.transaction_id) == started
        assert read_row(open_store(store.scope), started.transaction_id) == started
