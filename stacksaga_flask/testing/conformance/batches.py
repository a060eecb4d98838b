"""One batch over row, tryouts, markers and frozen row is all or nothing."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from stacksaga_flask.errors import Fenced, OutcomeUnknown, StoreRefused, StoreUnavailable
from stacksaga_flask.store.contract import FrozenRow, RunningStatus, Store, TransactionRow, WriteTransaction
from stacksaga_flask.testing.conformance.harness import Conformance, StoreHarness
from stacksaga_flask.testing.conformance.samples import (
    T,
    committed,
    first,
    read_row,
    row,
    then,
    tryout,
    with_status,
)


def whole_batch(written: TransactionRow, at: int = T) -> WriteTransaction:
    """A batch that writes to all four tables."""
    return replace(
        first(written, at=at),
        tryouts=(tryout(0, error="503"), tryout(1)),
        markers=(committed("charge", b"\x00paid"), committed("reserve")),
        frozen=FrozenRow(transaction_id=written.transaction_id, frozen_at=T, reason="why"),
    )


def what_is_seen(store: Store, of: WriteTransaction) -> list[bool]:
    """Whether row, tryouts, markers and frozen row are there just as the batch wrote them."""
    key = of.row.transaction_id
    return [
        read_row(store, key) == of.row,
        tuple(store.tryouts(key)) == of.tryouts,
        store.markers(key) == of.markers,
        of.frozen in list(store.frozen()),
    ]


def nothing_is_seen(store: Store, of: WriteTransaction) -> bool:
    """Whether nothing of the batch is there."""
    key = of.row.transaction_id
    return (
        store.read(key) is None
        and not list(store.tryouts(key))
        and not store.markers(key)
        and not [frozen for frozen in store.frozen() if frozen.transaction_id == key]
    )


class BatchConformance(Conformance):
    """Batches as wholes."""

    def test_a_batch_writes_row_tryouts_markers_and_frozen_row(self, store: Store) -> None:
        batch = whole_batch(with_status(row(), RunningStatus.FROZEN))
        assert nothing_is_seen(store, batch)
        store.apply(batch)
        assert what_is_seen(store, batch) == [True] * 4

    def test_a_refused_batch_writes_nothing_and_can_be_repeated(self, store: Store, harness: StoreHarness) -> None:
        batch = whole_batch(row())
        with harness.refuse(store), pytest.raises((StoreUnavailable, StoreRefused)):
            store.apply(batch)
        assert nothing_is_seen(store, batch)
        store.apply(batch)
        assert what_is_seen(store, batch) == [True] * 4

    def test_a_batch_whose_acknowledgement_is_lost_is_there_whole(self, store: Store, harness: StoreHarness) -> None:
        batch = whole_batch(row())
        with harness.lose_acknowledgement(store), pytest.raises(OutcomeUnknown):
            store.apply(batch)
        assert what_is_seen(store, batch) == [True] * 4

    def test_a_batch_that_is_too_late_leaves_nothing_or_only_its_tryouts_and_markers(self, store: Store) -> None:
        """By timestamp each row of the batch wins or loses by itself, so what is new in it survives (R13)."""
        starter = row()
        taken_over = row(starter.transaction_id, epoch=1)
        store.apply(first(starter, at=T))
        store.apply(then(taken_over, at=T + 2))
        late = replace(
            then(with_status(starter, RunningStatus.PROCESS_COMPLETED), at=T + 1),
            tryouts=(tryout(5),),
            markers=(committed("ship"),),
        )
        if store.fences_by_epoch:
            with pytest.raises(Fenced):
                store.apply(late)
        else:
            store.apply(late)
        survives = not store.fences_by_epoch
        assert read_row(store, starter.transaction_id) == taken_over
        assert list(store.tryouts(starter.transaction_id)) == ([tryout(5)] if survives else [])
        assert store.markers(starter.transaction_id) == ((committed("ship"),) if survives else ())

    def test_a_tryout_written_again_is_the_newer_one(self, store: Store) -> None:
        written = row()
        store.apply(replace(first(written, at=T), tryouts=(tryout(0, error="unknown"),)))
        store.apply(replace(then(written, at=T + 1), tryouts=(tryout(0),)))
        assert list(store.tryouts(written.transaction_id)) == [tryout(0)]

    def test_a_marker_written_again_has_the_newer_result(self, store: Store) -> None:
        written = row()
        store.apply(replace(first(written, at=T), markers=(committed("charge", b"one"),)))
        store.apply(replace(then(written, at=T + 1), markers=(committed("charge", b"two"),)))
        assert store.markers(written.transaction_id) == (committed("charge", b"two"),)

    def test_two_transactions_of_one_call_are_written_both(self, store: Store) -> None:
        one, other = whole_batch(row()), whole_batch(row())
        store.apply(one, other)
        assert what_is_seen(store, one) == [True] * 4
        assert what_is_seen(store, other) == [True] * 4
