"""Re-invocation: what was found is claimed, read and gone on with, or left, confirmed or frozen (R4, R6)."""

from __future__ import annotations

import logging
from datetime import datetime, timezone
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from stacksaga_flask import Engine, ManualTime, Rejected, Saga
from stacksaga_flask.clock import SECOND
from stacksaga_flask.directory.writer import PointerKind
from stacksaga_flask.engine.circuit import Circuit
from stacksaga_flask.engine.reinvoke import Found, Reinvocation
from stacksaga_flask.errors import ClockSkew, OutcomeUnknown
from stacksaga_flask.store.contract import Marker, Path, RunningStatus, TransactionRow, WriteTransaction
from tests.support.faults import first, lost, unavailable, unknown
from tests.support.shop import CARD_REFUSED, UNAVAILABLE, Bench, Order

MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

COMPLETED = Reinvocation(True, "completed")
COMPENSATED = Reinvocation(True, "compensated")
PAUSED = Reinvocation(True, "paused")
FROZEN = Reinvocation(True, "frozen")


class Killed(BaseException):
    """The process ends here."""


def row_of(bench: Bench, transaction_id: UUID) -> TransactionRow:
    stored = bench.memory.read(transaction_id)
    assert stored is not None
    return stored.row


def paused(bench: Bench, step: str = "charge") -> TransactionRow:
    """A transaction that was parked since a participant did not answer, and whose retry window has been sealed."""
    bench.shop.errors[step] = [UNAVAILABLE]
    transaction = bench.engine.run(bench.saga, Order())
    row = row_of(bench, transaction.transaction_id)
    assert row.running_status.value.endswith("PAUSED")
    bench.time.advance(2 * MINUTE)
    bench.shop.calls.clear()
    return row


def killed(bench: Bench, step: str = "charge") -> TransactionRow:
    """A transaction whose process was killed in a step; nothing of it can be written any more."""

    def kill() -> None:
        raise Killed

    bench.shop.during[step] = kill
    with pytest.raises(Killed):
        bench.engine.run(bench.saga, Order())
    del bench.shop.during[step]
    bench.shop.calls.clear()
    return row_of(bench, bench.shop.transaction_ids[-1])


def retry_of(row: TransactionRow) -> Found:
    assert row.retry is not None
    return Found(row.retry)


def watchdog_of(row: TransactionRow) -> Found:
    assert row.watchdog is not None
    return Found(row.watchdog)


def held_claims(bench: Bench, transaction_id: UUID) -> list[str]:
    return [marker.step_id for marker in bench.memory.markers(transaction_id) if marker.step_id == "#claim"]


def node_engine(bench: Bench) -> Engine:
    return bench.another_engine()


def test_a_paused_transaction_goes_on_where_it_stopped() -> None:
    bench = Bench()
    row = paused(bench)
    assert node_engine(bench).reinvoke(row.transaction_id, retry_of(row)) == COMPLETED
    assert bench.shop.calls == ["charge", "ship"], "a committed step is skipped"
    now = row_of(bench, row.transaction_id)
    assert (now.running_status, now.epoch) == (RunningStatus.PROCESS_COMPLETED, 1)
    assert len(bench.shop.keys["charge"]) == 1, "the second call carries the first one's key"
    assert bench.memory.markers(row.transaction_id) == ()
    assert row.watchdog is not None
    assert not bench.memory.has_pointer(row.watchdog, row.transaction_id)


def test_the_order_of_a_reinvocation_is_claim_row_steps() -> None:
    bench = Bench()
    row = paused(bench, "ship")
    bench.store.calls.clear()
    node_engine(bench).reinvoke(row.transaction_id, retry_of(row))
    assert bench.store.calls == [
        "insert_marker",
        "read",
        "row PROCESSING",
        "row PROCESS_COMPLETED",
        "delete watchdog",
    ]


