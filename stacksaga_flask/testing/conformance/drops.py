"""How places of the directory are dropped from the bottom up, and put back (R5, R13)."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from stacksaga_flask.store.contract import LAST_WINDOW, Drop, Path, Store
from stacksaga_flask.testing.conformance.harness import Conformance, OpenStore
from stacksaga_flask.testing.conformance.samples import DATE, DAY_STARTS_AT, OPENS_AT, PATH, WINDOW, drop, register
from stacksaga_flask.testing.conformance.tiers import everything

ONE = UUID("00000000-0000-4000-8000-000000000001")
OTHER = UUID("00000000-0000-4000-8000-000000000002")
TOKEN = 5
WATCHDOGS = PATH._replace(bucket=1)
ALL: list[object] = [[DATE], [WINDOW], [(TOKEN, PATH.instance_id)], [PATH.bucket], [ONE]]
"""What the tiers hold of one pointer; see `everything`."""
MIDNIGHT = DAY_STARTS_AT + 86_400_000_000
"""The wall clock of a node that prunes tiers 1 and 2, after the window's and the date's end."""


def drop_tier(tier: int, path: Path = PATH, *, at: int | None = None, token: int = TOKEN) -> Drop:
    """The drop of a place; of tiers 1 and 2 with a wall clock's timestamp."""
    timestamp = (OPENS_AT if tier >= 3 else MIDNIGHT) if at is None else at
    return Drop(tier=tier, path=path, instance_token=token, timestamp=timestamp)


def empty_down_to(store: Store, tier: int) -> None:
    """Drop tier by tier from below, as far as this tier."""
    store.apply(drop(ONE))
    for each in range(5, tier - 1, -1):
        store.apply(drop_tier(each))


