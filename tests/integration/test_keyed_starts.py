"""Starts with an `Idempotency-Key` (R17)."""

from __future__ import annotations

from decimal import Decimal

import pytest

from stacksaga_flask import KeyConflict, NotStarted, RunningStatus, StartUnknown
from stacksaga_flask.clock import SECOND
from stacksaga_flask.engine.start import prepare, transaction_id_of
from stacksaga_flask.saga.payload import canonical_hash
from stacksaga_flask.store.contract import Expected, WriteTransaction
from tests.support.faults import afterwards, first, lost, unavailable, unknown
from tests.support.shop import CARD_REFUSED, UNAVAILABLE, Bench, Order

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
    transaction_id, start_hash = transaction_id_of("k"), canonical_hash("place-order", data)
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
