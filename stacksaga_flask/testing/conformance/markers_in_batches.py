"""Plain markers, and the deletion of the marker partition, are part of a transaction's batch (R9)."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from stacksaga_flask.clock import SECOND
from stacksaga_flask.store.contract import Expected, RunningStatus, Store, WriteTransaction
from stacksaga_flask.testing.conformance.harness import Conformance, StoreHarness
from stacksaga_flask.testing.conformance.samples import claim, committed, first, read_row, row, tryout, with_status


def batch(transaction_id: UUID, at: int, *steps: str) -> WriteTransaction:
    """A batch that commits steps."""
    write = replace(first(row(transaction_id), at=at), expected=Expected.EPOCH_OR_ABSENT)
    return replace(write, markers=tuple(committed(step) for step in steps))


def terminal(transaction_id: UUID, at: int) -> WriteTransaction:
    """A batch that ends the transaction and deletes its markers."""
    ended = with_status(row(transaction_id), RunningStatus.PROCESS_COMPLETED)
    write = replace(first(ended, at=at), expected=Expected.EPOCH_OR_ABSENT)
    return replace(write, delete_markers=True)


class MarkersInBatchesConformance(Conformance):
    """Markers written and deleted with the row."""

    def test_deleting_the_markers_takes_claims_as_well_and_those_of_no_other(self, store: Store) -> None:
        ended, other = uuid4(), uuid4()
        for key in (ended, other):
            store.insert_marker(key, claim(), ttl=30)
            store.apply(batch(key, store.now(), "charge"))
        store.apply(terminal(ended, store.now() + SECOND))
        assert store.markers(ended) == ()
        assert store.marker(ended, "#claim") is None
        assert store.markers(other) == (claim(), committed("charge"))

    def test_a_batch_that_writes_a_marker_and_deletes_the_markers_leaves_none(self, store: Store) -> None:
        key, now = uuid4(), store.now()
        store.apply(batch(key, now, "reserve"))
        last = terminal(key, now + 1)
        store.apply(replace(last, markers=(committed("charge"),), tryouts=(tryout(1),)))
        assert store.markers(key) == ()
        assert list(store.tryouts(key)) == [tryout(1)]
        assert read_row(store, key) == last.row

    def test_a_late_marker_below_a_deletion_stays_hidden_unless_the_store_fences_by_epoch(self, store: Store) -> None:
        key, now = uuid4(), store.now()
        store.apply(batch(key, now, "reserve"))
        store.apply(terminal(key, now + 10))
        store.apply(batch(key, now + 9, "late"), batch(key, now + 10, "same"))
        assert store.markers(key) == ((committed("late"), committed("same")) if store.fences_by_epoch else ())
        store.apply(batch(key, now + 11, "new"))
        assert committed("new") in store.markers(key)

    def test_a_claim_hidden_under_a_deletion_ahead_of_the_clock_excludes_nobody(
        self, store: Store, harness: StoreHarness
    ) -> None:
        """H1 of the schedules, and why the row is read after the claim. By epoch there is nothing to hide it."""
        key = uuid4()
        store.apply(terminal(key, store.now() + 3 * SECOND))
        assert store.insert_marker(key, claim("first"), ttl=30).applied
        assert store.marker(key, "#claim") == (claim("first") if store.fences_by_epoch else None)
        assert store.insert_marker(key, claim("second"), ttl=30).applied is not store.fences_by_epoch
        harness.advance(5 * SECOND)
        assert store.insert_marker(key, claim("third"), ttl=30).applied is not store.fences_by_epoch
        assert store.marker(key, "#claim") == claim("first" if store.fences_by_epoch else "third")

    def test_a_claim_above_the_timestamp_of_a_deletion_survives_it_unless_the_store_fences_by_epoch(
        self, store: Store
    ) -> None:
        key = uuid4()
        store.insert_marker(key, claim(), ttl=30)
        store.apply(terminal(key, store.now() - 10 * SECOND))
        assert store.markers(key) == (() if store.fences_by_epoch else (claim(),))
        assert store.read(key) is not None

    @pytest.mark.parametrize("plain", ["charge", "#plain"])
    def test_plain_markers_and_claims_are_read_together(self, store: Store, plain: str) -> None:
        key = uuid4()
        store.insert_marker(key, claim(), ttl=30)
        store.apply(batch(key, store.now(), plain))
        assert store.markers(key) == tuple(sorted((claim(), committed(plain)), key=lambda marker: marker.step_id))
        assert store.marker(key, plain) == committed(plain)
