"""Pointers of a bucket, their deletion, and what separates one scope from another."""

from __future__ import annotations

from uuid import uuid4

from msgspec.structs import replace

from stacksaga_flask.store.contract import FrozenRow, IndexStart, Path, Scope, Store
from stacksaga_flask.testing.conformance.harness import Conformance, OpenStore, StoreHarness
from stacksaga_flask.testing.conformance.samples import (
    DATE,
    OPENS_AT,
    PATH,
    WINDOW,
    T,
    claim,
    drop,
    first,
    fresh_scope,
    read_row,
    register,
    row,
    then,
    tryout,
)

WATCHDOGS = Path(DATE, WINDOW, "web-1", 1)


class DirectoryConformance(Conformance):
    """Tier 5 and scopes."""

    def test_pointers_come_by_rising_id_or_in_order_of_registration(self, store: Store) -> None:
        rising = sorted(uuid4() for _ in range(5))
        registered = [rising[number] for number in (3, 0, 4, 1, 2)]
        for transaction_id in registered:
            store.apply(register(transaction_id=transaction_id))
        assert list(store.pointers(PATH)) == (registered if store.first_in_first_out else rising)

    def test_a_pointer_registered_again_keeps_its_place(self, store: Store) -> None:
        one, other = sorted((uuid4(), uuid4()))
        for transaction_id in (one, other, one):
            store.apply(register(transaction_id=transaction_id))
        assert list(store.pointers(PATH)) == [one, other]

    def test_pointers_are_those_of_the_bucket(self, store: Store) -> None:
        paths = [
            PATH,
            WATCHDOGS,
            Path(DATE, WINDOW + 1, "web-1", 0),
            Path(DATE, WINDOW, "web-2", 0),
            Path("2023-11-15", WINDOW, "web-1", 0),
        ]
        pointers = {path: uuid4() for path in paths}
        for path, transaction_id in pointers.items():
            store.apply(register(path, transaction_id))
        for path in paths:
            assert list(store.pointers(path)) == [pointers[path]]
            assert [other for other in paths if store.has_pointer(other, pointers[path])] == [path]

    def test_deleting_a_pointer_takes_that_one_only(self, store: Store) -> None:
        gone, kept = uuid4(), uuid4()
        store.apply(register(transaction_id=gone), register(transaction_id=kept), register(WATCHDOGS, gone))
        store.apply(drop(gone))
        assert list(store.pointers(PATH)) == [kept]
        assert not store.has_pointer(PATH, gone)
        assert list(store.pointers(WATCHDOGS)) == [gone]

    def test_deleting_the_last_pointer_leaves_the_tiers_above(self, store: Store) -> None:
        gone = uuid4()
        store.apply(register(transaction_id=gone))
        store.apply(drop(gone))
        assert list(store.pointers(PATH)) == []
        assert list(store.buckets(DATE, WINDOW, "web-1")) == [0]
        assert list(store.instances(DATE, WINDOW, minimum=-(2**63), maximum=2**63 - 1)) == [(0, "web-1")]
        assert (list(store.windows(DATE)), list(store.days(2023))) == ([WINDOW], [DATE])

    def test_deleting_a_pointer_that_is_not_there_or_twice_is_fine(self, store: Store) -> None:
        gone, kept = uuid4(), uuid4()
        store.apply(register(transaction_id=gone), register(transaction_id=kept))
        store.apply(drop(uuid4()), drop(gone), drop(gone))
        store.apply(drop(gone))
        assert list(store.pointers(PATH)) == [kept]

    def test_a_late_registration_stays_gone_unless_the_store_fences_by_epoch(self, store: Store) -> None:
        """The timestamps come from the window, so the deletion is above the insert whatever any clock said (R13)."""
        finished, other = uuid4(), uuid4()
        store.apply(drop(finished))
        store.apply(register(transaction_id=finished), register(transaction_id=other))
        assert store.has_pointer(PATH, finished) is store.fences_by_epoch
        assert store.has_pointer(PATH, other)

    def test_a_deletion_below_the_registration_has_no_effect_unless_the_store_fences_by_epoch(
        self, store: Store
    ) -> None:
        pointer, other = uuid4(), uuid4()
        store.apply(register(transaction_id=pointer), register(transaction_id=other))
        store.apply(drop(pointer, at=OPENS_AT - 3))
        assert store.has_pointer(PATH, pointer) is not store.fences_by_epoch
        assert store.has_pointer(PATH, other)

    def test_pointers_of_more_than_a_page_are_all_read_once(self, store: Store, harness: StoreHarness) -> None:
        pointers = [uuid4() for _ in range(harness.more_than_a_page)]
        for start in range(0, len(pointers), 100):
            store.apply(*(register(transaction_id=pointer) for pointer in pointers[start : start + 100]))
        expected = pointers if store.first_in_first_out else sorted(pointers)
        assert list(store.pointers(PATH)) == expected
        assert all(store.has_pointer(PATH, pointer) for pointer in pointers[:: len(pointers) // 10])

    def test_a_pointer_and_its_row_go_out_together(self, store: Store) -> None:
        started = row()
        store.apply(register(WATCHDOGS, started.transaction_id), first(started))
        assert store.has_pointer(WATCHDOGS, started.transaction_id)
        assert read_row(store, started.transaction_id) == started

    def test_a_start_may_be_indexed_again_and_again_beside_its_row(self, store: Store) -> None:
        started = row()
        index = IndexStart(
            transaction_id=started.transaction_id,
            date=DATE,
            window=WINDOW,
            shard=3,
            saga_name=started.saga_name,
            created_at=T,
            timestamp=T,
            keep_for=7 * 24 * 3600,
        )
        store.apply(register(WATCHDOGS, started.transaction_id), first(started), index)
        store.apply(index)
        assert read_row(store, started.transaction_id) == started
        assert store.has_pointer(WATCHDOGS, started.transaction_id)

    def test_scopes_that_differ_in_one_part_share_nothing(self, open_store: OpenStore) -> None:
        name = fresh_scope().service_name
        scopes = [Scope(*parts) for parts in (("eu", "a", name), ("us", "a", name), ("eu", "b", name))]
        scopes += [Scope("eu", "a", f"{name}-2"), Scope("eua", "", name)]
        stores = [open_store(scope) for scope in scopes]
        started = row()
        key = started.transaction_id
        frozen = FrozenRow(transaction_id=key, frozen_at=T, reason="why")
        for number, store in enumerate(stores):
            assert store.scope == scopes[number]
            assert store.read(key) is None
            assert not store.has_pointer(PATH, key)
            assert store.marker(key, "#claim") is None
            assert list(store.frozen()) == []
            assert list(store.days(2023)) == []
            store.apply(register(PATH, key), replace(first(started), frozen=frozen))
            assert store.insert_marker(key, claim(f"holder-{number}"), ttl=30).applied
        stores[0].apply(drop(key))
        assert [store.has_pointer(PATH, key) for store in stores] == [False, True, True, True, True]
        stores[1].delete_marker(key, "#claim", expected_state="holder-1")
        assert [bool(store.markers(key)) for store in stores] == [True, False, True, True, True]
        stores[2].apply(replace(then(started, at=T + 1), delete_frozen=True, tryouts=(tryout(0),)))
        assert [list(store.frozen()) for store in stores] == [[frozen], [frozen], [], [frozen], [frozen]]
        assert [list(store.tryouts(key)) for store in stores] == [[], [], [tryout(0)], [], []]

    def test_another_store_of_the_same_scope_sees_the_same(self, store: Store, open_store: OpenStore) -> None:
        started = row()
        store.apply(register(PATH, started.transaction_id), first(started))
        other = open_store(store.scope)
        assert read_row(other, started.transaction_id) == started
        assert list(other.pointers(PATH)) == [started.transaction_id]
        other.apply(drop(started.transaction_id))
        assert list(store.pointers(PATH)) == []
