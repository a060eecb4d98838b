"""A transaction's row and its tryouts are read as they were written."""

from __future__ import annotations

from uuid import uuid4

import pytest
from msgspec.structs import replace

from stacksaga_flask.store.contract import ExecutionType, ProtectionMode, RunningStatus, Store, TryoutStatus
from stacksaga_flask.testing.conformance.harness import Conformance, StoreHarness
from stacksaga_flask.testing.conformance.samples import T, first, full_row, read_row, row, then, tryout, with_status


class TransactionConformance(Conformance):
    """Rows and tryouts."""

    def test_a_row_with_something_in_every_field_is_read_as_written(self, store: Store) -> None:
        written = full_row()
        store.apply(first(written))
        assert read_row(store, written.transaction_id) == written

    def test_a_row_with_nothing_in_its_optional_fields_is_read_as_written(self, store: Store) -> None:
        written = replace(row(), watchdog=None, payload=b"")
        store.apply(first(written))
        read = read_row(store, written.transaction_id)
        assert read == written
        assert read is not None
        assert (read.watchdog, read.retry, read.reason, read.start_hash, read.public_result) == (None,) * 5
        assert (read.payload, read.committed_steps, read.reverts) == (b"", (), ())

    def test_a_row_written_again_keeps_nothing_of_the_one_before(self, store: Store) -> None:
        before = full_row()
        after = row(before.transaction_id, epoch=before.epoch)
        store.apply(first(before, at=T))
        store.apply(then(after, at=T + 1, epoch=before.epoch))
        assert read_row(store, before.transaction_id) == after

    @pytest.mark.parametrize("status", RunningStatus)
    def test_every_running_status_is_read_as_written(self, store: Store, status: RunningStatus) -> None:
        written = replace(with_status(row(), status), status_before_freezing=status)
        store.apply(first(written))
        assert read_row(store, written.transaction_id) == written

    def test_both_protection_modes_are_read_as_written(self, store: Store) -> None:
        rows = [replace(row(), protection_mode=mode) for mode in ProtectionMode]
        store.apply(*map(first, rows))
        assert [read_row(store, written.transaction_id) for written in rows] == rows

    def test_a_payload_of_one_mebibyte_is_read_as_written(self, store: Store) -> None:
        written = replace(row(), payload=bytes(range(256)) * 4096)
        store.apply(first(written))
        assert read_row(store, written.transaction_id) == written

    def test_an_empty_reason_is_not_the_same_as_none(self, store: Store) -> None:
        written = replace(row(), reason="")
        store.apply(first(written))
        assert read_row(store, written.transaction_id) == written

    def test_a_step_name_with_a_separator_in_it_stays_one_step(self, store: Store) -> None:
        written = replace(row(), committed_steps=("a,b", "c|d", 'e"f', "g h"), reverts=("[]", ",", "'"))
        store.apply(first(written))
        assert read_row(store, written.transaction_id) == written

    def test_only_the_transaction_asked_for_is_read(self, store: Store) -> None:
        one, other = row(attempt=1), row(attempt=2)
        store.apply(first(one), first(other))
        assert read_row(store, one.transaction_id) == one
        assert read_row(store, other.transaction_id) == other
        assert store.read(uuid4()) is None

    def test_a_row_tells_its_timestamp_unless_the_store_fences_by_epoch(self, store: Store) -> None:
        written = row()
        store.apply(first(written, at=T + 7))
        stored = store.read(written.transaction_id)
        assert stored is not None
        assert stored.written_at == (0 if store.fences_by_epoch else T + 7)

    def test_every_field_of_a_tryout_is_read_as_written(self, store: Store) -> None:
        attempts = [
            replace(
                tryout(index, error="Zeitüberschreitung \N{SNOWMAN}" if index else None),
                execution_type=kind,
                status=end,
            )
            for index, (kind, end) in enumerate((kind, end) for kind in ExecutionType for end in TryoutStatus)
        ]
        written = row()
        store.apply(replace(first(written), tryouts=tuple(attempts)))
        assert list(store.tryouts(written.transaction_id)) == attempts

    def test_tryouts_come_by_rising_index_over_the_epochs(self, store: Store) -> None:
        written = row()
        store.apply(replace(first(written, at=T), tryouts=(tryout(20_001), tryout(3))))
        store.apply(replace(then(written, at=T + 1), tryouts=(tryout(10_002), tryout(1))))
        assert [attempt.tryout_index for attempt in store.tryouts(written.transaction_id)] == [1, 3, 10_002, 20_001]

    def test_tryouts_are_those_of_the_transaction_asked_for(self, store: Store) -> None:
        one, other = row(), row()
        store.apply(replace(first(one), tryouts=(tryout(0),)), replace(first(other), tryouts=(tryout(1),)))
        assert list(store.tryouts(one.transaction_id)) == [tryout(0)]
        assert list(store.tryouts(other.transaction_id)) == [tryout(1)]
        assert list(store.tryouts(uuid4())) == []

    def test_tryouts_of_more_than_a_page_are_all_read(self, store: Store, harness: StoreHarness) -> None:
        written = row()
        attempts = [tryout(index) for index in range(harness.more_than_a_page)]
        store.apply(first(written))
        for start in range(0, len(attempts), 100):
            batch = then(written, at=T + 1 + start)
            store.apply(replace(batch, tryouts=tuple(attempts[start : start + 100])))
        assert list(store.tryouts(written.transaction_id)) == attempts
