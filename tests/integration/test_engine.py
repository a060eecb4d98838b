"""The engine on the memory store: outcomes, orders of writes, faults at each of them (R2, R3, R6, R8, R9)."""

from __future__ import annotations

from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from stacksaga_flask import NotStarted, Rejected, Retryable, RunningStatus, StartUnknown
from stacksaga_flask.clock import SECOND
from stacksaga_flask.directory.windows import WindowGrid
from stacksaga_flask.engine import start as start_module
from stacksaga_flask.engine.takeover import take_over
from stacksaga_flask.store.contract import TransactionRow
from tests.support.faults import Fault, afterwards, lost, unavailable, unknown
from tests.support.shop import CARD_REFUSED, UNAVAILABLE, Bench, Order

pytestmark = pytest.mark.varies

MINUTE = 60 * SECOND
GRID = WindowGrid(interval=60, skew_margin=SECOND)


def row_of(bench: Bench, transaction_id: UUID) -> TransactionRow:
    stored = bench.memory.read(transaction_id)
    assert stored is not None
    return stored.row


def attempts(bench: Bench, transaction_id: UUID) -> list[str]:
    return [f"{t.executor} {t.execution_type.value} {t.status.value}" for t in bench.memory.tryouts(transaction_id)]


# -- what a caller sees ----------------------------------------------------------------------------------------


def test_a_saga_of_three_steps_completes_in_five_round_trips() -> None:
    bench = Bench()
    transaction = bench.engine.run(bench.saga, Order())
    assert transaction.status is RunningStatus.PROCESS_COMPLETED
    assert transaction.result == {"payment": "p-1"}
    assert bench.shop.calls == ["reserve", "charge", "ship"]
    assert bench.store.calls == [
        "watchdog + row PROCESSING",
        "row PROCESSING",
        "row PROCESSING",
        "row PROCESS_COMPLETED",
        "delete watchdog",
    ]
    row = row_of(bench, transaction.transaction_id)
    assert row.committed_steps == ("reserve", "charge", "ship")
    assert row.watchdog is not None
    assert not bench.memory.has_pointer(row.watchdog, row.transaction_id)
    assert bench.memory.markers(row.transaction_id) == ()