def test_a_killed_transaction_is_armed_first_and_runs_the_step_again_with_its_key() -> None:
    bench = Bench()
    row = killed(bench)
    bench.time.advance(11 * HOUR)
    bench.store.calls.clear()
    assert node_engine(bench).reinvoke(row.transaction_id, watchdog_of(row)) == COMPLETED
    assert bench.store.calls[:4] == ["insert_marker", "read", "watchdog", "row PROCESSING"]
    assert bench.shop.calls == ["charge", "ship"]
    assert len(bench.shop.keys["charge"]) == 1


def test_a_step_that_may_have_been_done_is_reverted_first() -> None:
    bench = Bench()
    row = killed(bench)
    bench.time.advance(11 * HOUR)
    bench.shop.errors["charge"] = [CARD_REFUSED]
    assert node_engine(bench).reinvoke(row.transaction_id, watchdog_of(row)) == COMPENSATED
    assert bench.shop.calls == ["charge", "refund", "release"]


def test_a_killed_compensation_goes_on_backwards() -> None:
    bench = Bench()
    bench.shop.errors["charge"] = [CARD_REFUSED]
    row = killed(bench, "release")
    bench.time.advance(11 * HOUR)
    assert node_engine(bench).reinvoke(row.transaction_id, watchdog_of(row)) == COMPENSATED
    assert bench.shop.calls == ["release"]


def test_a_live_starter_is_left_alone() -> None:
    bench = Bench()
    row = killed(bench)
    assert node_engine(bench).reinvoke(row.transaction_id, Found()) == (False, "left to its owner")
    assert bench.shop.calls == []
    assert held_claims(bench, row.transaction_id) == []
    assert row_of(bench, row.transaction_id) == row


def test_what_another_has_claimed_keeps_its_bucket() -> None:
    bench = Bench()
    row = paused(bench)
    bench.memory.insert_marker(row.transaction_id, Marker(step_id="#claim", execution_state="other/1 -"), ttl=30)
    assert node_engine(bench).reinvoke(row.transaction_id, retry_of(row)) == (False, "claimed by another")
    assert bench.shop.calls == []
    bench.time.advance(31 * SECOND)
    assert node_engine(bench).reinvoke(row.transaction_id, retry_of(row)) == COMPLETED


def test_a_superseded_pointer_is_not_run() -> None:
    bench = Bench()
    row = paused(bench)
    bench.shop.errors["charge"] = [UNAVAILABLE]
    assert node_engine(bench).reinvoke(row.transaction_id, retry_of(row)) == PAUSED
    bench.shop.calls.clear()
    assert node_engine(bench).reinvoke(row.transaction_id, retry_of(row)) == (True, "superseded")
    assert bench.shop.calls == []
    assert held_claims(bench, row.transaction_id) == []


def test_a_retry_pointer_whose_pause_was_never_recorded_hands_the_transaction_over() -> None:
    """The starter's right ended at the fence of the pointer, though the row does not name it (C7)."""
    bench = Bench()
    row = killed(bench)
    node = bench.engine.node()
    pointer = Path(*node.grid.ahead(node.clock.now(), 1), node.instance_id, PointerKind.RETRY)
    bench.time.advance(2 * MINUTE)
    assert node_engine(bench).reinvoke(row.transaction_id, Found(pointer)) == COMPLETED


def test_attempts_and_windows_go_on_over_restarts() -> None:
    bench = Bench()
    row = paused(bench)
    for attempt in (2, 3):
        bench.shop.errors["charge"] = [UNAVAILABLE]
        assert node_engine(bench).reinvoke(row.transaction_id, retry_of(row)) == PAUSED
        row = row_of(bench, row.transaction_id)
        assert (row.attempt, row.epoch) == (attempt, attempt - 1)
        bench.time.advance(2 * MINUTE)


