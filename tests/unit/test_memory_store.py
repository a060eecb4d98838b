"""What the memory store shares with Cassandra beyond the contract. *Seen* in the schedules means: on Cassandra."""

from __future__ import annotations

from itertools import permutations
from random import Random
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stacksaga_flask.clock import SECOND, ManualTime
from stacksaga_flask.store.contract import (
    Drop,
    FrozenRow,
    Marker,
    Operation,
    Path,
    RunningStatus,
    Scope,
    TransactionRow,
    WriteTransaction,
)
from stacksaga_flask.store.memory import MemoryStore
from stacksaga_flask.testing.conformance.samples import (
    DATE,
    OPENS_AT,
    PATH,
    WINDOW,
    claim,
    committed,
    delete,
    drop,
    first,
    full_row,
    register,
    row,
    tryout,
    with_status,
)
from stacksaga_flask.testing.conformance.tiers import everything

SCOPE = Scope("default", "default", "shop")
KEY = UUID("3f2b8f44-6c0f-4a53-9a43-6f2f1f0f9b11")
NOW = 1_700_000_000 * SECOND


@pytest.fixture
def time() -> ManualTime:
    return ManualTime(NOW)


@pytest.fixture
def store(time: ManualTime) -> MemoryStore:
    return MemoryStore(SCOPE, time)


def ended(at: int) -> WriteTransaction:
    return replace(first(with_status(row(KEY), RunningStatus.PROCESS_COMPLETED), at=at), delete_markers=True)


def frozen(at: int) -> WriteTransaction:
    return replace(first(row(KEY), at=at), frozen=FrozenRow(transaction_id=KEY, frozen_at=at, reason="late"))


# -- the highest timestamp stands ------------------------------------------------------------------------------


def test_a_step_stamped_by_a_slower_coordinator_is_lost_silently(store: MemoryStore) -> None:
    store.apply(first(row(KEY, attempt=1), at=NOW + 20_000))
    store.apply(first(row(KEY, attempt=2), at=NOW + 3_000))
    stored = store.read(KEY)
    assert stored is not None
    assert (stored.row.attempt, stored.written_at) == (1, NOW + 20_000)


def test_a_losing_batch_leaves_its_tryout_its_marker_and_its_frozen_row(store: MemoryStore) -> None:
    store.apply(first(row(KEY, epoch=1), at=NOW + 1))
    store.apply(replace(frozen(NOW), tryouts=(tryout(2),), markers=(committed("charge"),)))
    stored = store.read(KEY)
    assert stored is not None
    assert stored.row.epoch == 1
    assert list(store.tryouts(KEY)) == [tryout(2)]
    assert store.markers(KEY) == (committed("charge"),)
    assert [left.reason for left in store.frozen()] == ["late"]


def test_a_takeover_deletes_a_late_freeze_whichever_comes_first(time: ManualTime) -> None:
    takeover = replace(first(row(KEY, epoch=1), at=NOW + 1), delete_frozen=True)
    for order in permutations((frozen(NOW), takeover)):
        store = MemoryStore(SCOPE, time)
        for operation in order:
            store.apply(operation)
        assert list(store.frozen()) == []


def test_rows_of_one_timestamp_are_merged_cell_by_cell_and_null_wins() -> None:
    one = full_row()
    other = replace(one, attempt=one.attempt - 1, payload=one.payload + b"\x01", reason=None, retry=None)
    expected = replace(one, payload=other.payload, reason=None, retry=None)
    for order in permutations((one, other)):
        store = MemoryStore(SCOPE, ManualTime())
        for written in order:
            store.apply(first(written, at=NOW))
        stored = store.read(one.transaction_id)
        assert stored is not None
        assert stored.row == expected


def test_a_delete_wins_over_a_write_of_its_own_timestamp(store: MemoryStore) -> None:
    store.apply(first(row(KEY), at=NOW))
    store.apply(delete(KEY, at=NOW))
    assert store.read(KEY) is None
    store.apply(first(row(KEY), at=NOW))
    assert store.read(KEY) is None


def test_a_pointer_registered_with_a_fast_clock_cannot_be_deleted_but_by_the_windows_timestamps_it_can(
    store: MemoryStore,
) -> None:
    an_hour = 3600 * SECOND
    store.apply(register(transaction_id=KEY, at=NOW + an_hour), drop(KEY, at=NOW))
    assert store.has_pointer(PATH, KEY)
    other = Path(DATE, WINDOW, "web-2", 0)
    store.apply(register(other, KEY, at=OPENS_AT - 2), drop(KEY, other, at=OPENS_AT - 1))
    assert not store.has_pointer(other, KEY)


def small_rows() -> st.SearchStrategy[TransactionRow]:
    reasons = st.sampled_from([None, "a", "b"])
    return st.builds(
        lambda attempt, reason: replace(row(KEY, attempt=attempt), reason=reason), st.integers(0, 2), reasons
    )