class DropConformance(Conformance):
    """Dropping each tier."""

    @pytest.mark.parametrize("tier", [5, 4, 3, 2, 1])
    def test_dropping_from_below_leaves_the_tiers_above(self, store: Store, tier: int) -> None:
        store.apply(register(transaction_id=ONE, token=TOKEN))
        empty_down_to(store, tier)
        assert everything(store) == [*ALL[: tier - 1], *[[]] * (6 - tier)]
        store.apply(register(Path(DATE, WINDOW, "web-2", 0), OTHER))
        assert list(store.pointers(Path(DATE, WINDOW, "web-2", 0))) == [OTHER]

    @pytest.mark.parametrize("tier", [5, 4, 3, 2, 1])
    def test_dropping_twice_and_dropping_what_is_not_there_are_fine(self, store: Store, tier: int) -> None:
        store.apply(drop_tier(tier))
        kept = Path("2024-03-01", 3, "web-2", 2)
        store.apply(register(kept, OTHER), register(transaction_id=ONE, token=TOKEN))
        empty_down_to(store, tier)
        empty_down_to(store, tier)
        assert list(store.pointers(kept)) == [OTHER]
        assert list(store.days(2024)) == [kept.date]

    @pytest.mark.parametrize("tier", [4, 3, 2, 1])
    def test_a_place_with_something_below_is_dropped_only_where_timestamps_decide(
        self, store: Store, tier: int
    ) -> None:
        store.apply(register(transaction_id=ONE, token=TOKEN))
        store.apply(drop_tier(tier))
        dropped = [[] if number == tier else found for number, found in enumerate(ALL, 1)]
        assert everything(store) == (ALL if store.fences_by_epoch else dropped)

    def test_a_bucket_is_dropped_whole_only_where_timestamps_decide(self, store: Store) -> None:
        for bucket in (PATH, WATCHDOGS):
            store.apply(register(bucket, ONE), register(bucket, OTHER))
        store.apply(drop_tier(5))
        assert list(store.pointers(PATH)) == ([ONE, OTHER] if store.fences_by_epoch else [])
        assert list(store.pointers(WATCHDOGS)) == [ONE, OTHER]

    def test_a_late_registration_in_a_dropped_bucket_shows_only_where_epochs_fence(self, store: Store) -> None:
        """Where ids are what is deleted, a pointer that was not read stays for the next sweep (H15)."""
        store.apply(register(transaction_id=ONE, token=TOKEN))
        store.apply(drop(ONE), drop_tier(5))
        store.apply(register(transaction_id=OTHER, token=TOKEN), register(WATCHDOGS, OTHER, token=TOKEN))
        assert list(store.pointers(PATH)) == ([OTHER] if store.fences_by_epoch else [])
        assert list(store.pointers(WATCHDOGS)) == [OTHER]

    def test_what_is_beside_the_dropped_place_stays(self, store: Store) -> None:
        beside = [
            Path(DATE, WINDOW, PATH.instance_id, 2),
            Path(DATE, WINDOW, "web-2", 0),
            Path(DATE, WINDOW + 1, PATH.instance_id, 0),
        ]
        for path in (PATH, *beside):
            store.apply(register(path, ONE, token=TOKEN))
        store.apply(drop(ONE), drop_tier(5), drop_tier(4))
        store.apply(drop_tier(5), drop_tier(4))
        assert [list(store.pointers(path)) for path in (PATH, *beside)] == [[], [ONE], [ONE], [ONE]]
        assert list(store.buckets(DATE, WINDOW, PATH.instance_id)) == [2]
        assert list(store.buckets(DATE, WINDOW, "web-2")) == [0]
        assert list(store.windows(DATE)) == [WINDOW, WINDOW + 1]

    @pytest.mark.parametrize(
        ("tier", "neighbour", "left"),
        [
            (4, PATH._replace(bucket=2), [2]),
            (3, PATH._replace(instance_id="web-2"), [(0, "web-2")]),
            (2, PATH._replace(window=WINDOW + 1), [WINDOW + 1]),
            (1, PATH._replace(date="2023-11-15"), ["2023-11-15"]),
        ],
    )
    def test_what_lies_below_a_neighbour_does_not_keep_a_place(
        self, store: Store, tier: int, neighbour: Path, left: list[object]
    ) -> None:
        store.apply(register(token=TOKEN, tiers=frozenset(range(1, tier + 1))), register(neighbour, OTHER))
        store.apply(drop_tier(tier))
        assert everything(store)[tier - 1] == left
        assert list(store.pointers(neighbour)) == [OTHER]

    @pytest.mark.parametrize("tier", [5, 4, 3, 2, 1])
    def test_only_a_registration_above_the_highest_drop_shows_where_timestamps_decide(
        self, store: Store, tier: int
    ) -> None:
        """On a tie the drop stands, and one that comes later with a lower timestamp lowers nothing."""
        store.apply(drop_tier(tier, at=OPENS_AT), drop_tier(tier, at=OPENS_AT - 7))
        store.apply(drop_tier(tier, at=OPENS_AT - 9))
        place = ALL[tier - 1]
        for at in (OPENS_AT - 2, OPENS_AT, OPENS_AT + 1):
            store.apply(register(PATH, ONE, token=TOKEN, tiers=frozenset({tier}), at=at, day_at=at))
            shows = store.fences_by_epoch or at > OPENS_AT
            assert everything(store)[tier - 1] == (place if shows else [])

    def test_an_instance_is_dropped_by_its_token_and_id(self, store: Store) -> None:
        for token, instance_id in ((5, PATH.instance_id), (5, "web-2"), (6, PATH.instance_id)):
            path = Path(DATE, WINDOW, instance_id, 0)
            store.apply(register(path, token=token, tiers=frozenset({3})))
        store.apply(drop_tier(3))
        found = list(store.instances(DATE, WINDOW, minimum=0, maximum=10))
        assert found == [(5, "web-2"), (6, PATH.instance_id)]

    @pytest.mark.parametrize("tier", [2, 1])
    def test_what_was_pruned_can_be_put_back(self, store: Store, tier: int) -> None:
        """A higher timestamp than that of the deletion brings the row back, as when the tier below is not empty."""
        store.apply(register(transaction_id=ONE, token=TOKEN))
        empty_down_to(store, 2)
        if tier == 1:
            store.apply(drop_tier(1))
        back = MIDNIGHT + 1
        store.apply(register(tiers=frozenset({tier}), at=back, day_at=back))
        assert list(store.windows(DATE)) == ([WINDOW] if tier == 2 else [])
        assert list(store.days(2023)) == [DATE]

    def test_a_registration_below_a_pruned_window_s_timestamp_shows_only_where_epochs_fence(self, store: Store) -> None:
        store.apply(register(transaction_id=ONE, token=TOKEN))
        empty_down_to(store, 2)
        for window in (WINDOW, WINDOW + 1):
            store.apply(register(PATH._replace(window=window), OTHER, token=TOKEN, tiers=frozenset({2})))
        assert list(store.windows(DATE)) == ([WINDOW, WINDOW + 1] if store.fences_by_epoch else [WINDOW + 1])

    def test_windows_are_read_from_one_to_another_both_included(self, store: Store) -> None:
        for window in (0, 9, 10, 11, 20, 21, LAST_WINDOW):
            store.apply(register(Path(DATE, window, "web-1", 0)))
        assert list(store.windows(DATE, minimum=10, maximum=20)) == [10, 11, 20]
        assert list(store.windows(DATE, minimum=12, maximum=19)) == []
        assert list(store.windows(DATE, minimum=11)) == [11, 20, 21, LAST_WINDOW]
        assert list(store.windows(DATE, minimum=22, maximum=LAST_WINDOW)) == [LAST_WINDOW]
        assert list(store.windows(DATE, maximum=9)) == [0, 9]

    def test_a_drop_touches_its_own_scope_only(self, store: Store, open_store: OpenStore) -> None:
        other = open_store(store.scope._replace(cluster="another"))
        for each in (store, other):
            each.apply(register(transaction_id=ONE, token=TOKEN))
        empty_down_to(store, 1)
        assert everything(store) == [[]] * 5
        assert everything(other) == ALL

    def test_a_bucket_of_many_is_emptied_by_the_ids_read_or_at_once(self, store: Store) -> None:
        pointers = [uuid4() for _ in range(300)]
        store.apply(*(register(transaction_id=pointer, token=TOKEN) for pointer in pointers))
        assert set(store.pointers(PATH)) == set(pointers)
        store.apply(*(drop(pointer) for pointer in pointers))
        store.apply(drop_tier(5))
        store.apply(drop_tier(4))
        assert list(store.pointers(PATH)) == []
        assert list(store.buckets(DATE, WINDOW, PATH.instance_id)) == []