def test_a_terminal_transaction_is_confirmed_under_the_claim() -> None:
    bench = Bench()
    transaction = bench.engine.run(bench.saga, Order())
    row = row_of(bench, transaction.transaction_id)
    bench.time.advance(11 * HOUR)
    bench.store.calls.clear()
    assert node_engine(bench).reinvoke(row.transaction_id, watchdog_of(row)) == COMPLETED
    assert bench.store.calls[:4] == ["insert_marker", "read", "row PROCESS_COMPLETED", "delete watchdog"]
    stored = bench.memory.read(row.transaction_id)
    assert stored is not None
    assert stored.written_at >= bench.time.wall() - SECOND
    assert stored.row == row


def test_a_pointer_without_a_row_hides_a_late_start_but_not_a_new_one() -> None:
    bench = Bench()
    transaction_id = uuid4()
    node = bench.engine.node()
    pointer = Path(*node.grid.ahead(node.clock.now(), 600), node.instance_id, PointerKind.WATCHDOG)
    late = killed(bench)
    bench.time.advance(11 * HOUR)
    assert node_engine(bench).reinvoke(transaction_id, Found(pointer)) == (True, "no row")
    start = replace(late, transaction_id=transaction_id)
    fence = node.grid.fence(pointer)
    bench.memory.apply(WriteTransaction(row=start, timestamp=fence - 1))
    assert bench.memory.read(transaction_id) is None
    bench.memory.apply(WriteTransaction(row=start, timestamp=fence + 1))
    assert bench.memory.read(transaction_id) is not None


# -- frozen ----------------------------------------------------------------------------------------------------


def test_what_is_over_its_lifetime_is_frozen_with_what_to_do() -> None:
    bench = Bench()
    row = paused(bench)
    bench.time.advance(25 * HOUR)
    assert node_engine(bench).reinvoke(row.transaction_id, retry_of(row)) == FROZEN
    now = row_of(bench, row.transaction_id)
    assert now.status_before_freezing is RunningStatus.PROCESS_PAUSED
    assert now.reason is not None
    assert "lifetime" in now.reason
    assert "restore" in now.reason
    assert [frozen.transaction_id for frozen in bench.memory.frozen()] == [row.transaction_id]
    assert bench.shop.calls == []
    assert held_claims(bench, row.transaction_id) == []


def test_a_domain_may_try_once_more_before_freezing() -> None:
    for errors, outcome in (([], COMPLETED), ([UNAVAILABLE], FROZEN)):
        bench = Bench(try_after_lifetime=True)
        row = paused(bench)
        bench.time.advance(25 * HOUR)
        bench.shop.errors["charge"] = [*errors]
        assert node_engine(bench).reinvoke(row.transaction_id, retry_of(row)) == outcome


def test_compensation_does_not_age() -> None:
    bench = Bench()
    bench.shop.errors["charge"] = [CARD_REFUSED]
    row = paused(bench, "release")
    assert row.running_status is RunningStatus.REVERT_PAUSED
    bench.time.advance(25 * HOUR)
    assert node_engine(bench).reinvoke(row.transaction_id, retry_of(row)) == COMPENSATED


@pytest.mark.parametrize(("after", "outcome"), [(-SECOND, COMPLETED), (SECOND, FROZEN)])
def test_what_lies_before_the_lookback_days_is_frozen(after: int, outcome: Reinvocation) -> None:
    bench = Bench(transaction_lifetime="30d")
    row = paused(bench)
    assert row.retry is not None
    assert row.retry.date == "2023-11-14"
    midnight = int(datetime(2023, 11, 17, tzinfo=timezone.utc).timestamp()) * SECOND
    bench.time.advance(midnight - bench.time.wall() + after)
    assert node_engine(bench).reinvoke(row.transaction_id, retry_of(row)) == outcome
    frozen_for = row_of(bench, row.transaction_id).reason or ""
    assert ("STACKSAGA_LOOKBACK_DAYS" in frozen_for) is (outcome is FROZEN)


