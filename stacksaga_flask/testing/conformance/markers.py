"""Conditional writes on markers: of callers at the same time one is applied, and all learn which."""

from __future__ import annotations

import threading
from collections.abc import Callable
from uuid import uuid4

import pytest
from msgspec.structs import replace

from stacksaga_flask.clock import SECOND
from stacksaga_flask.store.contract import Marker, MarkerOutcome, Store
from stacksaga_flask.testing.conformance.harness import Conformance, OpenStore, StoreHarness
from stacksaga_flask.testing.conformance.samples import claim, committed

APPLIED = MarkerOutcome(True, None)
CALLERS = 4


def all_at_once(calls: list[Callable[[], MarkerOutcome]]) -> list[MarkerOutcome]:
    """What each of the calls answers, made by threads that wait for one another."""
    together = threading.Barrier(len(calls))
    answers: list[MarkerOutcome | None] = [None] * len(calls)

    def run(number: int) -> None:
        together.wait()
        answers[number] = calls[number]()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [answer for answer in answers if answer is not None]


class MarkerConformance(Conformance):
    """Markers by themselves."""

    def test_a_marker_is_inserted_if_there_is_none(self, store: Store) -> None:
        key, marker = uuid4(), claim(result=b"\x00hash\x00")
        assert store.marker(key, marker.step_id) is None
        assert store.insert_marker(key, marker, ttl=30) == APPLIED
        assert store.marker(key, marker.step_id) == marker

    def test_a_second_insert_is_told_the_marker_that_stands_in_the_way(self, store: Store) -> None:
        key, marker = uuid4(), claim("first", result=b"\x00hash")
        store.insert_marker(key, marker, ttl=30)
        assert store.insert_marker(key, claim("second"), ttl=30) == MarkerOutcome(False, marker)
        assert store.marker(key, marker.step_id) == marker

    def test_markers_of_other_steps_and_transactions_do_not_stand_in_the_way(self, store: Store) -> None:
        key, other = uuid4(), uuid4()
        lease = Marker(step_id="charge#lease", execution_state="holder-2")
        assert store.insert_marker(key, claim(), ttl=30) == APPLIED
        assert store.insert_marker(key, lease, ttl=30) == APPLIED
        assert store.insert_marker(other, claim("other"), ttl=30) == APPLIED
        assert store.markers(key) == (claim(), lease)
        assert store.markers(other) == (claim("other"),)

    def test_all_markers_of_a_transaction_come_by_step_id(self, store: Store) -> None:
        key = uuid4()
        for step_id in ("ship", "#claim", "charge", "Reserve", "reserve"):
            store.insert_marker(key, committed(step_id, b"\x00" + step_id.encode()), ttl=None)
        expected = ("#claim", "Reserve", "charge", "reserve", "ship")
        assert store.markers(key) == tuple(committed(step_id, b"\x00" + step_id.encode()) for step_id in expected)

    def test_a_marker_is_replaced_if_its_state_is_the_expected_one(self, store: Store) -> None:
        key = uuid4()
        store.insert_marker(key, claim("lease-1"), ttl=30)
        done = replace(claim("COMMITTED"), result=b'{"paid": true}\x00')
        assert store.replace_marker(key, done, expected_state="lease-1", ttl=None) == APPLIED
        assert store.marker(key, "#claim") == done

    def test_a_marker_of_another_state_is_not_replaced_but_told(self, store: Store) -> None:
        key, standing = uuid4(), claim("lease-1", result=b"r")
        store.insert_marker(key, standing, ttl=30)
        outcome = store.replace_marker(key, claim("COMMITTED"), expected_state="lease-2", ttl=None)
        assert outcome == MarkerOutcome(False, standing)
        assert store.marker(key, "#claim") == standing

    def test_a_marker_that_is_not_there_is_neither_replaced_nor_deleted(self, store: Store) -> None:
        key = uuid4()
        store.insert_marker(key, committed("charge"), ttl=None)
        nothing = MarkerOutcome(False, None)
        assert store.replace_marker(key, claim("b"), expected_state="a", ttl=None) == nothing
        assert store.delete_marker(key, "#claim", expected_state="a") == nothing
        assert store.markers(key) == (committed("charge"),)

    def test_a_marker_is_deleted_if_its_state_is_the_expected_one_and_can_be_inserted_again(self, store: Store) -> None:
        key = uuid4()
        store.insert_marker(key, claim("first"), ttl=30)
        store.insert_marker(key, committed("charge"), ttl=None)
        assert store.delete_marker(key, "#claim", expected_state="first") == APPLIED
        assert store.markers(key) == (committed("charge"),)
        assert store.insert_marker(key, claim("second"), ttl=30) == APPLIED
        assert store.marker(key, "#claim") == claim("second")

    def test_a_marker_of_another_state_is_not_deleted_but_told(self, store: Store) -> None:
        key = uuid4()
        store.insert_marker(key, claim("first"), ttl=30)
        assert store.delete_marker(key, "#claim", expected_state="second") == MarkerOutcome(False, claim("first"))
        assert store.marker(key, "#claim") == claim("first")

    def test_of_inserts_at_the_same_time_one_is_applied_and_all_learn_which(
        self, store: Store, open_store: OpenStore
    ) -> None:
        key = uuid4()
        stores = [open_store(store.scope) for _ in range(CALLERS)]

        def insert(number: int) -> Callable[[], MarkerOutcome]:
            return lambda: stores[number].insert_marker(key, claim(f"holder-{number}"), ttl=30)

        answers = all_at_once([insert(number) for number in range(CALLERS)])
        winners = [number for number, answer in enumerate(answers) if answer.applied]
        assert len(winners) == 1
        winner = claim(f"holder-{winners[0]}")
        assert answers == [APPLIED if n == winners[0] else MarkerOutcome(False, winner) for n in range(CALLERS)]
        assert store.marker(key, "#claim") == winner

    def test_of_replacements_at_the_same_time_one_is_applied(self, store: Store) -> None:
        key = uuid4()
        store.insert_marker(key, claim("dead"), ttl=30)

        def replace_it(number: int) -> Callable[[], MarkerOutcome]:
            return lambda: store.replace_marker(key, claim(f"heir-{number}"), expected_state="dead", ttl=30)

        answers = all_at_once([replace_it(number) for number in range(CALLERS)])
        winners = [number for number, answer in enumerate(answers) if answer.applied]
        assert len(winners) == 1
        assert store.marker(key, "#claim") == claim(f"heir-{winners[0]}")

    @pytest.mark.parametrize("result", [None, b"{}", b"\x00\xff\x00", b"x" * 100_000])
    def test_the_result_of_a_marker_is_read_as_written(self, store: Store, result: bytes | None) -> None:
        key = uuid4()
        store.insert_marker(key, committed("charge", result), ttl=None)
        assert store.marker(key, "charge") == committed("charge", result)


