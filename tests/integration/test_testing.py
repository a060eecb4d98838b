"""What an application's own tests use."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest
from flask import Flask

from stacksaga_flask import ExecutionType, Rejected, Retryable, RunningStatus, StackSaga
from stacksaga_flask.testing import Crashed, SagaTesting
from tests.support.shop import Order, Shop, place_order_saga

pytestmark = pytest.mark.varies

Make = Callable[..., SagaTesting]


def shop_app() -> tuple[Flask, Shop]:
    shop = Shop()
    saga = place_order_saga(shop)
    app = Flask("shop")
    app.config["STACKSAGA_STORE"] = "sqlite:////must/never/be/opened.db"
    stacksaga = StackSaga(app, sagas=[saga])
    app.post("/orders")(lambda: stacksaga.run(saga, Order()))
    return app, shop


def test_the_application_runs_on_a_memory_store_of_the_test(stacksaga_testing: Make) -> None:
    app, _ = shop_app()
    sagas = stacksaga_testing(app)
    assert app.test_client().post("/orders").status_code == 200
    assert sagas.status() is RunningStatus.PROCESS_COMPLETED
    assert sagas.history() == [
        ("reserve", "PROCESS", "SUCCEEDED"),
        ("charge", "PROCESS", "SUCCEEDED"),
        ("ship", "PROCESS", "SUCCEEDED"),
    ]


def test_a_step_fails_as_often_as_told_and_is_not_called_then(stacksaga_testing: Make) -> None:
    app, shop = shop_app()
    sagas = stacksaga_testing(app, STACKSAGA_STEP_ATTEMPTS=3)
    sagas.fail("charge", Retryable, times=2)
    assert app.test_client().post("/orders").status_code == 200
    assert shop.calls == ["reserve", "charge", "ship"]
    assert [status for _, _, status in sagas.history()] == [
        "SUCCEEDED",
        "RETRYABLE",
        "RETRYABLE",
        "SUCCEEDED",
        "SUCCEEDED",
    ]


def test_a_class_that_wants_a_reason_is_given_one(stacksaga_testing: Make) -> None:
    app, _ = shop_app()
    sagas = stacksaga_testing(app)
    sagas.fail("charge", Rejected)
    assert app.test_client().post("/orders").status_code == 422
    assert sagas.history()[1] == ("charge", "PROCESS", "REJECTED")


def test_a_revert_can_be_made_to_fail(stacksaga_testing: Make) -> None:
    app, _ = shop_app()
    sagas = stacksaga_testing(app)
    sagas.fail("charge", Rejected("no"))
    sagas.fail("reserve", Retryable("503"), execution_type=ExecutionType.REVERT)
    assert app.test_client().post("/orders").status_code == 202
    assert sagas.status() is RunningStatus.REVERT_PAUSED


def test_a_crash_leaves_the_step_done_and_not_recorded(stacksaga_testing: Make) -> None:
    app, shop = shop_app()
    sagas = stacksaga_testing(app)
    before = sagas.engine.node().instance_id
    sagas.crash_after("charge")
    with pytest.raises(Crashed):
        app.test_client().post("/orders")
    assert shop.calls == ["reserve", "charge"]
    assert sagas.status() is RunningStatus.PROCESSING
    assert sagas.history() == [("reserve", "PROCESS", "SUCCEEDED")]
    assert sagas.engine.node().instance_id != before, "whoever goes on is another process"


def test_the_clock_moves_only_when_it_is_told_to(stacksaga_testing: Make) -> None:
    app, _ = shop_app()
    sagas = stacksaga_testing(app)
    before = sagas.time.wall()
    app.test_client().post("/orders")
    assert sagas.time.wall() == before
    sagas.advance(datetime.timedelta(minutes=2))
    assert sagas.time.wall() == before + 120_000_000


def test_sagas_can_be_tested_without_an_application(stacksaga_testing: Make) -> None:
    saga = place_order_saga(Shop())
    sagas = stacksaga_testing(sagas=[saga])
    transaction = sagas.engine.run(saga, Order())
    assert transaction.completed
    assert sagas.last == transaction.transaction_id


def test_two_at_once_do_not_meet_and_the_application_gets_its_engine_back() -> None:
    app, _ = shop_app()
    own = app.extensions["stacksaga"].engine
    one = SagaTesting(app)
    two = SagaTesting(sagas=[place_order_saga(Shop())])
    one.fail("charge", Rejected("no"))
    assert two.engine.run(next(iter(two.engine.sagas.values())), Order()).completed
    one.close()
    assert app.extensions["stacksaga"].engine is own


def test_mistakes_are_told(stacksaga_testing: Make) -> None:
    app, _ = shop_app()
    sagas = stacksaga_testing(app)
    with pytest.raises(LookupError, match=r"no saga has a step 'pay'; there are charge, reserve, ship"):
        sagas.fail("pay", Retryable)
    with pytest.raises(LookupError, match="no transaction was started yet"):
        sagas.history()


def test_settings_of_the_application_apply(stacksaga_testing: Make) -> None:
    app, _ = shop_app()
    sagas: Any = stacksaga_testing(app, STACKSAGA_REGION="north")
    assert sagas.engine.scope == ("north", "default", "shop")


def test_time_advanced_by_windows_is_swept_as_the_daemon_does(stacksaga_testing: Make) -> None:
    app, shop = shop_app()
    sagas = stacksaga_testing(app)
    sagas.fail("charge", Retryable, times=2)
    assert app.test_client().post("/orders").status_code == 202
    sagas.advance(windows=1)
    assert sagas.status() is RunningStatus.PROCESS_PAUSED, "the second of two failures"
    sagas.advance(windows=2)
    assert sagas.status() is RunningStatus.PROCESS_COMPLETED
    assert shop.calls == ["reserve", "charge", "ship"]


def test_a_killed_process_is_found_by_its_watchdog_once_its_window_has_passed(stacksaga_testing: Make) -> None:
    app, shop = shop_app()
    sagas = stacksaga_testing(app, STACKSAGA_RESTORE_DELAY_WINDOWS=5)
    sagas.crash_after("charge")
    with pytest.raises(Crashed):
        app.test_client().post("/orders")
    sagas.advance(windows=4)
    assert sagas.status() is RunningStatus.PROCESSING
    sagas.advance(windows=1)
    assert sagas.status() is RunningStatus.PROCESS_COMPLETED
    assert shop.calls == ["reserve", "charge", "charge", "ship"]
    assert len(shop.keys["charge"]) == 1


def test_a_process_killed_in_a_sweep_is_gone_on_with_by_the_next_one(stacksaga_testing: Make) -> None:
    app, shop = shop_app()
    sagas = stacksaga_testing(app)
    sagas.fail("charge", Retryable)
    app.test_client().post("/orders")
    sagas.crash_after("charge")
    with pytest.raises(Crashed):
        sagas.advance(windows=1)
    sagas.advance(windows=1)
    assert sagas.status() is RunningStatus.PROCESS_COMPLETED
    assert shop.calls == ["reserve", "charge", "charge", "ship"]
