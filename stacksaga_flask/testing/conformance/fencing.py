"""Which of two writes of a row stands: by epoch, or by timestamp (R13)."""

from __future__ import annotations

import threading
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from stacksaga_flask.errors import Fenced
from stacksaga_flask.store.contract import Expected, Operation, Store, WriteTransaction
from stacksaga_flask.testing.conformance.harness import Conformance, OpenStore
from stacksaga_flask.testing.conformance.samples import T, delete, first, read_row, register, row, then


def attempt_seen(store: Store, transaction_id: UUID) -> int | None:
    """The attempt number of the row, which tells the writes of a test apart."""
    seen = read_row(store, transaction_id)
    return None if seen is None else seen.attempt


def apply_or_be_fenced(store: Store, *operations: Operation) -> None:
    """Apply what a store that fences by epoch must refuse, and any other must accept."""
    if store.fences_by_epoch:
        with pytest.raises(Fenced):
            store.apply(*operations)
    else:
        store.apply(*operations)


def expecting(write: WriteTransaction, expected: Expected, epoch: int = 0) -> WriteTransaction:
    """The write with another expectation."""
    return replace(write, expected=expected, expected_epoch=epoch)


class FencingConformance(Conformance):
    """Writes that must not stand."""

    @pytest.mark.parametrize("order", [(1, 2), (2, 1)])
    def test_of_two_writes_the_higher_timestamp_stands_or_by_epoch_the_later(
        self, store: Store, order: tuple[int, int]
    ) -> None:
        key = uuid4()
        for number in order:
            write = first(row(key, attempt=number), at=T + number)
            store.apply(expecting(write, Expected.EPOCH_OR_ABSENT))
        assert attempt_seen(store, key) == (order[-1] if store.fences_by_epoch else 2)

    def test_of_two_writes_of_one_timestamp_one_stands_in_any_order_or_by_epoch_the_later(self, store: Store) -> None:
        seen = []
        for order in ((1, 2), (2, 1)):
            key = uuid4()
            for number in order:
                write = first(row(key, attempt=number), at=T)
                store.apply(expecting(write, Expected.EPOCH_OR_ABSENT))
            seen.append(attempt_seen(store, key))
        assert seen == ([2, 1] if store.fences_by_epoch else [2, 2])

    def test_a_start_of_a_row_that_exists_is_fenced_or_wins_by_its_timestamp(self, store: Store) -> None:
        key = uuid4()
        store.apply(first(row(key, attempt=1), at=T))
        apply_or_be_fenced(store, first(row(key, attempt=2), at=T + 1))
        assert attempt_seen(store, key) == (1 if store.fences_by_epoch else 2)

    def test_a_write_that_expects_a_row_where_none_is_is_fenced_or_stands(self, store: Store) -> None:
        key, there = uuid4(), uuid4()
        store.apply(first(row(there)))
        apply_or_be_fenced(store, then(row(key, attempt=1), at=T))
        assert attempt_seen(store, key) == (None if store.fences_by_epoch else 1)
        assert attempt_seen(store, there) == 0

    @pytest.mark.parametrize("expected", [Expected.EPOCH, Expected.EPOCH_OR_ABSENT])
    def test_a_former_owner_is_fenced_or_loses_by_its_timestamp(self, store: Store, expected: Expected) -> None:
        key = uuid4()
        store.apply(first(row(key), at=T))
        store.apply(then(row(key, epoch=1, attempt=1), at=T + 10, epoch=0))
        late = then(row(key, epoch=0, attempt=9), at=T + 9)
        apply_or_be_fenced(store, expecting(late, expected, epoch=0))
        assert attempt_seen(store, key) == 1
        store.apply(then(row(key, epoch=1, attempt=2), at=T + 11, epoch=1))
        assert attempt_seen(store, key) == 2

    def test_a_former_owner_with_a_higher_timestamp_wins_unless_the_store_fences_by_epoch(self, store: Store) -> None:
        """Why a timestamp lies below the fence and a takeover's above it: nothing else holds a late write back."""
        key = uuid4()
        store.apply(first(row(key), at=T))
        store.apply(then(row(key, epoch=1, attempt=1), at=T + 10, epoch=0))
        apply_or_be_fenced(store, then(row(key, epoch=0, attempt=9), at=T + 11, epoch=0))
        assert attempt_seen(store, key) == (1 if store.fences_by_epoch else 9)

    def test_a_write_that_expects_its_epoch_or_no_row_is_accepted_for_both(self, store: Store) -> None:
        key = uuid4()
        store.apply(expecting(first(row(key, epoch=3, attempt=1), at=T), Expected.EPOCH_OR_ABSENT, epoch=3))
        assert attempt_seen(store, key) == 1
        store.apply(expecting(first(row(key, epoch=3, attempt=2), at=T + 1), Expected.EPOCH_OR_ABSENT, epoch=3))
        assert attempt_seen(store, key) == 2

    def test_of_takeovers_at_the_same_time_one_is_accepted_or_the_highest_timestamp_stands(
        self, store: Store, open_store: OpenStore
    ) -> None:
        key = uuid4()
        store.apply(first(row(key), at=T))
        stores = [open_store(store.scope) for _ in range(4)]
        together = threading.Barrier(len(stores))
        accepted: list[int] = []

        def take_over(number: int) -> None:
            together.wait()
            try:
                stores[number].apply(then(row(key, epoch=1, attempt=number), at=T + 1 + number))
            except Fenced:
                return
            accepted.append(number)

        threads = [threading.Thread(target=take_over, args=(number,)) for number in range(len(stores))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(accepted) == (1 if store.fences_by_epoch else 4)
        assert attempt_seen(store, key) == max(accepted)

    def test_a_row_deleted_at_the_fence_hides_a_late_start_and_not_a_new_one(self, store: Store) -> None:
        """By epoch there is nothing to hide it: the start is one database transaction, and can't be late (R2)."""
        fence, late, new = T, uuid4(), uuid4()
        store.apply(delete(late, at=fence), delete(new, at=fence))
        store.apply(first(row(late, attempt=1), at=fence - 1), first(row(new, attempt=2), at=fence + 1))
        assert attempt_seen(store, late) == (1 if store.fences_by_epoch else None)
        assert attempt_seen(store, new) == 2

    def test_a_row_deleted_at_the_fence_hides_a_start_of_that_very_timestamp(self, store: Store) -> None:
        key, other = uuid4(), uuid4()
        store.apply(delete(key, at=T))
        store.apply(first(row(key, attempt=1), at=T), first(row(other), at=T))
        assert attempt_seen(store, key) == (1 if store.fences_by_epoch else None)
        assert attempt_seen(store, other) == 0

    def test_deleting_a_row_that_is_there_is_fenced_or_hides_what_is_not_above_it(self, store: Store) -> None:
        below, above = uuid4(), uuid4()
        store.apply(first(row(below), at=T - 1), first(row(above), at=T + 1))
        apply_or_be_fenced(store, delete(below, at=T))
        apply_or_be_fenced(store, delete(above, at=T))
        assert attempt_seen(store, below) == (0 if store.fences_by_epoch else None)
        assert attempt_seen(store, above) == 0

    def test_a_fenced_row_undoes_the_pointer_of_the_same_call_and_a_losing_one_does_not(self, store: Store) -> None:
        key = uuid4()
        store.apply(first(row(key, epoch=1, attempt=1), at=T + 10))
        pointer = register(transaction_id=key)
        apply_or_be_fenced(store, pointer, then(row(key, epoch=0, attempt=2), at=T, epoch=0))
        assert attempt_seen(store, key) == 1
        registered = not store.fences_by_epoch
        assert store.has_pointer(pointer.path, key) is registered
        assert list(store.days(2023)) == ([pointer.path.date] if registered else [])

    def test_a_fenced_row_undoes_the_other_transaction_of_the_same_call_and_a_losing_one_does_not(
        self, store: Store
    ) -> None:
        there, new = uuid4(), uuid4()
        store.apply(first(row(there, epoch=1, attempt=1), at=T + 10))
        apply_or_be_fenced(store, first(row(new), at=T), then(row(there, epoch=0, attempt=2), at=T, epoch=0))
        assert attempt_seen(store, there) == 1
        assert attempt_seen(store, new) == (None if store.fences_by_epoch else 0)
