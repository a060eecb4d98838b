"""Starts with an `Idempotency-Key` (R17)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from stacksaga_flask import (
    Engine,
    KeyConflict,
    NotStarted,
    Observer,
    RunningStatus,
    Saga,
    StartUnknown,
    StateChange,
    StoreUnavailable,
    read_settings,
)
from stacksaga_flask.clock import SECOND, SystemTime
from stacksaga_flask.engine.start import prepare, start_hash_of, transaction_id_of
from stacksaga_flask.store.contract import Expected, WriteTransaction
from stacksaga_flask.store.opening import open_store
from tests.support.faults import FaultyStore, afterwards, first, lost, unavailable, unknown
from tests.support.shop import CARD_REFUSED, UNAVAILABLE, Bench, Order, Shop, place_order_saga

pytestmark = pytest.mark.varies

DEAR = Order(total=Decimal("99.00"))


def test_the_same_key_and_payload_is_the_same_transaction_also_after_the_end() -> None:
    bench = Bench()
    one = bench.engine.run(bench.saga, Order(), key="k")
    bench.time.advance(3600 * SECOND)
    two = bench.engine.run(bench.saga, Order(), key="k")
    assert one.transaction_id == two.transaction_id == transaction_id_of("k")
    assert two.result == {"payment": "p-1"}
    assert bench.shop.calls == ["reserve", "charge", "ship"]


def test_the_order_of_a_keyed_start_is_read_claim_tiers_read_row() -> None:
    bench = Bench()
    bench.engine.run(bench.saga, Order(), key="k")
    assert bench.store.calls[:5] == ["read", "insert_marker", "watchdog", "read", "row PROCESSING"]


def test_another_payload_under_the_same_key_is_a_conflict_also_after_the_end() -> None:
    bench = Bench()
    bench.engine.run(bench.saga, Order(), key="k")
    with pytest.raises(KeyConflict, match="another saga or payload"):
        bench.engine.run(bench.saga, DEAR, key="k")


def test_a_compensated_transaction_is_answered_with_its_reason_again() -> None:
    bench = Bench()
    bench.shop.errors["charge"] = [CARD_REFUSED]
    bench.engine.run(bench.saga, Order(), key="k")
    again = bench.engine.run(bench.saga, Order(), key="k")
    assert (again.status, again.reason) == (RunningStatus.REVERT_COMPLETED, "card refused")
    assert bench.shop.calls == ["reserve", "charge", "release"]


def test_a_paused_transaction_is_not_started_again() -> None:
    bench = Bench()
    bench.shop.errors["charge"] = [UNAVAILABLE]
    bench.engine.run(bench.saga, Order(), key="k")
    assert bench.engine.run(bench.saga, Order(), key="k").status is RunningStatus.PROCESS_PAUSED
    assert bench.shop.calls == ["reserve", "charge"]


def test_a_second_request_while_the_first_runs_is_told_that_it_is_worked_on() -> None:
    bench = Bench()
    other = bench.another_engine()
    seen: list[RunningStatus] = []
    bench.shop.during["charge"] = lambda: seen.append(other.run(bench.saga, Order(), key="k").status)
    assert bench.engine.run(bench.saga, Order(), key="k").completed
    assert seen == [RunningStatus.PROCESSING]
    assert bench.shop.calls == ["reserve", "charge", "ship"]


def test_a_request_that_meets_the_claim_waits_for_the_row() -> None:
    bench = Bench()
    node, data = bench.engine.node(), bench.saga.codec.encode(Order())
    transaction_id, start_hash = transaction_id_of("k"), start_hash_of(bench.saga, data)
    assert node.claims.take(transaction_id, start_hash=start_hash).claim is not None
    prepared = prepare(node, bench.saga, data, transaction_id, start_hash=start_hash, leave=False)
    row = WriteTransaction(row=prepared.row, timestamp=prepared.row.created_at, expected=Expected.ABSENT)
    bench.store.fault(
        "read", afterwards(lambda: None), afterwards(lambda: None), first(lambda: bench.memory.apply(row))
    )
    found = bench.another_engine().run(bench.saga, Order(), key="k")
    assert (found.transaction_id, found.status) == (transaction_id, RunningStatus.PROCESSING)
    assert bench.shop.calls == []


def test_a_request_that_meets_a_claim_with_another_hash_is_a_conflict() -> None:
    bench = Bench()
    other = bench.another_engine()
    conflicts: list[KeyConflict] = []

    def second_request() -> None:
        with pytest.raises(KeyConflict) as caught:
            other.run(bench.saga, DEAR, key="k")
        conflicts.append(caught.value)

    bench.store.fault("watchdog", first(second_request))
    bench.engine.run(bench.saga, Order(), key="k")
    assert len(conflicts) == 1


def test_a_claim_whose_row_never_comes_is_told_as_unknown_and_the_key_goes_on_later() -> None:
    bench = Bench()
    bench.engine.node().claims.take(transaction_id_of("k"), start_hash=None)
    with pytest.raises(StartUnknown):
        bench.engine.run(bench.saga, Order(), key="k")
    bench.time.advance(31 * SECOND)
    assert bench.engine.run(bench.saga, Order(), key="k").completed


def test_a_claim_whose_answer_was_lost_is_found_by_its_holder_id() -> None:
    bench = Bench()
    bench.store.fault("insert_marker", lost)
    assert bench.engine.run(bench.saga, Order(), key="k").completed
    assert bench.store.calls[1:3] == ["insert_marker", "marker"]


def test_a_claim_that_was_not_applied_starts_nothing_and_the_key_may_be_used_again() -> None:
    bench = Bench()
    bench.store.fault("insert_marker", unknown)
    with pytest.raises(StartUnknown):
        bench.engine.run(bench.saga, Order(), key="k")
    assert bench.shop.calls == []
    assert bench.engine.run(bench.saga, Order(), key="k").completed


def test_tiers_that_were_not_acknowledged_start_nothing_and_give_the_claim_back() -> None:
    bench = Bench()
    bench.engine.node()
    bench.store.fault("watchdog", unavailable)
    with pytest.raises(NotStarted):
        bench.engine.run(bench.saga, Order(), key="k")
    assert bench.memory.read(transaction_id_of("k")) is None
    assert bench.engine.run(bench.saga, Order(), key="k").completed


def test_a_row_that_was_not_acknowledged_is_repeated_within_trust() -> None:
    bench = Bench()
    bench.store.fault("row PROCESSING", lost, unknown)
    assert bench.engine.run(bench.saga, Order(), key="k").completed
    assert bench.shop.calls == ["reserve", "charge", "ship"]


def test_a_row_that_stays_unknown_is_not_closed_so_that_the_same_key_goes_on_with_it() -> None:
    bench = Bench()
    bench.store.fault("row PROCESSING", lost, *[unavailable] * 50)
    with pytest.raises(StartUnknown, match="same Idempotency-Key") as caught:
        bench.engine.run(bench.saga, Order(), key="k")
    assert caught.value.transaction_id == transaction_id_of("k")
    assert bench.shop.calls == []
    stored = bench.memory.read(transaction_id_of("k"))
    assert stored is not None
    assert stored.row.watchdog is not None
    assert bench.memory.has_pointer(stored.row.watchdog, transaction_id_of("k"))
    assert bench.engine.run(bench.saga, Order(), key="k").status is RunningStatus.PROCESSING


def test_a_terminal_status_whose_watchdog_is_still_there_is_confirmed_before_it_is_answered() -> None:
    bench = Bench()
    bench.store.fault("delete watchdog", unavailable)
    bench.engine.run(bench.saga, Order(), key="k")
    bench.time.advance(31 * SECOND)
    before = len(bench.store.calls)
    assert bench.engine.run(bench.saga, Order(), key="k").completed
    assert bench.store.calls[before:] == [
        "read",
        "has_pointer",
        "insert_marker",
        "read",
        "row PROCESS_COMPLETED",
        "delete watchdog",
        "delete_marker",
    ]


def test_a_terminal_status_that_cannot_be_confirmed_is_told_as_worked_on() -> None:
    bench = Bench()
    bench.store.fault("delete watchdog", unavailable)
    bench.engine.run(bench.saga, Order(), key="k")
    bench.time.advance(31 * SECOND)
    bench.store.fault("insert_marker", unavailable)
    assert bench.engine.run(bench.saga, Order(), key="k").status is RunningStatus.PROCESSING


def test_a_keyed_start_uses_its_own_claim_to_settle_an_end_that_was_lost() -> None:
    bench = Bench()
    bench.store.fault("row PROCESS_COMPLETED", unknown)
    assert bench.engine.run(bench.saga, Order(), key="k").completed
    assert bench.store.calls.count("insert_marker") == 1
    assert "replace_marker" in bench.store.calls


def test_an_observer_slower_than_the_claims_trust_changes_nothing() -> None:
    class Slow(Observer):
        def state_changed(self, change: StateChange) -> None:
            if change.before is None:
                bench.time.advance(40 * SECOND)

    bench = Bench()
    bench.engine.observer = Slow()
    assert bench.engine.run(bench.saga, Order(), key="k").completed


def test_a_payload_of_another_version_is_not_compared_with() -> None:
    bench = Bench()
    one = bench.engine.run(bench.saga, Order(), key="k")
    newer: Saga[dict[str, Any], None] = Saga("place-order", payload=dict, payload_version=2)
    newer.pivot(name="ship")(lambda payload, context: None)
    deployed = Engine(bench.settings, sagas=[newer], open_store=lambda: bench.store, time_source=bench.time)
    assert deployed.run(newer, {"sku": "book"}, key="k").transaction_id == one.transaction_id


def test_a_start_that_certainly_wrote_nothing_may_be_repeated_at_once() -> None:
    bench = Bench()
    bench.store.fault("row PROCESSING", *[unavailable] * 50)
    with pytest.raises(NotStarted):
        bench.engine.run(bench.saga, Order(), key="k")
    bench.store.clear()
    assert bench.engine.run(bench.saga, Order(), key="k").completed


def test_a_late_start_does_not_overwrite_the_row_of_another_one_with_the_same_key(tmp_path: Path) -> None:
    """X takes the claim and is held up until it has expired; Y starts and completes; X goes on (C5)."""
    shop = Shop()
    saga = place_order_saga(shop)
    settings = read_settings({"STACKSAGA_STORE": f"sqlite:///{tmp_path}/shop.db"}, application_name="shop")
    other = Engine(settings, sagas=[saga])
    store = FaultyStore(open_store(settings, SystemTime()))
    held_up = Engine(settings, sagas=[saga], open_store=lambda: store)

    def overtaken(call: object) -> None:
        with closing(sqlite3.connect(tmp_path / "shop.db")) as connection, connection:
            connection.execute("DELETE FROM es_execution_markers")
        assert other.run(saga, Order(), key="k").completed
        raise StoreUnavailable("held up")

    store.fault("row PROCESSING", overtaken)
    assert held_up.run(saga, Order(), key="k").completed
    assert shop.calls == ["reserve", "charge", "ship"]
    found = other.find_keyed("k")
    assert found is not None
    assert found.completed


def test_a_start_slower_than_the_claims_trust_runs_no_step() -> None:
    bench = Bench()
    bench.store.fault("row PROCESSING", afterwards(lambda: bench.time.advance(28 * SECOND)))
    with pytest.raises(StartUnknown):
        bench.engine.run(bench.saga, Order(), key="k")
    assert bench.shop.calls == []


def test_a_keyed_start_can_be_left_to_the_daemon() -> None:
    bench = Bench()
    one = bench.engine.start(bench.saga, Order(), key="k")
    two = bench.engine.start(bench.saga, Order(), key="k")
    assert one.transaction_id == two.transaction_id
    assert two.status is RunningStatus.PROCESS_PAUSED