def test_an_unknown_saga_is_frozen() -> None:
    bench = Bench()
    row = paused(bench)
    other = Engine(bench.settings, open_store=lambda: bench.store, time_source=bench.time)
    assert other.reinvoke(row.transaction_id, retry_of(row)) == FROZEN
    assert "'place-order' is not registered" in (row_of(bench, row.transaction_id).reason or "")


def test_a_renamed_step_is_frozen() -> None:
    bench = Bench()
    row = paused(bench)
    renamed: Saga[Order, None] = Saga("place-order", payload=Order)

    @renamed.step(name="hold")
    def hold(order: Order, context: object) -> None:
        raise AssertionError("it must not run")

    @hold.revert
    def let_go(order: Order, context: object) -> None:
        raise AssertionError("it must not run")

    other = Engine(bench.settings, sagas=[renamed], open_store=lambda: bench.store, time_source=bench.time)
    assert other.reinvoke(row.transaction_id, retry_of(row)) == FROZEN
    assert "has no step 'reserve' any more" in (row_of(bench, row.transaction_id).reason or "")


def test_a_damaged_payload_is_frozen_and_kept_as_it_is() -> None:
    bench = Bench()
    row = paused(bench)
    damaged = replace(row, payload=b'{"sku": 1')
    bench.memory.apply(WriteTransaction(row=damaged, timestamp=bench.time.wall()))
    assert node_engine(bench).reinvoke(row.transaction_id, retry_of(row)) == FROZEN
    assert row_of(bench, row.transaction_id).payload == b'{"sku": 1'


def test_a_rejected_revert_is_frozen_and_a_pointer_to_it_is_confirmed() -> None:
    bench = Bench()
    bench.shop.errors["charge"] = [CARD_REFUSED]
    row = paused(bench, "release")
    bench.shop.errors["release"] = [Rejected("no such reservation")]
    assert node_engine(bench).reinvoke(row.transaction_id, retry_of(row)) == FROZEN
    frozen = row_of(bench, row.transaction_id)
    bench.time.advance(11 * HOUR)
    assert node_engine(bench).reinvoke(row.transaction_id, watchdog_of(row)) == FROZEN
    assert row_of(bench, row.transaction_id) == frozen
    (listed,) = bench.memory.frozen()
    assert listed.reason == frozen.reason


# -- passing failures ------------------------------------------------------------------------------------------


def test_a_domain_may_turn_a_passing_failure_into_compensation() -> None:
    bench = Bench(compensate_after_windows=5)
    row = paused(bench)
    bench.shop.errors["charge"] = [UNAVAILABLE]
    assert node_engine(bench).reinvoke(row.transaction_id, retry_of(row)) == PAUSED, "2 of 5 windows have passed"
    row = row_of(bench, row.transaction_id)
    bench.time.advance(3 * MINUTE)
    bench.shop.calls.clear()
    bench.shop.errors["charge"] = [UNAVAILABLE]
    assert node_engine(bench).reinvoke(row.transaction_id, retry_of(row)) == COMPENSATED
    assert bench.shop.calls == ["charge", "refund", "release"]


def test_after_ten_failures_of_a_step_the_rest_is_parked_without_a_call() -> None:
    bench = Bench()
    bench.shop.errors["charge"] = [UNAVAILABLE] * 30
    ids = [bench.engine.run(bench.saga, Order()).transaction_id for _ in range(12)]
    bench.time.advance(2 * MINUTE)
    bench.shop.calls.clear()
    circuit, engine = Circuit(), node_engine(bench)
    for transaction_id in ids:
        row = row_of(bench, transaction_id)
        assert engine.reinvoke(transaction_id, retry_of(row)._replace(circuit=circuit)) == PAUSED
        after = row_of(bench, transaction_id)
        assert after.retry is not None
        assert engine.node().grid.opens(after.retry) > bench.time.wall()
    assert bench.shop.calls == ["charge"] * 10
    assert [row_of(bench, transaction_id).attempt for transaction_id in ids] == [2] * 10 + [1] * 2