def operations() -> st.SearchStrategy[Operation]:
    stamps = st.integers(NOW, NOW + 3)
    writes = st.builds(
        lambda written, at, markers, clean, thaw: replace(
            frozen(at),
            row=written,
            tryouts=(tryout(0, error=written.reason),),
            markers=markers,
            delete_markers=clean,
            delete_frozen=thaw,
        ),
        small_rows(),
        stamps,
        st.sampled_from([(), (committed("charge", b"1"),), (committed("charge"), committed("ship"))]),
        st.booleans(),
        st.booleans(),
    )
    return st.one_of(
        writes,
        st.builds(delete, st.just(KEY), stamps),
        st.builds(lambda at: drop(KEY, at=at), stamps),
        st.builds(lambda at: register(transaction_id=KEY, at=at), stamps),
        st.builds(lambda tier, at: Drop(tier=tier, path=PATH, timestamp=at), st.integers(1, 5), stamps),
    )


@given(st.lists(operations(), max_size=6), st.randoms(use_true_random=False))
def test_the_order_in_which_writes_arrive_changes_nothing(written: list[Operation], random: Random) -> None:
    shuffled = list(written)
    random.shuffle(shuffled)
    seen = []
    for order in (written, shuffled):
        store = MemoryStore(SCOPE, ManualTime())
        for operation in order:
            store.apply(operation)
        seen.append(
            (
                store.read(KEY),
                list(store.tryouts(KEY)),
                store.markers(KEY),
                list(store.frozen()),
                store.has_pointer(PATH, KEY),
                *everything(store)[:2],
            )
        )
    assert seen[0] == seen[1]


# -- conditional writes ----------------------------------------------------------------------------------------


def test_a_time_to_live_is_cut_to_whole_seconds(store: MemoryStore, time: ManualTime) -> None:
    time.set_wall(NOW + 850_000)
    store.insert_marker(KEY, claim(), ttl=2)
    time.advance(1_149_999)
    assert store.marker(KEY, "#claim") == claim()
    time.advance(1)
    assert store.marker(KEY, "#claim") is None


def test_a_client_behind_the_ballots_leaves_strict_markers_for_ever(store: MemoryStore, time: ManualTime) -> None:
    store.insert_marker(KEY, Marker(step_id="charge", execution_state="COMMITTED"), ttl=None)
    store.apply(ended(NOW - 10 * SECOND))
    time.advance(86_400 * SECOND)
    assert store.markers(KEY) == (committed("charge"),)


def test_a_client_ahead_of_the_ballots_lets_everybody_claim_until_the_clock_is_there(
    store: MemoryStore, time: ManualTime
) -> None:
    store.apply(ended(NOW + 10 * SECOND))
    for holder in ("a", "b"):
        assert store.insert_marker(KEY, claim(holder), ttl=60).applied
        assert store.marker(KEY, "#claim") is None
    time.advance(10 * SECOND + 1)
    assert store.insert_marker(KEY, claim("c"), ttl=60).applied
    assert not store.insert_marker(KEY, claim("d"), ttl=60).applied
    assert store.marker(KEY, "#claim") == claim("c")


def test_ballots_rise_while_the_clock_stands_still(store: MemoryStore) -> None:
    store.insert_marker(KEY, claim("a"), ttl=60)
    store.delete_marker(KEY, "#claim", expected_state="a")
    assert store.marker(KEY, "#claim") is None
    store.insert_marker(KEY, claim("b"), ttl=60)
    assert store.marker(KEY, "#claim") == claim("b")


def test_a_dead_owners_terminal_batch_takes_a_claim_whose_ballot_lies_below_it(store: MemoryStore) -> None:
    store.insert_marker(KEY, claim("finder"), ttl=30)
    store.apply(ended(NOW + SECOND // 2))
    assert store.marker(KEY, "#claim") is None
    assert store.insert_marker(KEY, claim("third"), ttl=30).applied


def test_the_deletion_of_markers_hides_nothing_of_other_tables(store: MemoryStore) -> None:
    store.apply(replace(ended(NOW), tryouts=(tryout(1),)))
    store.apply(replace(first(row(KEY, attempt=9), at=NOW - 1), tryouts=(tryout(0),), markers=(committed("late"),)))
    assert [attempt.tryout_index for attempt in store.tryouts(KEY)] == [0, 1]
    assert store.markers(KEY) == ()


# -- sharing ---------------------------------------------------------------------------------------------------


def test_stores_beside_one_another_share_the_data_of_their_scope(store: MemoryStore) -> None:
    other, stranger = store.beside(SCOPE), store.beside(SCOPE._replace(service_name="stock"))
    other.apply(first(row(KEY), at=NOW))
    assert store.read(KEY) is not None
    assert stranger.read(KEY) is None
    assert stranger.beside(SCOPE).read(KEY) is not None


def test_closing_a_store_leaves_the_data_to_those_who_share_it(store: MemoryStore) -> None:
    store.apply(first(row(KEY), at=NOW))
    store.close()
    assert store.read(KEY) is not None


def test_what_is_read_is_not_changed_by_a_later_write(store: MemoryStore) -> None:
    pointers = sorted(uuid4() for _ in range(3))
    store.apply(*(register(transaction_id=pointer) for pointer in pointers))
    reading = store.pointers(PATH)
    assert next(reading) == pointers[0]
    store.apply(*(drop(pointer) for pointer in pointers))
    assert list(reading) == pointers[1:]
    assert list(store.pointers(PATH)) == []