class LifetimeConformance(Conformance):
    """Times to live. A marker may go up to a second early (H3 of the schedules), and never late."""

    def test_a_marker_is_gone_after_its_time_to_live_and_not_long_before(
        self, store: Store, harness: StoreHarness
    ) -> None:
        key = uuid4()
        store.insert_marker(key, claim("first"), ttl=4)
        harness.advance(2 * SECOND)
        assert store.marker(key, "#claim") == claim("first")
        assert store.insert_marker(key, claim("second"), ttl=4) == MarkerOutcome(False, claim("first"))
        harness.advance(2 * SECOND)
        assert store.marker(key, "#claim") is None
        assert store.markers(key) == ()

    def test_an_expired_marker_is_neither_replaced_nor_deleted_but_stands_in_nobodys_way(
        self, store: Store, harness: StoreHarness
    ) -> None:
        key = uuid4()
        store.insert_marker(key, claim("dead"), ttl=1)
        harness.advance(1 * SECOND)
        nothing = MarkerOutcome(False, None)
        assert store.replace_marker(key, claim("heir"), expected_state="dead", ttl=30) == nothing
        assert store.delete_marker(key, "#claim", expected_state="dead") == nothing
        assert store.insert_marker(key, claim("heir"), ttl=30) == APPLIED
        assert store.marker(key, "#claim") == claim("heir")

    def test_a_marker_without_a_time_to_live_stays(self, store: Store, harness: StoreHarness) -> None:
        key = uuid4()
        store.insert_marker(key, committed("charge"), ttl=None)
        store.insert_marker(key, claim(), ttl=1)
        harness.advance(2 * SECOND)
        assert store.markers(key) == (committed("charge"),)

    def test_replacing_a_marker_with_itself_renews_it(self, store: Store, harness: StoreHarness) -> None:
        key = uuid4()
        store.insert_marker(key, claim(), ttl=3)
        harness.advance(1 * SECOND)
        assert store.replace_marker(key, claim(), expected_state="holder-1", ttl=5) == APPLIED
        harness.advance(2 * SECOND)
        assert store.marker(key, "#claim") == claim()
        harness.advance(3 * SECOND)
        assert store.marker(key, "#claim") is None

    def test_a_lease_replaced_without_a_time_to_live_stays(self, store: Store, harness: StoreHarness) -> None:
        key = uuid4()
        store.insert_marker(key, Marker(step_id="charge", execution_state="lease-1"), ttl=2)
        store.replace_marker(key, committed("charge", b"paid"), expected_state="lease-1", ttl=None)
        harness.advance(3 * SECOND)
        assert store.marker(key, "charge") == committed("charge", b"paid")