# -- dead processes --------------------------------------------------------------------------------------------


def test_what_a_dead_process_ran_goes_on_at_once() -> None:
    bench = Bench()
    row = killed(bench)
    dead = bench.engine.node().instance_id
    assert node_engine(bench).reinvoke(row.transaction_id, Found(dead_instance="another-1")) == (
        True,
        "left to its owner",
    )
    assert node_engine(bench).reinvoke(row.transaction_id, Found(dead_instance=dead)) == COMPLETED
    assert bench.shop.calls == ["charge", "ship"]


def test_the_claim_of_a_dead_node_is_taken_over() -> None:
    bench = Bench()
    row = paused(bench)
    node = node_engine(bench)

    def kill() -> None:
        raise Killed

    bench.shop.during["charge"] = kill
    with pytest.raises(Killed):
        node.reinvoke(row.transaction_id, retry_of(row))
    del bench.shop.during["charge"]
    assert held_claims(bench, row.transaction_id) == ["#claim"]
    found = Found(dead_instance=node.node().instance_id)
    assert node_engine(bench).reinvoke(row.transaction_id, found) == COMPLETED


def test_a_paused_transaction_of_a_dead_process_is_left_to_its_pointer() -> None:
    bench = Bench()
    row = paused(bench)
    found = Found(dead_instance=bench.engine.node().instance_id)
    assert node_engine(bench).reinvoke(row.transaction_id, found) == (True, "left to its owner")
    assert bench.shop.calls == []


# -- the store away --------------------------------------------------------------------------------------------


def test_a_takeover_that_is_not_acknowledged_runs_nothing_and_keeps_the_bucket() -> None:
    bench = Bench()
    row = paused(bench)
    bench.store.fault("row PROCESSING", lost)
    with pytest.raises(OutcomeUnknown):
        node_engine(bench).reinvoke(row.transaction_id, retry_of(row))
    assert bench.shop.calls == []
    bench.time.advance(MINUTE)
    assert node_engine(bench).reinvoke(row.transaction_id, retry_of(row)) == COMPLETED
    assert row_of(bench, row.transaction_id).epoch == 2


