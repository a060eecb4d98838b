"""Frozen rows can be listed, and come and go with the batch that says so (R9)."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID, uuid4

from msgspec.structs import replace

from stacksaga_flask.errors import CorruptRow
from stacksaga_flask.store.contract import FrozenRow, RunningStatus, Store
from stacksaga_flask.testing.conformance.harness import Conformance, StoreHarness
from stacksaga_flask.testing.conformance.samples import T, first, read_row, row, then, with_status


def frozen_row(transaction_id: UUID, reason: str = "an operator asked for it") -> FrozenRow:
    """The frozen row of a transaction."""
    return FrozenRow(transaction_id=transaction_id, frozen_at=T, reason=reason)


def listed(store: Store) -> dict[UUID, FrozenRow]:
    """The frozen rows by transaction, each of which must be listed once."""
    rows = list(store.frozen())
    by_id = {frozen.transaction_id: frozen for frozen in rows}
    assert len(by_id) == len(rows)
    return by_id


def listed_and_corrupt(store: Store) -> tuple[set[UUID], set[UUID]]:
    """The transactions whose frozen rows are listed, and those whose rows are told to be corrupt instead."""
    rows = store.frozen()
    found = list(iter(lambda: _next(rows), None))
    whole = {each.transaction_id for each in found if isinstance(each, FrozenRow)}
    return whole, {each.transaction_id for each in found if isinstance(each, CorruptRow)}


def _next(rows: Iterator[FrozenRow]) -> FrozenRow | CorruptRow | None:
    try:
        return next(rows, None)
    except CorruptRow as error:
        return error


class FrozenConformance(Conformance):
    """Frozen rows."""

    def test_frozen_rows_are_listed_as_written(self, store: Store) -> None:
        rows = [with_status(row(), RunningStatus.FROZEN) for _ in range(3)]
        expected = {
            r.transaction_id: frozen_row(r.transaction_id, f"Grund {n} \N{SNOWMAN}") for n, r in enumerate(rows)
        }
        store.apply(*(replace(first(r), frozen=expected[r.transaction_id]) for r in rows))
        assert listed(store) == expected

    def test_a_transaction_that_is_not_frozen_is_not_listed(self, store: Store) -> None:
        cold, running = uuid4(), uuid4()
        store.apply(replace(first(row(cold)), frozen=frozen_row(cold)), first(row(running)))
        assert set(listed(store)) == {cold}

    def test_unfreezing_takes_the_frozen_row_of_this_transaction_only(self, store: Store) -> None:
        thawed, kept = row(), row()
        for cold in (thawed, kept):
            store.apply(replace(first(cold, at=T), frozen=frozen_row(cold.transaction_id)))
        store.apply(replace(then(thawed, at=T + 1), delete_frozen=True))
        assert set(listed(store)) == {kept.transaction_id}
        assert read_row(store, thawed.transaction_id) == thawed

    def test_a_transaction_frozen_again_after_unfreezing_is_listed_with_its_new_reason(self, store: Store) -> None:
        cold = row()
        key = cold.transaction_id
        store.apply(replace(first(cold, at=T), frozen=frozen_row(key, "first")))
        store.apply(replace(then(cold, at=T + 1), delete_frozen=True))
        store.apply(replace(then(cold, at=T + 2), frozen=frozen_row(key, "second")))
        assert listed(store) == {key: frozen_row(key, "second")}

    def test_a_late_freeze_below_an_unfreezing_is_lost_unless_the_store_fences_by_epoch(self, store: Store) -> None:
        cold = row()
        key = cold.transaction_id
        store.apply(replace(first(cold, at=T), frozen=frozen_row(key, "first")))
        store.apply(replace(then(cold, at=T + 2), delete_frozen=True))
        store.apply(replace(then(cold, at=T + 1), frozen=frozen_row(key, "late")))
        assert listed(store) == ({key: frozen_row(key, "late")} if store.fences_by_epoch else {})
        store.apply(replace(then(cold, at=T + 3), frozen=frozen_row(key, "new")))
        assert listed(store) == {key: frozen_row(key, "new")}

    def test_a_corrupt_frozen_row_is_told_and_stops_the_listing_of_no_other(
        self, store: Store, harness: StoreHarness
    ) -> None:
        rows = [row() for _ in range(4)]
        store.apply(*(replace(first(r), frozen=frozen_row(r.transaction_id)) for r in rows))
        keys = {r.transaction_id for r in rows}
        spoilt = {r.transaction_id for r in rows[:2] if harness.spoil_frozen(store, r.transaction_id)}
        assert listed_and_corrupt(store) == (keys - spoilt, spoilt)

    def test_more_frozen_rows_than_a_page_are_all_listed(self, store: Store, harness: StoreHarness) -> None:
        rows = [row() for _ in range(harness.more_than_a_page)]
        for start in range(0, len(rows), 100):
            batches = [replace(first(r), frozen=frozen_row(r.transaction_id)) for r in rows[start : start + 100]]
            store.apply(*batches)
        assert listed(store) == {r.transaction_id: frozen_row(r.transaction_id) for r in rows}
