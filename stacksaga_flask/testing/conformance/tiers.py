"""What a registration writes to each tier of the directory, and how each is read."""

from __future__ import annotations

from uuid import UUID, uuid4

import pytest

from stacksaga_flask.store.contract import Path, Store
from stacksaga_flask.testing.conformance.harness import Conformance, StoreHarness
from stacksaga_flask.testing.conformance.samples import DATE, PATH, WINDOW, register

LOWEST, HIGHEST = -(2**63), 2**63 - 1
SOMEBODY = UUID("00000000-0000-4000-8000-000000000001")


def everything(store: Store) -> list[object]:
    """What the five tiers hold on the way to `PATH`, `register`'s default."""
    return [
        list(store.days(2023)),
        list(store.windows(DATE)),
        list(store.instances(DATE, WINDOW, minimum=LOWEST, maximum=HIGHEST)),
        list(store.buckets(DATE, WINDOW, PATH.instance_id)),
        list(store.pointers(PATH)),
    ]


REGISTERED: list[object] = [[DATE], [WINDOW], [(5, PATH.instance_id)], [PATH.bucket], [SOMEBODY]]


class TierConformance(Conformance):
    """The five tiers, one by one."""

    def test_a_registration_is_found_on_the_way_down(self, store: Store) -> None:
        assert everything(store) == [[]] * 5
        store.apply(register(transaction_id=SOMEBODY, token=5))
        assert everything(store) == REGISTERED
        assert store.has_pointer(PATH, SOMEBODY)

    @pytest.mark.parametrize("tier", [1, 2, 3, 4, 5])
    def test_a_registration_of_one_tier_writes_that_tier_only(self, store: Store, tier: int) -> None:
        store.apply(register(transaction_id=SOMEBODY, token=5, tiers=frozenset({tier})))
        assert everything(store) == [found if number == tier else [] for number, found in enumerate(REGISTERED, 1)]
        assert store.has_pointer(PATH, SOMEBODY) is (tier == 5)

    def test_registrations_tier_by_tier_add_up(self, store: Store) -> None:
        for tiers in ({5}, {4, 3}, {2}, {1}):
            store.apply(register(transaction_id=SOMEBODY, token=5, tiers=frozenset(tiers)))
        assert everything(store) == REGISTERED

    def test_the_same_registration_twice_is_one(self, store: Store) -> None:
        registration = register(transaction_id=SOMEBODY, token=5)
        store.apply(registration, registration)
        store.apply(registration)
        assert everything(store) == REGISTERED

    def test_days_rise_and_are_those_of_the_year(self, store: Store) -> None:
        for date in ("2024-02-29", "2023-12-31", "2024-01-01", "2024-12-31", "2025-01-01"):
            store.apply(register(Path(date, 0, "web-1", 0)))
        assert list(store.days(2024)) == ["2024-01-01", "2024-02-29", "2024-12-31"]
        assert list(store.days(2023)) == ["2023-12-31"]
        assert list(store.days(2025)) == ["2025-01-01"]
        assert list(store.days(2022)) == []

    def test_windows_rise_and_are_those_of_the_date(self, store: Store) -> None:
        for window in (1439, 9, 0, 10, 17_279):
            store.apply(register(Path(DATE, window, "web-1", 0)))
        store.apply(register(Path("2023-11-15", 7, "web-1", 0)))
        assert list(store.windows(DATE)) == [0, 9, 10, 1439, 17_279]
        assert list(store.windows("2023-11-15")) == [7]

    def test_instances_rise_by_token_and_id_and_are_those_of_the_window(self, store: Store) -> None:
        instances = [(7, "web-b"), (HIGHEST, "web-z"), (7, "web-a"), (-3, "web-c"), (LOWEST, "web-y"), (0, "web-d")]
        for token, instance_id in instances:
            store.apply(register(Path(DATE, WINDOW, instance_id, 0), token=token))
        store.apply(register(Path(DATE, WINDOW + 1, "web-e", 0), token=1))
        assert list(store.instances(DATE, WINDOW, minimum=LOWEST, maximum=HIGHEST)) == sorted(instances)
        assert list(store.instances(DATE, WINDOW + 1, minimum=LOWEST, maximum=HIGHEST)) == [(1, "web-e")]

    @pytest.mark.parametrize(
        ("minimum", "maximum", "expected"),
        [
            (LOWEST, HIGHEST, [LOWEST, -1, 0, 1, HIGHEST]),
            (LOWEST, LOWEST, [LOWEST]),
            (HIGHEST, HIGHEST, [HIGHEST]),
            (-1, 1, [-1, 0, 1]),
            (0, HIGHEST, [0, 1, HIGHEST]),
            (LOWEST, -1, [LOWEST, -1]),
            (2, HIGHEST - 1, []),
        ],
    )
    def test_both_ends_of_a_token_range_belong_to_it(
        self, store: Store, minimum: int, maximum: int, expected: list[int]
    ) -> None:
        for token in (0, HIGHEST, -1, LOWEST, 1):
            store.apply(register(Path(DATE, WINDOW, f"web{token}", 0), token=token))
        found = list(store.instances(DATE, WINDOW, minimum=minimum, maximum=maximum))
        assert found == [(token, f"web{token}") for token in expected]
        assert len(list(store.instances(DATE, WINDOW, minimum=LOWEST, maximum=HIGHEST))) == 5

    def test_buckets_rise_and_are_those_of_the_instance_in_the_window(self, store: Store) -> None:
        for bucket in (10, 1, 0, 9, 3):
            store.apply(register(Path(DATE, WINDOW, "web-1", bucket)))
        store.apply(register(Path(DATE, WINDOW, "web-2", 4)), register(Path(DATE, WINDOW + 1, "web-1", 5)))
        assert list(store.buckets(DATE, WINDOW, "web-1")) == [0, 1, 3, 9, 10]
        assert list(store.buckets(DATE, WINDOW, "web-2")) == [4]
        assert list(store.buckets(DATE, WINDOW + 1, "web-1")) == [5]

    def test_windows_of_more_than_a_page_are_all_read(self, store: Store, harness: StoreHarness) -> None:
        windows = list(range(harness.more_than_a_page))
        store.apply(*(register(Path(DATE, w, "web-1", 0), SOMEBODY, tiers=frozenset({2})) for w in windows))
        assert list(store.windows(DATE)) == windows

    def test_instances_of_more_than_a_page_are_all_read(self, store: Store, harness: StoreHarness) -> None:
        instances = [(n * 10**12 - 2**62, f"web-{n}") for n in range(harness.more_than_a_page)]
        tier = frozenset({3})
        store.apply(*(register(Path(DATE, WINDOW, name, 0), token=token, tiers=tier) for token, name in instances))
        assert list(store.instances(DATE, WINDOW, minimum=LOWEST, maximum=HIGHEST)) == instances

    def test_buckets_of_more_than_a_page_are_all_read(self, store: Store, harness: StoreHarness) -> None:
        buckets = list(range(harness.more_than_a_page))
        store.apply(*(register(Path(DATE, WINDOW, "web-1", b), SOMEBODY, tiers=frozenset({4})) for b in buckets))
        assert list(store.buckets(DATE, WINDOW, "web-1")) == buckets

    def test_days_are_all_read_to_the_end_of_the_year(self, store: Store) -> None:
        dates = [f"2023-{month:02}-{day:02}" for month in range(1, 13) for day in range(1, 29)]
        store.apply(*(register(Path(date, 0, "web-1", 0), uuid4(), tiers=frozenset({1})) for date in dates))
        assert list(store.days(2023)) == dates