def test_a_result_that_the_store_did_not_take_is_kept_until_it_does(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    engine = Engine(
        bench.settings,
        sagas=[bench.saga],
        open_store=lambda: bench.store,
        time_source=bench.time,
        in_background=False,
    )
    bench.store.fault("row PROCESSING", *[unavailable] * 100)
    caplog.set_level(logging.INFO)
    transaction = engine.run(bench.saga, Order())
    assert bench.shop.calls == ["reserve"]
    kept = engine.node().kept
    assert len(kept) == 1
    kept.look()
    assert len(kept) == 1, "the store is still away"
    bench.store.clear()
    kept.look()
    assert len(kept) == 0
    row = row_of(bench, transaction.transaction_id)
    assert (row.running_status, row.committed_steps) == (RunningStatus.PROCESS_PAUSED, ("reserve",))
    bench.time.advance(2 * MINUTE)
    assert node_engine(bench).reinvoke(row.transaction_id, retry_of(row)) == COMPLETED
    assert bench.shop.calls == ["reserve", "charge", "ship"], "the step that was done was not called again"


def test_a_kept_result_whose_takeover_was_not_acknowledged_goes_on_under_a_claim_only() -> None:
    """Once a claim was taken for it, the starter's right is over, though its watchdog's window is far away (R6)."""
    bench = Bench(request_timeout="2s")
    engine = Engine(
        bench.settings,
        sagas=[bench.saga],
        open_store=lambda: bench.store,
        time_source=bench.time,
        in_background=False,
    )
    bench.shop.errors["charge"] = [CARD_REFUSED]
    bench.store.fault("row REVERTING", *[unknown] * 100)
    bench.store.fault("row PROCESSING", lambda call: call(), lost)
    transaction = engine.run(bench.saga, Order())
    taken = row_of(bench, transaction.transaction_id)
    assert (taken.running_status, taken.epoch) == (RunningStatus.PROCESSING, 1)
    bench.store.clear()
    bench.store.calls.clear()
    engine.node().kept.look()
    assert bench.store.calls[:2] == ["replace_marker", "read"]
    now = row_of(bench, transaction.transaction_id)
    assert (now.running_status, now.epoch, now.reverts) == (RunningStatus.REVERT_PAUSED, 2, ("reserve",))


def test_a_clock_that_is_off_reinvokes_nothing() -> None:
    bench = Bench()
    row = paused(bench)
    ahead = ManualTime(bench.time.wall() + HOUR)
    other = Engine(bench.settings, sagas=[bench.saga], open_store=lambda: bench.store, time_source=ahead)
    with pytest.raises(ClockSkew):
        other.reinvoke(row.transaction_id, Found())
    assert row_of(bench, row.transaction_id) == row
    assert held_claims(bench, row.transaction_id) == []


def test_compensation_goes_on_even_if_it_lies_before_the_lookback_days() -> None:
    bench = Bench()
    bench.shop.errors["charge"] = [CARD_REFUSED]
    row = paused(bench, "release")
    bench.time.advance(4 * DAY)
    assert node_engine(bench).reinvoke(row.transaction_id, retry_of(row)) == COMPENSATED


def test_an_old_pointer_of_another_start_does_not_make_a_transaction_overdue() -> None:
    bench = Bench()
    row = killed(bench)
    assert row.watchdog is not None
    bench.time.advance(11 * HOUR)
    old = row.watchdog._replace(date="2023-11-10")
    assert node_engine(bench).reinvoke(row.transaction_id, Found(old)) == COMPLETED


def test_a_pointer_that_was_superseded_tells_of_an_overdue_transaction_too() -> None:
    bench = Bench(transaction_lifetime="30d")
    row = paused(bench)
    bench.time.advance(4 * DAY)
    assert row.retry is not None
    old = row.retry._replace(window=0)
    assert node_engine(bench).reinvoke(row.transaction_id, Found(old)) == FROZEN


def test_what_a_person_names_is_not_overdue() -> None:
    bench = Bench(transaction_lifetime="30d")
    row = paused(bench)
    bench.time.advance(4 * DAY)
    assert node_engine(bench).reinvoke(row.transaction_id, Found()) == COMPLETED


def test_a_watchdog_that_is_armed_again_in_the_window_of_a_former_one_is_there() -> None:
    # So late in a window that a retry pointer takes the next but one, and with it the watchdog's.
    bench = Bench(restore_delay_windows=2, step_budget=20)
    bench.time.advance(MINUTE - bench.time.wall() % MINUTE - 8 * SECOND)
    bench.shop.errors["charge"] = [UNAVAILABLE]
    row = row_of(bench, bench.engine.run(bench.saga, Order()).transaction_id)
    assert row.running_status is RunningStatus.PROCESS_PAUSED
    former = row.retry
    assert former is not None
    assert row.watchdog is not None
    assert row.watchdog.window == former.window + 2
    armed: list[bool] = []

    def look() -> None:
        now = row_of(bench, row.transaction_id)
        assert now.watchdog is not None
        assert now.watchdog.window == former.window
        armed.append(bench.memory.has_pointer(now.watchdog, row.transaction_id))

    # A pause that is not acknowledged is settled by a takeover, which arms anew.
    bench.shop.errors["charge"] = [UNAVAILABLE]
    bench.store.fault("row PROCESS_PAUSED", unknown, first(look))
    assert bench.engine.reinvoke(row.transaction_id, Found()) == PAUSED
    assert armed == [True]
