"""What a write that was not acknowledged means: unknown is neither success nor failure."""

from __future__ import annotations

from uuid import uuid4

import pytest
from msgspec.structs import replace

from stacksaga_flask.errors import OutcomeUnknown, StoreRefused, StoreUnavailable
from stacksaga_flask.store.contract import Expected, Marker, MarkerOutcome, Store
from stacksaga_flask.testing.conformance.harness import Conformance, OpenStore, StoreHarness
from stacksaga_flask.testing.conformance.samples import (
    GRID,
    PATH,
    T,
    claim,
    drop,
    first,
    read_row,
    register,
    row,
    then,
)

NOTHING_WRITTEN = (StoreUnavailable, StoreRefused)


class OutcomeConformance(Conformance):
    """Lost acknowledgements and refusals."""

    def test_a_row_whose_acknowledgement_is_lost_is_unknown_and_there(
        self, store: Store, harness: StoreHarness
    ) -> None:
        started = row()
        with harness.lose_acknowledgement(store), pytest.raises(OutcomeUnknown):
            store.apply(first(started))
        assert read_row(store, started.transaction_id) == started

    def test_an_unknown_write_can_be_repeated_by_its_owner(self, store: Store, harness: StoreHarness) -> None:
        started = row()
        with harness.lose_acknowledgement(store), pytest.raises(OutcomeUnknown):
            store.apply(first(started, at=T))
        store.apply(replace(first(started, at=T + 1), expected=Expected.EPOCH_OR_ABSENT))
        moved_on = replace(started, attempt=1)
        store.apply(then(moved_on, at=T + 2))
        assert read_row(store, started.transaction_id) == moved_on

    def test_an_unknown_start_is_whole_where_the_store_is_transactional(
        self, store: Store, harness: StoreHarness
    ) -> None:
        started = row()
        pointer = register(transaction_id=started.transaction_id)
        with harness.lose_acknowledgement(store), pytest.raises(OutcomeUnknown):
            store.apply(pointer, first(started))
        seen = (store.has_pointer(PATH, started.transaction_id), read_row(store, started.transaction_id) == started)
        assert seen == (True, True) if store.transactional else any(seen)
        store.apply(pointer, replace(first(started), expected=Expected.EPOCH_OR_ABSENT))
        assert store.has_pointer(PATH, started.transaction_id)
        assert read_row(store, started.transaction_id) == started

    def test_a_registration_whose_acknowledgement_is_lost_is_unknown_and_there(
        self, store: Store, harness: StoreHarness
    ) -> None:
        pointer = uuid4()
        with harness.lose_acknowledgement(store), pytest.raises(OutcomeUnknown):
            store.apply(register(transaction_id=pointer, tiers=frozenset({5})))
        assert store.has_pointer(PATH, pointer)

    def test_a_deletion_whose_acknowledgement_is_lost_is_unknown_and_done(
        self, store: Store, harness: StoreHarness
    ) -> None:
        gone, kept = uuid4(), uuid4()
        store.apply(register(transaction_id=gone), register(transaction_id=kept))
        with harness.lose_acknowledgement(store), pytest.raises(OutcomeUnknown):
            store.apply(drop(gone))
        assert list(store.pointers(PATH)) == [kept]

    def test_a_refused_start_leaves_neither_tiers_nor_row(self, store: Store, harness: StoreHarness) -> None:
        started = row()
        start = (register(transaction_id=started.transaction_id), first(started))
        with harness.refuse(store), pytest.raises(NOTHING_WRITTEN):
            store.apply(*start)
        assert store.read(started.transaction_id) is None
        assert list(store.days(2023)) == []
        assert list(store.pointers(PATH)) == []
        store.apply(*start)
        assert read_row(store, started.transaction_id) == started
        assert list(store.pointers(PATH)) == [started.transaction_id]

    def test_a_refused_write_leaves_the_row_that_was_there(self, store: Store, harness: StoreHarness) -> None:
        started = row()
        store.apply(first(started, at=T))
        with harness.refuse(store), pytest.raises(NOTHING_WRITTEN):
            store.apply(then(replace(started, attempt=1), at=T + 1))
        assert read_row(store, started.transaction_id) == started

    def test_a_claim_whose_answer_is_lost_is_read_back_by_its_holder(self, store: Store, harness: StoreHarness) -> None:
        key = uuid4()
        with harness.lose_acknowledgement(store), pytest.raises(OutcomeUnknown):
            store.insert_marker(key, claim("mine"), ttl=30)
        assert store.marker(key, "#claim") == claim("mine")
        assert store.insert_marker(key, claim("other"), ttl=30) == MarkerOutcome(False, claim("mine"))

    def test_a_replacement_whose_answer_is_lost_is_read_back(self, store: Store, harness: StoreHarness) -> None:
        key, done = uuid4(), Marker(step_id="charge", execution_state="COMMITTED", result=b"paid")
        store.insert_marker(key, Marker(step_id="charge", execution_state="lease-1"), ttl=30)
        with harness.lose_acknowledgement(store), pytest.raises(OutcomeUnknown):
            store.replace_marker(key, done, expected_state="lease-1", ttl=None)
        assert store.marker(key, "charge") == done

    def test_giving_back_a_claim_whose_answer_is_lost_has_given_it_back(
        self, store: Store, harness: StoreHarness
    ) -> None:
        key = uuid4()
        store.insert_marker(key, claim("mine"), ttl=30)
        with harness.lose_acknowledgement(store), pytest.raises(OutcomeUnknown):
            store.delete_marker(key, "#claim", expected_state="mine")
        assert store.marker(key, "#claim") is None
        assert store.insert_marker(key, claim("other"), ttl=30).applied
        assert store.marker(key, "#claim") == claim("other")

    def test_a_refused_claim_is_not_there(self, store: Store, harness: StoreHarness) -> None:
        key = uuid4()
        with harness.refuse(store), pytest.raises(NOTHING_WRITTEN):
            store.insert_marker(key, claim("mine"), ttl=30)
        assert store.marker(key, "#claim") is None
        assert store.insert_marker(key, claim("other"), ttl=30).applied
        assert store.marker(key, "#claim") == claim("other")

    def test_a_refused_replacement_or_deletion_changes_nothing(self, store: Store, harness: StoreHarness) -> None:
        key = uuid4()
        store.insert_marker(key, claim("mine"), ttl=30)
        with harness.refuse(store), pytest.raises(NOTHING_WRITTEN):
            store.replace_marker(key, claim("other"), expected_state="mine", ttl=30)
        with harness.refuse(store), pytest.raises(NOTHING_WRITTEN):
            store.delete_marker(key, "#claim", expected_state="mine")
        assert store.marker(key, "#claim") == claim("mine")

    def test_a_grid_whose_acknowledgement_is_lost_is_unknown_and_there(
        self, store: Store, harness: StoreHarness
    ) -> None:
        with harness.lose_acknowledgement(store), pytest.raises(OutcomeUnknown):
            store.record_grid(GRID)
        assert store.read_grid() == GRID

    def test_another_store_object_sees_what_an_unknown_write_did(
        self, store: Store, open_store: OpenStore, harness: StoreHarness
    ) -> None:
        started, other = row(), open_store(store.scope)
        with harness.lose_acknowledgement(store), pytest.raises(OutcomeUnknown):
            store.apply(first(started))
        assert read_row(other, started.transaction_id) == started
