"""What a person does by hand: show, list, retry, and restore in the order of the design (R1, R6, R9, R12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path as FilePath
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace

from stacksaga_flask import Engine, Rejected, Retryable, StateChange
from stacksaga_flask.clock import SECOND
from stacksaga_flask.directory.writer import PointerKind
from stacksaga_flask.engine.node import Observer
from stacksaga_flask.engine.operator import Operator
from stacksaga_flask.engine.reinvoke import Found
from stacksaga_flask.engine.restore import Verdict
from stacksaga_flask.store.contract import FrozenRow, Marker, RunningStatus, Scope, WriteTransaction
from stacksaga_flask.testing.conformance.samples import fresh_scope
from tests.services.cassandra.node import Node
from tests.support.faults import Fault, afterwards, first, lost, unavailable, unknown
from tests.support.opening import init_url, settings_of
from tests.support.places import HOUR, MINUTE, Place, on_sqlite
from tests.support.shop import CARD_REFUSED, UNAVAILABLE, Order, Shop, place_order_saga

MakePlace = Callable[..., Place]


@pytest.fixture(params=["memory", "sqlite"])
def make_place(request: pytest.FixtureRequest, tmp_path: FilePath) -> Iterator[MakePlace]:
    made: list[Place] = []

    def make(**settings: object) -> Place:
        made.append(Place(None if request.param == "memory" else on_sqlite(tmp_path), **settings))
        return made[-1]

    yield make
    for place in made:
        place.inner.close()


@pytest.fixture
def place(make_place: MakePlace) -> Place:
    return make_place()


# -- restore ---------------------------------------------------------------------------------------------------


def test_restoring_is_claim_read_pointers_row_claim_given_back(place: Place) -> None:
    frozen = place.frozen()
    assert place.operator.restore(frozen.transaction_id).verdict is Verdict.DONE
    writes = ["retry + watchdog", "row PROCESS_PAUSED"]
    if place.inner.transactional:
        writes = [" + ".join(writes)]
    assert place.store.calls == ["insert_marker", "read", *writes, "delete_marker"]


def test_a_restored_transaction_is_paused_and_both_pointers_lead_to_it(place: Place) -> None:
    frozen = place.frozen()
    place.operator.restore(frozen.transaction_id)
    row = place.row(frozen.transaction_id)
    assert row.running_status is RunningStatus.PROCESS_PAUSED
    assert (row.epoch, row.status_before_freezing, row.reason) == (frozen.epoch + 1, None, None)
    assert place.has(row.retry, row.transaction_id)
    assert place.has(row.watchdog, row.transaction_id)
    grid = place.engine.node().grid
    assert row.retry is not None
    assert row.watchdog is not None
    assert place.time.wall() < grid.opens(row.retry) <= place.time.wall() + 2 * MINUTE
    assert grid.opens(row.watchdog) > grid.opens(row.retry)
    assert place.frozen_ids() == []
    assert not place.is_claimed(row.transaction_id)
    assert place.swept(row.transaction_id) == "completed"
    assert place.shop.calls == ["charge", "ship"], "a committed step is skipped"


def test_a_watchdog_that_lies_later_stays(place: Place) -> None:
    row = place.paused()
    assert place.older_release().reinvoke(row.transaction_id, Found(row.retry)).outcome == "frozen"
    place.operator.restore(row.transaction_id)
    assert place.row(row.transaction_id).watchdog == row.watchdog
    assert place.has(row.watchdog, row.transaction_id)


def test_restoring_begins_the_lifetime_anew(place: Place) -> None:
    frozen = place.frozen()
    place.time.advance(90 * HOUR)
    place.operator.restore(frozen.transaction_id)
    row = place.row(frozen.transaction_id)
    assert (place.time.wall() - row.created_at - row.waited) // 1000 == 0
    place.shop.errors["charge"] = [UNAVAILABLE, UNAVAILABLE]
    place.time.advance(23 * HOUR)
    assert place.swept(row.transaction_id) == "paused", "it is tried for another lifetime of 24 hours"
    place.time.advance(2 * HOUR)
    assert place.swept(row.transaction_id) == "frozen"


def test_a_compensation_goes_on_backwards_and_its_client_is_told_why_it_was_refused(place: Place) -> None:
    paused = place.paused("release")
    assert paused.retry is not None
    place.shop.errors["release"] = [Rejected("no such reservation")]
    place.time.advance(MINUTE)
    found = place.another_engine().reinvoke(paused.transaction_id, Found(paused.retry))
    assert found == (True, "frozen")
    frozen = place.row(paused.transaction_id)
    assert frozen.status_before_freezing is RunningStatus.REVERTING
    place.shop.calls.clear()
    place.operator.restore(frozen.transaction_id)
    row = place.row(frozen.transaction_id)
    assert (row.running_status, row.reason) == (RunningStatus.REVERT_PAUSED, "card refused")
    assert place.swept(row.transaction_id) == "compensated"
    assert place.shop.calls == ["release"]
    assert place.row(row.transaction_id).reason == "card refused"


def test_a_step_that_was_interrupted_before_the_freeze_may_still_have_been_done(place: Place) -> None:
    killed = place.killed()
    assert killed.watchdog is not None
    frozen = place.frozen_by_a_sweep(killed.transaction_id, killed.watchdog)
    assert frozen.status_before_freezing is RunningStatus.PROCESSING
    place.operator.restore(frozen.transaction_id)
    row = place.row(frozen.transaction_id)
    assert (row.running_status, row.possibly_done) == (RunningStatus.PROCESS_PAUSED, True)
    place.shop.errors["charge"] = [CARD_REFUSED]
    assert place.swept(row.transaction_id) == "compensated"
    assert place.shop.calls == ["charge", "refund", "release"]


def test_one_that_waited_waits_again(place: Place) -> None:
    frozen = place.frozen()
    waited = replace(frozen, status_before_freezing=RunningStatus.PROCESS_WAITING)
    place.inner.apply(
        WriteTransaction(row=waited, timestamp=place.time.wall(), expected_epoch=frozen.epoch, frozen=None)
    )
    place.time.advance(SECOND)
    assert place.operator.restore(frozen.transaction_id).verdict is Verdict.DONE
    assert place.row(frozen.transaction_id).running_status is RunningStatus.PROCESS_WAITING


def test_one_whose_cause_still_stands_is_frozen_again_with_its_reason(place: Place) -> None:
    row = place.paused()
    place.time.advance(2 * MINUTE)
    without_it = Engine(place.settings, open_store=lambda: place.store, time_source=place.time)
    without_it.reinvoke(row.transaction_id, Found(row.retry))
    assert Operator(without_it).restore(row.transaction_id).verdict is Verdict.DONE
    restored = place.row(row.transaction_id)
    place.time.advance(3 * MINUTE)
    assert without_it.reinvoke(row.transaction_id, Found(restored.retry)).outcome == "frozen"
    (listed,) = Operator(without_it).frozen()
    assert "'place-order' is not registered" in listed.reason


def test_receivers_of_signals_are_told_of_a_restored_transaction(place: Place) -> None:
    frozen = place.frozen()
    changes: list[StateChange] = []

    class Remember(Observer):
        def state_changed(self, change: StateChange) -> None:
            changes.append(change)

    engine = Engine(
        place.settings,
        sagas=[place.saga],
        open_store=lambda: place.store,
        time_source=place.time,
        observer=Remember(),
    )
    Operator(engine).restore(frozen.transaction_id)
    assert [(one.before, one.after) for one in changes] == [(RunningStatus.FROZEN, RunningStatus.PROCESS_PAUSED)]


def test_only_what_is_frozen_is_restored_and_the_rest_is_left_as_it_is(place: Place) -> None:
    running, paused = place.killed(), place.paused()
    place.shop.errors.clear()
    completed = place.row(place.engine.run(place.saga, Order()).transaction_id)
    for row, verdict in (
        (running, Verdict.REFUSED),
        (paused, Verdict.NOTHING_TO_DO),
        (completed, Verdict.REFUSED),
    ):
        answer = place.operator.restore(row.transaction_id)
        assert answer.verdict is verdict
        assert row.running_status.value in answer.told
        assert place.row(row.transaction_id) == row
        assert not place.is_claimed(row.transaction_id)
    assert place.operator.restore(uuid4()).verdict is Verdict.REFUSED


def test_what_another_process_holds_is_left_to_it(place: Place) -> None:
    frozen = place.frozen()
    place.inner.insert_marker(frozen.transaction_id, Marker(step_id="#claim", execution_state="other/1 -"), ttl=30)
    answer = place.operator.restore(frozen.transaction_id)
    assert answer.verdict is Verdict.REFUSED
    assert "another process holds its claim" in answer.told
    assert place.row(frozen.transaction_id) == frozen
    assert place.is_claimed(frozen.transaction_id)


def test_a_row_that_does_not_say_what_it_was_before_is_not_guessed_at(place: Place) -> None:
    frozen = place.frozen()
    damaged = replace(frozen, status_before_freezing=None)
    place.inner.apply(WriteTransaction(row=damaged, timestamp=place.time.wall(), expected_epoch=frozen.epoch))
    answer = place.operator.restore(frozen.transaction_id)
    assert answer.verdict is Verdict.REFUSED
    assert "status_before_freezing" in answer.told


# -- restore: every fault at each request ----------------------------------------------------------------------

CLAIM_IS_OVER = 40 * SECOND
FAULTS: dict[str, Callable[[Place], Fault]] = {
    "lost": lambda _: lost,
    "unknown": lambda _: unknown,
    "unavailable": lambda _: unavailable,
    "late": lambda place: afterwards(lambda: place.time.advance(CLAIM_IS_OVER)),
    "delayed": lambda place: first(lambda: place.time.advance(CLAIM_IS_OVER)),
}
REQUESTS = ("claim", "read", "pointers", "row", "claim given back")
NOT_RESTORED = (Verdict.FAILED, Verdict.UNKNOWN)
VERDICTS = {
    "claim": {"lost": Verdict.DONE, "unknown": Verdict.REFUSED, "unavailable": Verdict.FAILED},
    "read": dict.fromkeys(("lost", "unknown", "unavailable"), Verdict.FAILED),
    "pointers": dict.fromkeys(FAULTS, Verdict.FAILED),
    "row": {**dict.fromkeys(FAULTS, Verdict.UNKNOWN), "unavailable": Verdict.FAILED},
    "claim given back": dict.fromkeys(FAULTS, Verdict.DONE),
}
"""Where nothing else is said, as when the right has ended before the first write, it failed."""


def called(place: Place, request: str) -> str | None:
    """How the store is called for it; None if it is not called for this alone."""
    names = {"claim": "insert_marker", "read": "read", "claim given back": "delete_marker"}
    if request in names:
        return names[request]
    if place.inner.transactional:
        return "retry + watchdog + row PROCESS_PAUSED" if request == "row" else None
    return "retry + watchdog" if request == "pointers" else "row PROCESS_PAUSED"


@pytest.mark.parametrize("request_", REQUESTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_request_leaves_it_frozen_or_restored_and_repeating_it_restores_it(
    place: Place, request_: str, fault: str
) -> None:
    call = called(place, request_)
    if call is None:
        return
    frozen = place.frozen()
    place.store.fault(call, FAULTS[fault](place))
    answer = place.operator.restore(frozen.transaction_id)
    assert answer.verdict is VERDICTS[request_].get(fault, Verdict.FAILED), answer.told
    assert_whole(place, frozen.transaction_id)
    restored = place.row(frozen.transaction_id).running_status is RunningStatus.PROCESS_PAUSED
    assert restored or answer.verdict is not Verdict.DONE
    assert not restored or answer.verdict in (Verdict.DONE, Verdict.UNKNOWN)
    if answer.verdict is Verdict.UNKNOWN and fault in ("lost", "unknown"):
        assert place.is_claimed(frozen.transaction_id), "a claim is not given back after a write that is unknown (R6)"
    place.store.clear()
    place.time.advance(CLAIM_IS_OVER)
    again = place.operator.restore(frozen.transaction_id)
    assert again.verdict is (Verdict.NOTHING_TO_DO if restored else Verdict.DONE)
    assert_whole(place, frozen.transaction_id)
    assert place.swept(frozen.transaction_id) == "completed"
    assert place.shop.calls == ["charge", "ship"]


def assert_whole(place: Place, transaction_id: UUID) -> None:
    """Frozen in both tables, or paused, reachable and in none (R1, R9)."""
    row = place.row(transaction_id)
    if row.running_status is RunningStatus.FROZEN:
        assert place.frozen_ids() == [transaction_id]
        return
    assert place.frozen_ids() == []
    assert place.has(row.watchdog, transaction_id)
    assert place.has(row.retry, transaction_id)


def test_the_row_is_not_sent_once_the_fence_of_its_retry_pointer_has_passed() -> None:
    """The claim would last longer (R3, R6)."""
    place = Place()
    frozen = place.frozen()
    # 15 s before the end of a window: the pointer goes into the next one, whose fence is nearer than the claim's end.
    place.time.advance(MINUTE - place.time.wall() % MINUTE + 45 * SECOND)
    place.store.fault("retry + watchdog", afterwards(lambda: place.time.advance(14 * SECOND)))
    assert place.operator.restore(frozen.transaction_id).verdict is Verdict.FAILED
    assert "row PROCESS_PAUSED" not in place.store.calls
    assert place.row(frozen.transaction_id) == frozen


def test_a_batch_that_lands_after_a_sweeper_confirmed_the_frozen_row_does_not_show() -> None:
    """Its pointers are dropped by then, so it would be paused for ever (V2)."""
    place = Place()
    frozen = place.frozen()
    held: list[Callable[[], Any]] = []

    def delayed(call: Callable[[], Any]) -> Any:
        held.append(call)
        return unknown(call)

    place.store.fault("row PROCESS_PAUSED", delayed)
    assert place.operator.restore(frozen.transaction_id).verdict is Verdict.UNKNOWN
    place.time.advance(2 * MINUTE)
    assert place.another_engine().reinvoke(frozen.transaction_id, Found()).outcome == "frozen"
    held[0]()
    assert place.row(frozen.transaction_id) == frozen
    assert place.frozen_ids() == [frozen.transaction_id]


def test_a_clock_that_is_off_arms_nothing() -> None:
    place = Place()
    frozen = place.frozen()
    operator = place.operator
    place.time.set_wall(place.time.wall() + HOUR)
    place.store.now = lambda: place.time.wall() - HOUR  # type: ignore[attr-defined]
    answer = operator.restore(frozen.transaction_id)
    assert answer.verdict is Verdict.FAILED
    assert "clock" in answer.told
    assert place.row(frozen.transaction_id) == frozen
    assert not any("retry" in call for call in place.store.calls)


# -- listing and showing ---------------------------------------------------------------------------------------


def test_each_unfinished_transaction_is_listed_once_where_it_belongs(place: Place) -> None:
    frozen = place.frozen()
    paused, reverting, running = place.paused(), place.paused("release"), place.killed()
    place.shop.errors.clear()
    place.engine.run(place.saga, Order())
    operator = place.operator
    assert {one.transaction_id for one in operator.paused()} == {paused.transaction_id, reverting.transaction_id}
    assert len(list(operator.paused())) == 2, "a retry pointer and a watchdog lead to it"
    assert [one.transaction_id for one in operator.in_flight()] == [running.transaction_id]
    (listed,) = operator.frozen()
    assert (listed.transaction_id, listed.frozen_at) == (frozen.transaction_id, frozen.updated_at)
    assert listed.row is not None
    assert (listed.row.saga_name, listed.row.status_before_freezing) == ("place-order", RunningStatus.PROCESS_PAUSED)
    assert "not registered" in listed.reason


def test_listing_reads_each_row_once_and_writes_nothing(place: Place) -> None:
    for _ in range(3):
        place.paused()
    place.store.calls.clear()
    assert len(list(place.operator.listed())) == 3
    assert place.store.calls == ["read"] * 3


def test_a_frozen_row_that_a_late_batch_left_is_not_listed(place: Place) -> None:
    """The running status decides (R9)."""
    row = place.paused()
    stray = FrozenRow(transaction_id=row.transaction_id, frozen_at=place.time.wall(), reason="late")
    place.inner.apply(
        WriteTransaction(row=row, timestamp=place.time.wall(), expected_epoch=row.epoch, frozen=stray),
    )
    assert place.frozen_ids() == [row.transaction_id]
    assert list(place.operator.frozen()) == []


def test_frozen_ones_are_found_by_reason_and_saga(place: Place) -> None:
    frozen = place.frozen()
    operator = place.operator
    for reason, saga_name, found in (
        ("not REGISTERED", None, 1),
        ("not registered", "place-order", 1),
        ("no such reason", None, 0),
        (None, "place", 0),
    ):
        ids = [one.transaction_id for one in operator.frozen(reason=reason, saga_name=saga_name)]
        assert ids == [frozen.transaction_id] * found


def test_showing_tells_pointers_attempts_and_the_next_try(place: Place) -> None:
    row = place.paused()
    shown = place.operator.show(row.transaction_id)
    assert shown is not None
    assert shown.row == row
    assert [(one.kind, one.path, one.in_directory) for one in shown.pointers] == [
        (PointerKind.RETRY, row.retry, True),
        (PointerKind.WATCHDOG, row.watchdog, True),
    ]
    assert [marker.step_id for marker in shown.markers] == ["reserve"]
    assert shown.claimed_by is None
    assert [(one.executor, one.status.value) for one in shown.tryouts] == [
        ("reserve", "SUCCEEDED"),
        ("charge", "RETRYABLE"),
    ]
    grid = place.engine.node().grid
    assert row.retry is not None
    assert shown.next_try == grid.opens(row.retry) + 10 * SECOND
    place.inner.insert_marker(row.transaction_id, Marker(step_id="#claim", execution_state="other-7/1 -"), ttl=30)
    claimed = place.operator.show(row.transaction_id)
    assert claimed is not None
    assert claimed.claimed_by == "other-7"
    assert [marker.step_id for marker in claimed.markers] == ["reserve"]


def test_a_running_one_is_tried_next_by_its_watchdog_and_a_frozen_one_not_at_all(place: Place) -> None:
    running, frozen = place.killed(), place.frozen()
    shown = place.operator.show(running.transaction_id)
    assert shown is not None
    assert running.watchdog is not None
    assert shown.next_try == place.engine.node().grid.opens(running.watchdog) + 10 * SECOND
    shown = place.operator.show(frozen.transaction_id)
    assert shown is not None
    assert shown.next_try is None


def test_a_pointer_that_is_gone_is_told_and_leads_to_no_next_try(place: Place) -> None:
    row = place.paused()
    assert row.retry is not None
    assert row.watchdog is not None
    writer = place.engine.node().writer
    place.inner.apply(writer.delete(row.retry, row.transaction_id))
    shown = place.operator.show(row.transaction_id)
    assert shown is not None
    assert [one.in_directory for one in shown.pointers] == [False, True]
    assert shown.next_try == place.engine.node().grid.opens(row.watchdog) + 10 * SECOND


def test_nothing_is_shown_of_an_unknown_transaction(place: Place) -> None:
    assert place.operator.show(uuid4()) is None


# -- retry -----------------------------------------------------------------------------------------------------


def test_a_paused_transaction_is_tried_now(place: Place) -> None:
    row = place.paused()
    answer = place.operator.retry(row.transaction_id)
    assert answer == (Verdict.DONE, "completed")
    assert place.shop.calls == ["charge", "ship"]
    assert place.row(row.transaction_id).running_status is RunningStatus.PROCESS_COMPLETED


def test_a_retry_that_fails_again_tells_what_the_participant_said(place: Place) -> None:
    row = place.paused()
    place.shop.errors["charge"] = [Retryable("HTTP 504")]
    answer = place.operator.retry(row.transaction_id)
    assert answer.verdict is Verdict.FAILED
    assert "paused" in answer.told
    assert "HTTP 504" in answer.told
    assert place.has(place.row(row.transaction_id).retry, row.transaction_id)


def test_a_frozen_transaction_is_to_be_restored_first(place: Place) -> None:
    frozen = place.frozen()
    answer = place.operator.retry(frozen.transaction_id)
    assert answer.verdict is Verdict.REFUSED
    assert "restore it first" in answer.told
    assert place.shop.calls == []
    assert place.row(frozen.transaction_id) == frozen


def test_one_over_its_lifetime_is_frozen_by_a_retry_and_the_reason_told(place: Place) -> None:
    row = place.paused()
    place.time.advance(25 * HOUR)
    answer = place.operator.retry(row.transaction_id)
    assert answer.verdict is Verdict.FAILED
    assert "frozen" in answer.told
    assert "transaction_lifetime" in answer.told


def test_a_running_transaction_is_left_to_its_owner(place: Place) -> None:
    running = place.killed()
    answer = place.operator.retry(running.transaction_id)
    assert answer.verdict is Verdict.REFUSED
    assert "left to it" in answer.told
    assert place.row(running.transaction_id) == running


def test_a_retry_beside_a_claim_is_refused(place: Place) -> None:
    row = place.paused()
    place.inner.insert_marker(row.transaction_id, Marker(step_id="#claim", execution_state="other/1 -"), ttl=30)
    answer = place.operator.retry(row.transaction_id)
    assert answer.verdict is Verdict.REFUSED
    assert "another process holds its claim" in answer.told
    assert place.shop.calls == []


def test_what_has_ended_or_is_unknown_is_not_tried(place: Place) -> None:
    transaction = place.engine.run(place.saga, Order())
    answer = place.operator.retry(transaction.transaction_id)
    assert (answer.verdict, "PROCESS_COMPLETED" in answer.told) == (Verdict.NOTHING_TO_DO, True)
    assert place.operator.retry(uuid4()).verdict is Verdict.REFUSED


def test_a_retry_whose_takeover_is_not_acknowledged_is_unknown_and_runs_nothing(place: Place) -> None:
    row = place.paused()
    place.store.fault("row PROCESSING", lost)
    assert place.operator.retry(row.transaction_id).verdict is Verdict.UNKNOWN
    assert place.shop.calls == []


def test_a_process_that_is_stopping_tries_nothing(place: Place) -> None:
    row = place.paused()
    engine = place.another_engine()
    engine.stop()
    assert Operator(engine).retry(row.transaction_id).verdict is Verdict.FAILED
    assert place.shop.calls == []


# -- real clocks, real stores ----------------------------------------------------------------------------------


def walk(url: str, scope: Scope) -> None:
    """From a passing failure to a frozen transaction, and back to a completed one."""
    settings = settings_of(url, scope, window_interval="5s", clock_skew_margin="1s", request_timeout="3s")
    shop = Shop()
    engine = Engine(settings, sagas=[saga := place_order_saga(shop)])
    operator = Operator(engine)
    shop.errors["charge"] = [UNAVAILABLE]
    transaction_id = engine.run(saga, Order()).transaction_id
    (paused,) = operator.paused()
    assert paused.transaction_id == transaction_id
    assert list(operator.frozen()) == []
    assert paused.row is not None
    assert Engine(settings).reinvoke(transaction_id, Found(paused.row.retry)).outcome == "frozen"
    assert list(operator.listed()) == []
    (frozen,) = operator.frozen(reason="not registered")
    assert frozen.transaction_id == transaction_id
    assert operator.restore(transaction_id).verdict is Verdict.DONE
    assert list(operator.frozen()) == []
    shown = operator.show(transaction_id)
    assert shown is not None
    assert all(pointer.in_directory for pointer in shown.pointers)
    assert operator.retry(transaction_id).verdict is Verdict.DONE
    assert list(operator.listed()) == []
    assert shop.calls == ["reserve", "charge", "charge", "ship"]


def test_a_transaction_is_frozen_restored_and_completed_on_sqlite(tmp_path: FilePath) -> None:
    walk(f"sqlite:///{tmp_path / 'shop.db'}", fresh_scope())


def test_a_transaction_is_frozen_restored_and_completed_on_cassandra(cassandra: Node, cassandra_keyspace: str) -> None:
    scope = fresh_scope()
    url = cassandra.url(cassandra_keyspace)
    init_url(url, scope, window_interval="5s", clock_skew_margin="1s")
    walk(url, scope)