def test_the_watchdog_lies_600_windows_ahead_in_an_odd_bucket() -> None:
    bench = Bench()
    bench.shop.errors["charge"] = [UNAVAILABLE]
    now = bench.time.wall()
    row = row_of(bench, bench.engine.run(bench.saga, Order()).transaction_id)
    assert row.watchdog is not None
    assert row.watchdog.bucket == 1
    assert GRID.opens(row.watchdog) == (now // MINUTE + 600) * MINUTE


def test_a_refused_card_gives_the_stock_back() -> None:
    bench = Bench()
    bench.shop.errors["charge"] = [CARD_REFUSED]
    transaction = bench.engine.run(bench.saga, Order())
    assert (transaction.status, transaction.reason) == (RunningStatus.REVERT_COMPLETED, "card refused")
    assert bench.shop.calls == ["reserve", "charge", "release"]
    assert bench.store.calls[2:] == ["row REVERTING", "row REVERT_COMPLETED", "delete watchdog"]
    assert attempts(bench, transaction.transaction_id) == [
        "reserve PROCESS SUCCEEDED",
        "charge PROCESS REJECTED",
        "reserve REVERT SUCCEEDED",
    ]


def test_a_charge_that_fails_unexpectedly_is_refunded_first() -> None:
    bench = Bench()
    bench.shop.errors["charge"] = [KeyError("id")]
    transaction = bench.engine.run(bench.saga, Order())
    assert bench.shop.calls == ["reserve", "charge", "refund", "release"]
    assert transaction.reason == "the step 'charge' failed unexpectedly"


def test_a_refusal_after_a_timeout_in_the_same_process_is_refunded_too() -> None:
    bench = Bench(step_attempts=2)
    bench.shop.errors["charge"] = [TimeoutError("lost"), CARD_REFUSED]
    bench.engine.run(bench.saga, Order())
    assert bench.shop.calls == ["reserve", "charge", "charge", "refund", "release"]
    assert len(bench.shop.keys["charge"]) == 1, "every attempt carries one key"
    assert bench.shop.keys["charge"] != bench.shop.keys["refund"]


def test_a_passing_failure_pauses_the_transaction_behind_a_retry_pointer() -> None:
    bench = Bench()
    bench.shop.errors["charge"] = [UNAVAILABLE]
    now = bench.time.wall()
    transaction = bench.engine.run(bench.saga, Order())
    row = row_of(bench, transaction.transaction_id)
    assert row.running_status is RunningStatus.PROCESS_PAUSED
    assert (row.committed_steps, row.possibly_done, row.attempt) == (("reserve",), True, 1)
    assert row.retry is not None
    assert row.retry.bucket == 0
    assert GRID.opens(row.retry) - now <= 2 * MINUTE
    assert list(bench.memory.pointers(row.retry)) == [row.transaction_id]
    assert row.watchdog is not None
    assert bench.memory.has_pointer(row.watchdog, row.transaction_id)
    assert bench.store.calls[2:] == ["retry", "row PROCESS_PAUSED"]


def test_retry_after_moves_the_pointer_and_a_nearer_watchdog_behind_it() -> None:
    bench = Bench(restore_delay_windows=3)
    bench.shop.errors["charge"] = [Retryable("maintenance", retry_after=3600)]
    now = bench.time.wall()
    row = row_of(bench, bench.engine.run(bench.saga, Order()).transaction_id)
    assert row.retry is not None
    assert row.watchdog is not None
    assert GRID.opens(row.retry) >= now + 3600 * SECOND
    assert GRID.opens(row.watchdog) > GRID.opens(row.retry)
    # The former watchdog is left to the sweep: one that is armed in this window may need its path.
    assert bench.store.calls[2:] == ["retry + watchdog", "row PROCESS_PAUSED"]


def test_a_failing_revert_pauses_the_compensation() -> None:
    bench = Bench()
    bench.shop.errors = {"charge": [CARD_REFUSED], "release": [UNAVAILABLE]}
    row = row_of(bench, bench.engine.run(bench.saga, Order()).transaction_id)
    assert (row.running_status, row.reverts) == (RunningStatus.REVERT_PAUSED, ("reserve",))
    assert row.retry is not None


def test_a_rejected_revert_freezes_the_transaction_under_a_claim() -> None:
    bench = Bench()
    bench.shop.errors = {"charge": [CARD_REFUSED], "release": [Rejected("account closed")]}
    transaction = bench.engine.run(bench.saga, Order())
    row = row_of(bench, transaction.transaction_id)
    assert (row.running_status, row.epoch) == (RunningStatus.FROZEN, 1)
    assert row.status_before_freezing is RunningStatus.REVERTING
    assert [frozen.transaction_id for frozen in bench.memory.frozen()] == [row.transaction_id]
    assert bench.store.calls[3:] == ["insert_marker", "read", "row FROZEN", "delete_marker"]
    assert [t.tryout_index for t in bench.memory.tryouts(row.transaction_id)] == [0, 1, 10_000]
    assert "#claim" not in {marker.step_id for marker in bench.memory.markers(row.transaction_id)}


def test_a_pivot_without_keys_that_is_refused_after_a_timeout_is_frozen() -> None:
    bench = Bench(honours_keys=False, step_attempts=2)
    bench.shop.errors["ship"] = [TimeoutError(), Rejected("address unknown")]
    row = row_of(bench, bench.engine.run(bench.saga, Order()).transaction_id)
    assert row.running_status is RunningStatus.FROZEN
    assert bench.shop.calls == ["reserve", "charge", "ship", "ship"]


def test_a_started_saga_is_left_to_the_daemon() -> None:
    bench = Bench()
    transaction = bench.engine.start(bench.saga, Order())
    row = row_of(bench, transaction.transaction_id)
    assert bench.shop.calls == []
    assert row.running_status is RunningStatus.PROCESS_PAUSED
    assert row.retry is not None
    assert row.watchdog is not None
    assert bench.memory.has_pointer(row.retry, row.transaction_id)
    assert bench.memory.has_pointer(row.watchdog, row.transaction_id)


def test_what_a_failed_attempt_changed_in_the_payload_is_gone() -> None:
    bench = Bench()
    seen: list[str] = []
    saga = bench.saga

    def watch() -> None:
        seen.append("called")

    bench.shop.during["charge"] = watch
    bench.shop.errors["charge"] = [UNAVAILABLE]
    row = row_of(bench, bench.engine.run(saga, Order(total=Decimal("1.10"))).transaction_id)
    assert saga.codec.decode(row.payload, 1) == Order(total=Decimal("1.10"), reservation="r-1", payment="")
    assert seen == ["called"]


# -- the start -------------------------------------------------------------------------------------------------

START = "watchdog + row PROCESSING"


def test_an_unreachable_store_starts_nothing() -> None:
    bench = Bench()
    bench.engine.node()
    bench.store.fault(START, unavailable)
    with pytest.raises(NotStarted, match="no step ran"):
        bench.engine.run(bench.saga, Order())
    assert bench.shop.calls == []


@pytest.mark.parametrize("fault", [lost, unknown])
def test_a_start_that_was_not_acknowledged_is_closed(fault: Fault) -> None:
    bench = Bench()
    bench.store.fault(START, fault)
    with pytest.raises(NotStarted) as caught:
        bench.engine.run(bench.saga, Order())
    assert bench.shop.calls == []
    assert caught.value.transaction_id is not None
    row = row_of(bench, caught.value.transaction_id)
    assert row.running_status is RunningStatus.REVERT_COMPLETED
    assert row.watchdog is not None
    assert not bench.memory.has_pointer(row.watchdog, row.transaction_id)
    assert bench.store.calls == [START, "row REVERT_COMPLETED", "delete watchdog"]


def test_a_start_that_could_not_be_closed_either_is_unknown_and_has_its_pointer() -> None:
    bench = Bench()
    bench.store.fault(START, lost)
    bench.store.fault("row REVERT_COMPLETED", unavailable)
    with pytest.raises(StartUnknown) as caught:
        bench.engine.run(bench.saga, Order())
    assert caught.value.transaction_id is not None
    row = row_of(bench, caught.value.transaction_id)
    assert row.running_status is RunningStatus.PROCESSING
    assert row.watchdog is not None
    assert bench.memory.has_pointer(row.watchdog, row.transaction_id)
    assert bench.shop.calls == []


def test_a_start_acknowledged_after_the_fence_runs_no_step() -> None:
    bench = Bench(restore_delay_windows=2)
    bench.store.fault(START, afterwards(lambda: bench.time.advance(2 * MINUTE)))
    with pytest.raises(StartUnknown):
        bench.engine.run(bench.saga, Order())
    assert bench.shop.calls == []


# -- a step's record -------------------------------------------------------------------------------------------


def test_a_record_that_was_lost_is_repeated_with_a_higher_timestamp() -> None:
    bench = Bench()
    bench.store.fault("row PROCESSING", lost, unavailable, unknown)
    transaction = bench.engine.run(bench.saga, Order())
    assert transaction.completed
    assert bench.shop.calls == ["reserve", "charge", "ship"]
    assert bench.store.calls.count("row PROCESSING") == 5
    assert len(attempts(bench, transaction.transaction_id)) == 3


def test_a_step_done_but_not_recorded_is_left_to_the_watchdog() -> None:
    bench = Bench()
    bench.store.fault("row PROCESSING", *[unavailable] * 50)
    transaction = bench.engine.run(bench.saga, Order())
    assert transaction.status is RunningStatus.PROCESSING
    assert bench.shop.calls == ["reserve"]
    row = row_of(bench, transaction.transaction_id)
    assert row.watchdog is not None
    assert bench.memory.has_pointer(row.watchdog, row.transaction_id)


@pytest.mark.parametrize(("fault", "claims"), [(lost, True), (unknown, True), (unavailable, False)])
def test_an_end_that_was_not_acknowledged_is_settled_under_a_claim(fault: Fault, claims: bool) -> None:
    bench = Bench()
    bench.store.fault("row PROCESS_COMPLETED", fault)
    transaction = bench.engine.run(bench.saga, Order())
    assert transaction.completed
    assert bench.shop.calls == ["reserve", "charge", "ship"]
    assert ("insert_marker" in bench.store.calls) is claims
    row = row_of(bench, transaction.transaction_id)
    assert row.running_status is RunningStatus.PROCESS_COMPLETED
    assert row.watchdog is not None
    assert not bench.memory.has_pointer(row.watchdog, row.transaction_id)
    # What was applied is confirmed as it is; what was not is taken over first (R6).
    assert row.epoch == (1 if fault is unknown else 0)


@pytest.mark.parametrize("fault", [lost, unknown])
def test_a_pause_that_was_not_acknowledged_is_settled_under_a_claim(fault: Fault) -> None:
    bench = Bench()
    bench.shop.errors["charge"] = [UNAVAILABLE]
    bench.store.fault("row PROCESS_PAUSED", fault)
    transaction = bench.engine.run(bench.saga, Order())
    assert transaction.status is RunningStatus.PROCESS_PAUSED
    row = row_of(bench, transaction.transaction_id)
    assert row.epoch == 1
    assert row.retry is not None
    assert row.watchdog is not None
    assert bench.memory.has_pointer(row.retry, row.transaction_id)
    assert bench.memory.has_pointer(row.watchdog, row.transaction_id)
    assert bench.store.calls.count("retry") == 2, "a claim holder registers later again"
    assert bench.store.calls[-1] == "delete_marker"


def test_a_pause_whose_registration_failed_leaves_the_watchdog() -> None:
    bench = Bench()
    bench.shop.errors["charge"] = [UNAVAILABLE]
    bench.store.fault("retry", *[unavailable] * 50)
    transaction = bench.engine.run(bench.saga, Order())
    assert transaction.status is RunningStatus.PROCESSING
    row = row_of(bench, transaction.transaction_id)
    assert row.watchdog is not None
    assert bench.memory.has_pointer(row.watchdog, row.transaction_id)


# -- fences ----------------------------------------------------------------------------------------------------


def test_a_step_that_returns_after_the_fence_is_taken_over_and_recorded() -> None:
    bench = Bench(restore_delay_windows=2)
    bench.shop.during["charge"] = lambda: bench.time.advance(3 * MINUTE)
    transaction = bench.engine.run(bench.saga, Order())
    assert transaction.completed
    row = row_of(bench, transaction.transaction_id)
    assert row.epoch == 1
    assert [t.tryout_index for t in bench.memory.tryouts(row.transaction_id)] == [0, 10_000, 10_001]


def test_a_late_result_is_only_logged_once_another_owner_has_taken_over(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(restore_delay_windows=2)

    def taken_over() -> None:
        bench.time.advance(3 * MINUTE)
        transaction_id = bench.shop.transaction_ids[-1]
        other = bench.another_engine().node()
        claim = other.claims.take(transaction_id).claim
        stored = bench.memory.read(transaction_id)
        assert claim is not None
        assert stored is not None
        take_over(other, claim, stored)
        other.claims.give_back(claim)

    bench.shop.during["charge"] = taken_over
    transaction = bench.engine.run(bench.saga, Order())
    assert transaction.status is RunningStatus.PROCESSING
    row = row_of(bench, transaction.transaction_id)
    assert (row.epoch, row.committed_steps, row.possibly_done) == (1, ("reserve",), True)
    assert "another owner has taken it over" in caplog.text
    assert str(transaction.transaction_id) in caplog.text
    assert bench.shop.calls == ["reserve", "charge"]


def test_a_result_acknowledged_after_the_fence_counts_as_unknown() -> None:
    bench = Bench(restore_delay_windows=2)
    bench.store.fault("row PROCESS_COMPLETED", afterwards(lambda: bench.time.advance(3 * MINUTE)))
    transaction = bench.engine.run(bench.saga, Order())
    assert transaction.completed
    assert "insert_marker" in bench.store.calls


def test_a_step_that_does_not_fit_before_the_fence_arms_again_first() -> None:
    bench = Bench(restore_delay_windows=2)
    first: list[TransactionRow] = []

    def slow() -> None:
        first.append(row_of(bench, bench.shop.transaction_ids[-1]))
        bench.time.advance(85 * SECOND)

    bench.shop.during["reserve"] = slow
    bench.shop.during["charge"] = lambda: bench.time.advance(50 * SECOND)
    transaction = bench.engine.run(bench.saga, Order())
    assert transaction.completed
    row = row_of(bench, transaction.transaction_id)
    assert row.epoch == 0, "it was never anybody else's"
    assert row.watchdog is not None
    assert first[0].watchdog is not None
    assert GRID.opens(row.watchdog) > GRID.opens(first[0].watchdog)
    assert not bench.memory.has_pointer(first[0].watchdog, row.transaction_id)
    assert not bench.memory.has_pointer(row.watchdog, row.transaction_id)
    armed = bench.store.calls.index("watchdog")
    assert bench.store.calls[armed : armed + 3] == ["watchdog", "row PROCESSING", "delete watchdog"]


def test_a_step_does_not_begin_if_arming_again_fails() -> None:
    bench = Bench(restore_delay_windows=2)
    bench.shop.during["reserve"] = lambda: bench.time.advance(100 * SECOND - bench.time.wall() % MINUTE)
    bench.store.fault("watchdog", *[unavailable] * 50)
    transaction = bench.engine.run(bench.saga, Order())
    assert transaction.status is RunningStatus.PROCESSING
    assert bench.shop.calls == ["reserve"]


def test_arming_again_is_repeated_while_the_right_lasts() -> None:
    bench = Bench(restore_delay_windows=2)
    bench.shop.during["reserve"] = lambda: bench.time.advance(85 * SECOND)
    bench.store.fault("watchdog", unavailable, lost)
    assert bench.engine.run(bench.saga, Order()).completed


def test_an_in_process_attempt_that_does_not_fit_any_more_is_left_to_a_later_try() -> None:
    bench = Bench(restore_delay_windows=2, step_attempts=5)
    bench.shop.during["reserve"] = lambda: bench.time.advance(85 * SECOND)
    bench.shop.errors["reserve"] = [UNAVAILABLE]
    transaction = bench.engine.run(bench.saga, Order())
    assert transaction.status is RunningStatus.PROCESS_PAUSED
    assert attempts(bench, transaction.transaction_id) == ["reserve PROCESS RETRYABLE"]


def test_settling_once_does_not_stand_in_the_way_of_settling_again() -> None:
    bench = Bench(restore_delay_windows=2)
    bench.shop.during["charge"] = lambda: bench.time.advance(3 * MINUTE)
    bench.store.fault("row PROCESS_COMPLETED", unknown)
    transaction = bench.engine.run(bench.saga, Order())
    assert transaction.completed
    assert row_of(bench, transaction.transaction_id).epoch == 2
    assert bench.store.calls.count("insert_marker") == 1, "its own claim is renewed"


def test_a_claim_is_trusted_long_enough_for_the_longest_step_of_the_saga() -> None:
    bench = Bench(restore_delay_windows=3, step_budget="50s")
    bench.shop.during["reserve"] = lambda: bench.time.advance(4 * MINUTE)
    bench.shop.during["charge"] = lambda: bench.time.advance(45 * SECOND)
    assert bench.engine.run(bench.saga, Order()).completed


def test_a_renewal_whose_answer_was_lost_is_asked_for_again() -> None:
    bench = Bench(restore_delay_windows=2)
    bench.shop.during["reserve"] = lambda: bench.time.advance(3 * MINUTE)
    bench.shop.during["charge"] = lambda: bench.time.advance(9 * SECOND)
    bench.store.fault("replace_marker", lost, unavailable)
    assert bench.engine.run(bench.saga, Order()).completed


@pytest.mark.parametrize("fault", [lost, unknown, unavailable])
def test_a_freeze_that_was_not_acknowledged_is_settled(fault: Fault) -> None:
    bench = Bench()
    bench.shop.errors = {"charge": [CARD_REFUSED], "release": [Rejected("account closed")]}
    bench.store.fault("row FROZEN", fault)
    transaction = bench.engine.run(bench.saga, Order())
    assert transaction.status is RunningStatus.FROZEN
    row = row_of(bench, transaction.transaction_id)
    assert row.running_status is RunningStatus.FROZEN
    assert row.status_before_freezing is RunningStatus.REVERTING
    assert [frozen.transaction_id for frozen in bench.memory.frozen()] == [row.transaction_id]
    assert bench.store.calls[-1] == "delete_marker", "the claim is given back"
    assert attempts(bench, row.transaction_id).count("reserve REVERT REJECTED") == 1


def test_an_attempt_is_told_once_even_if_its_record_was_settled() -> None:
    bench = Bench()
    bench.shop.errors["charge"] = [UNAVAILABLE]
    bench.store.fault("row PROCESS_PAUSED", lost)
    transaction = bench.engine.run(bench.saga, Order())
    assert attempts(bench, transaction.transaction_id) == ["reserve PROCESS SUCCEEDED", "charge PROCESS RETRYABLE"]


@pytest.mark.parametrize("call", ["row PROCESSING", "row PROCESS_PAUSED", "row REVERTING", "row PROCESS_COMPLETED"])
@pytest.mark.parametrize("fault", [lost, unknown])
def test_the_timestamps_of_one_process_always_rise(call: str, fault: Fault) -> None:
    bench = Bench()
    if call != "row PROCESS_COMPLETED":
        bench.shop.errors["charge"] = [CARD_REFUSED if call == "row REVERTING" else UNAVAILABLE]
    bench.store.fault(call, fault)
    bench.engine.run(bench.saga, Order())
    assert len(bench.store.timestamps) >= 4
    assert bench.store.timestamps == sorted(set(bench.store.timestamps))


@pytest.mark.parametrize("second", range(0, 60, 7))
@pytest.mark.parametrize("windows", [2, 3])
def test_a_saga_left_to_the_daemon_has_its_watchdog_behind_its_retry_pointer(second: int, windows: int) -> None:
    bench = Bench(restore_delay_windows=windows)
    bench.time.advance(second * SECOND)
    row = row_of(bench, bench.engine.start(bench.saga, Order()).transaction_id)
    assert row.retry is not None
    assert row.watchdog is not None
    assert GRID.opens(row.watchdog) > GRID.opens(row.retry)


def test_a_terminal_status_is_told_only_once_its_watchdog_is_gone() -> None:
    bench = Bench()
    bench.store.fault("delete watchdog", unavailable)
    transaction = bench.engine.run(bench.saga, Order())
    found = bench.engine.find(transaction.transaction_id)
    assert found is not None
    assert found.status is RunningStatus.PROCESSING


def test_a_clock_that_went_off_arms_and_pauses_nothing() -> None:
    bench = Bench()
    bench.shop.errors["charge"] = [UNAVAILABLE]

    def drift() -> None:
        bench.time.advance(61 * SECOND)
        bench.store.now = lambda: bench.time.wall() + 5 * SECOND  # type: ignore[attr-defined]

    bench.shop.during["charge"] = drift
    transaction = bench.engine.run(bench.saga, Order())
    assert transaction.status is RunningStatus.PROCESSING
    assert "retry" not in bench.store.calls


def test_a_process_that_stood_still_until_the_fence_starts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    prepare = start_module.prepare

    def stands_still(*args: Any, **kwargs: Any) -> Any:
        prepared = prepare(*args, **kwargs)
        bench.time.advance(11 * 3600 * SECOND)
        return prepared

    monkeypatch.setattr(start_module, "prepare", stands_still)
    with pytest.raises(NotStarted, match="the right to write the transaction ended"):
        bench.engine.run(bench.saga, Order())
    assert bench.shop.calls == []
    assert bench.store.timestamps == []
