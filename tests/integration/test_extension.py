"""The Flask extension: settings, answers, errors, signals, the status endpoint, what a step sees."""

from __future__ import annotations

import itertools
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from flask import Blueprint, Flask, g, jsonify, request, session
from flask.testing import FlaskClient
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import String, select
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from stacksaga_flask import (
    Answers,
    Compensated,
    ConfigurationError,
    KeyConflict,
    NotStarted,
    Rejected,
    Retryable,
    Saga,
    SagaNotRegistered,
    StackSaga,
    StackSagaError,
    StateChange,
    StepContext,
    Transaction,
    step_attempted,
    transaction_state_changed,
)
from stacksaga_flask.engine.engine import Engine
from tests.conftest import STORE
from tests.support.faults import FaultyStore, lost, unavailable
from tests.support.shop import CARD_REFUSED, UNAVAILABLE, Order, Shop, place_order_saga

pytestmark = pytest.mark.varies


@dataclass
class Site:
    """A Flask application with the shop's saga behind ``POST /orders`` and ``POST /later``."""

    app: Flask
    shop: Shop
    stacksaga: StackSaga
    saga: Saga[Order, dict[str, str]]

    @property
    def client(self) -> FlaskClient:
        return self.app.test_client()

    @property
    def engine(self) -> Engine:
        engine: Engine = self.app.extensions["stacksaga"].engine
        return engine

    def wrap_store(self) -> FaultyStore:
        """Put a faulty store between the engine and its store, before it is first used."""
        store = FaultyStore(self.engine._open_store())
        self.engine._open_store = lambda: store
        self.engine.node()
        return store


def site_of(answers: Answers | None, config: dict[str, object]) -> Site:
    shop = Shop()
    saga = place_order_saga(shop)
    app = Flask("shop")
    app.config.update({"SECRET_KEY": "x", **config})
    stacksaga = StackSaga(app, sagas=[saga], answers=answers)

    @app.post("/orders")
    def orders() -> Any:
        return stacksaga.run(saga, Order(total=Decimal(request.args.get("total", "9.50"))))

    @app.post("/later")
    def later() -> Any:
        return stacksaga.start(saga, Order())

    return Site(app, shop, stacksaga, saga)


MakeSite = Callable[..., Site]


@pytest.fixture
def make_site(tmp_path: Path) -> MakeSite:
    """Makes an application with the given settings and a store of its own, of the matrix's kind."""
    numbers = itertools.count()

    def make(answers: Answers | None = None, **config: object) -> Site:
        url = "memory://" if STORE == "memory" else f"sqlite:///{tmp_path}/{next(numbers)}.db"
        return site_of(answers, {"STACKSAGA_STORE": url, **config})

    return make


# -- answers ---------------------------------------------------------------------------------------------------


def test_a_completed_saga_answers_200_with_its_public_result(make_site: MakeSite) -> None:
    answer = make_site().client.post("/orders")
    assert (answer.status_code, answer.json) == (200, {"payment": "p-1"})
    assert uuid.UUID(answer.headers["Transaction-Id"]).version == 4


def test_a_saga_without_a_public_result_answers_with_id_and_status(make_site: MakeSite) -> None:
    site = make_site()
    silent: Saga[dict[str, Any], None] = Saga("silent", payload=dict)
    silent.pivot(name="only")(lambda payload, context: None)
    with site.app.test_request_context():
        site.stacksaga.register(silent)
        answer = site.stacksaga.run(silent, {})
        assert answer.json == {
            "transaction_id": answer.headers["Transaction-Id"],
            "saga": "silent",
            "status": "PROCESS_COMPLETED",
        }


def test_a_compensated_saga_answers_422_with_the_reason(make_site: MakeSite) -> None:
    site = make_site()
    site.shop.errors["charge"] = [CARD_REFUSED]
    answer = site.client.post("/orders")
    assert answer.status_code == 422
    assert answer.mimetype == "application/problem+json"
    assert answer.json is not None
    assert (answer.json["detail"], answer.json["status"]) == ("card refused", 422)
    assert answer.json["transaction_id"] == answer.headers["Transaction-Id"]


def test_what_a_step_raised_unexpectedly_is_not_told_to_the_client(make_site: MakeSite) -> None:
    site = make_site()
    site.shop.errors["charge"] = [KeyError("secret")]
    answer = site.client.post("/orders")
    assert answer.status_code == 422
    assert "secret" not in answer.text


def test_a_paused_saga_answers_202_with_location_and_retry_after(make_site: MakeSite) -> None:
    site = make_site()
    site.stacksaga.add_status_view(site.app, authorize=lambda transaction_id: True)
    site.shop.errors["charge"] = [UNAVAILABLE]
    answer = site.client.post("/orders")
    assert answer.status_code == 202
    assert answer.headers["Location"] == f"/transactions/{answer.headers['Transaction-Id']}"
    # The next window opens within a minute, or the one after it if under 11 s were left before its fence, which lies
    # 1 s before its opening; and it is sealed 10 s later.
    assert 10 < int(answer.headers["Retry-After"]) <= 60 + 12 + 10
    assert site.client.get(answer.headers["Location"]).json == {
        "transaction_id": answer.headers["Transaction-Id"],
        "saga": "place-order",
        "status": "PROCESS_PAUSED",
    }


def test_a_started_saga_answers_202_at_once_and_runs_no_step(make_site: MakeSite) -> None:
    site = make_site()
    answer = site.client.post("/later")
    assert (answer.status_code, site.shop.calls) == (202, [])
    assert "Location" not in answer.headers


def test_a_step_done_but_not_recorded_answers_202(make_site: MakeSite) -> None:
    site = make_site(STACKSAGA_REQUEST_TIMEOUT=0.2)
    store = site.wrap_store()
    store.fault("row PROCESSING", *[unavailable] * 500)
    answer = site.client.post("/orders")
    assert answer.status_code == 202
    assert site.shop.calls == ["reserve"]


def test_an_unreachable_store_answers_503_with_retry_after_and_runs_no_step(make_site: MakeSite) -> None:
    site = make_site()
    store = site.wrap_store()
    store.fault("watchdog + row PROCESSING", unavailable)
    answer = site.client.post("/orders")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "30"
    assert site.shop.calls == []


def test_a_store_that_cannot_be_opened_answers_503_without_naming_it(
    make_site: MakeSite, caplog: pytest.LogCaptureFixture
) -> None:
    site = make_site(STACKSAGA_STORE="sqlite:////nowhere/at/all/shop.db")
    answer = site.client.post("/orders")
    assert answer.status_code == 503
    assert "nowhere" not in answer.text
    assert "/nowhere/at/all" in caplog.text


def test_an_unknown_start_answers_503_with_the_id(make_site: MakeSite) -> None:
    site = make_site()
    store = site.wrap_store()
    store.fault("watchdog + row PROCESSING", lost)
    store.fault("row REVERT_COMPLETED", unavailable)
    answer = site.client.post("/orders")
    assert answer.status_code == 503
    assert answer.json is not None
    assert "unknown; repeating the request would be a second one" in answer.json["title"]
    assert "Retry-After" not in answer.headers
    assert uuid.UUID(answer.json["transaction_id"])
    assert site.shop.calls == []


def test_an_unknown_start_with_a_key_may_be_repeated_with_it(make_site: MakeSite) -> None:
    site = make_site(STACKSAGA_REQUEST_TIMEOUT=0.1)
    store = site.wrap_store()
    store.fault("row PROCESSING", lost, *[unavailable] * 50)
    answer = site.client.post("/orders", headers={"Idempotency-Key": "k"})
    assert answer.status_code == 503
    assert answer.json is not None
    assert "repeat the request with the same Idempotency-Key" in answer.json["title"]
    assert answer.headers["Retry-After"] == "30"
    assert site.shop.calls == []


def test_answers_can_be_overridden(make_site: MakeSite) -> None:
    class Ours(Answers):
        def completed(self, transaction: Transaction[Any]) -> Any:
            return jsonify(ours=transaction.saga_name), 201

        def compensated(self, transaction: Transaction[Any]) -> Any:
            return jsonify(sorry=transaction.reason), 402

    site = make_site(answers=Ours())
    assert site.client.post("/orders").json == {"ours": "place-order"}
    site.shop.errors["charge"] = [CARD_REFUSED]
    refused = site.client.post("/orders")
    assert (refused.status_code, refused.json) == (402, {"sorry": "card refused"})


@pytest.mark.parametrize("early", [True, False])
def test_every_error_can_be_caught_by_an_errorhandler(early: bool) -> None:
    app = Flask("shop")
    shop = Shop()
    saga = place_order_saga(shop)
    app.config["STACKSAGA_STORE"] = "memory://"
    stacksaga = StackSaga(sagas=[saga])

    def handle() -> None:
        @app.errorhandler(Compensated)
        def compensated(error: Compensated) -> Any:
            return f"ours: {error}", 418

    if early:
        handle()
    stacksaga.init_app(app)
    if not early:
        handle()
    app.post("/orders")(lambda: stacksaga.run(saga, Order()))
    shop.errors["charge"] = [CARD_REFUSED]
    answer = app.test_client().post("/orders")
    assert (answer.status_code, answer.text) == (418, "ours: card refused")


def test_a_handler_of_the_root_catches_every_error_of_the_library() -> None:
    app = Flask("shop")
    shop = Shop()
    saga = place_order_saga(shop)
    app.config["STACKSAGA_STORE"] = "memory://"
    stacksaga = StackSaga(app, sagas=[saga])
    app.errorhandler(StackSagaError)(lambda error: (f"ours: {type(error).__name__}", 418))
    app.post("/orders")(lambda: stacksaga.run(saga, Order()))
    shop.errors["charge"] = [CARD_REFUSED]
    assert app.test_client().post("/orders").text == "ours: Compensated"


def test_a_mistake_of_the_application_is_no_answer_for_the_client(make_site: MakeSite) -> None:
    site = make_site()
    other = place_order_saga(Shop())
    site.app.post("/unregistered")(lambda: site.stacksaga.run(other, Order()))
    assert site.client.post("/unregistered").status_code == 500


def test_the_result_function_sees_no_request(make_site: MakeSite) -> None:
    site = make_site()
    curious = Saga("curious", payload=dict, result=lambda payload: request.path)
    curious.pivot(name="only")(lambda payload, context: None)

    @site.app.post("/curious")
    def view() -> Any:
        site.stacksaga.register(curious)
        return site.stacksaga.execute(curious, {}).reason

    assert "put what it needs into the payload" in site.client.post("/curious").text


def test_a_view_may_run_a_saga_and_answer_in_its_own_way(make_site: MakeSite) -> None:
    site = make_site()
    with site.app.app_context():
        transaction = site.stacksaga.execute(site.saga, Order())
    assert transaction.completed
    assert transaction.result == {"payment": "p-1"}


# -- Idempotency-Key -------------------------------------------------------------------------------------------


def test_the_same_key_twice_is_one_transaction_and_another_payload_is_409(make_site: MakeSite) -> None:
    site = make_site()
    headers = {"Idempotency-Key": "order-1"}
    one = site.client.post("/orders", headers=headers)
    two = site.client.post("/orders", headers=headers)
    other = site.client.post("/orders?total=10", headers=headers)
    assert one.headers["Transaction-Id"] == two.headers["Transaction-Id"]
    assert (one.json, two.status_code) == (two.json, 200)
    assert other.status_code == 409
    assert site.shop.calls == ["reserve", "charge", "ship"]


@pytest.mark.parametrize("key", ["", "k" * 513, "schlüssel"])
def test_a_key_that_is_no_key_answers_400(make_site: MakeSite, key: str) -> None:
    site = make_site()
    answer = site.client.post("/orders", headers=[("Idempotency-Key", key)])
    assert answer.status_code == 400
    assert site.shop.calls == []


def test_a_view_that_answers_in_its_own_way_honours_the_key_too(make_site: MakeSite) -> None:
    site = make_site()
    site.app.post("/own")(lambda: str(site.stacksaga.execute(site.saga, Order()).transaction_id))
    one, two = (site.client.post("/own", headers={"Idempotency-Key": "k"}).text for _ in range(2))
    assert one == two
    assert site.shop.calls == ["reserve", "charge", "ship"]


@pytest.mark.parametrize(("authorize", "url"), [(None, "/t/<uuid:transaction_id>"), (bool, "/t/<uuid:id>")])
def test_a_status_endpoint_that_could_not_work_is_refused(make_site: MakeSite, authorize: Any, url: str) -> None:
    site = make_site()
    with pytest.raises(ConfigurationError, match="status endpoint needs a callable authorize"):
        site.stacksaga.add_status_view(site.app, authorize=authorize, url=url)


def test_two_accounts_may_use_the_same_key() -> None:
    shop = Shop()
    saga = place_order_saga(shop)
    app = Flask("shop")
    app.config["STACKSAGA_STORE"] = "memory://"
    stacksaga = StackSaga(app, sagas=[saga], key_scope=lambda: request.headers["Account"])
    app.post("/orders")(lambda: stacksaga.run(saga, Order()))
    accounts = [("ann", "1"), ("bob", "1"), ("ann", "1"), ("ann/1", "2"), ("ann", "1/2")]
    ids = []
    for account, key in accounts:
        answer = app.test_client().post("/orders", headers={"Idempotency-Key": key, "Account": account})
        ids.append(answer.headers["Transaction-Id"])
    assert ids[0] == ids[2]
    assert len(set(ids)) == 4


# -- the status endpoint ---------------------------------------------------------------------------------------


def test_there_is_no_status_endpoint_unless_one_is_asked_for(make_site: MakeSite) -> None:
    site = make_site()
    answer = site.client.post("/orders")
    assert site.client.get(f"/transactions/{answer.headers['Transaction-Id']}").status_code == 404
    assert [rule.endpoint for rule in site.app.url_map.iter_rules()] == ["static", "orders", "later"]


def test_the_status_endpoint_shows_status_saga_and_public_result_only(make_site: MakeSite) -> None:
    site = make_site()
    site.stacksaga.add_status_view(site.app, authorize=lambda transaction_id: True)
    answer = site.client.post("/orders")
    status = site.client.get(f"/transactions/{answer.headers['Transaction-Id']}")
    assert status.json == {
        "transaction_id": answer.headers["Transaction-Id"],
        "saga": "place-order",
        "status": "PROCESS_COMPLETED",
        "result": {"payment": "p-1"},
    }


def test_unknown_and_forbidden_transactions_look_alike(make_site: MakeSite) -> None:
    site = make_site()
    allowed: set[uuid.UUID] = set()
    site.stacksaga.add_status_view(site.app, authorize=lambda transaction_id: transaction_id in allowed)
    mine = uuid.UUID(site.client.post("/orders").headers["Transaction-Id"])
    unknown = uuid.uuid4()
    forbidden_answer = site.client.get(f"/transactions/{mine}")
    allowed |= {mine, unknown}
    unknown_answer = site.client.get(f"/transactions/{unknown}")
    assert forbidden_answer.status_code == unknown_answer.status_code == 404
    assert forbidden_answer.data == unknown_answer.data
    assert dict(forbidden_answer.headers) == dict(unknown_answer.headers)
    assert site.client.get(f"/transactions/{mine}").status_code == 200


def test_a_blueprint_may_hold_views_and_the_status_endpoint() -> None:
    shop = Shop()
    saga = place_order_saga(shop)
    stacksaga = StackSaga(sagas=[saga])
    blueprint = Blueprint("orders", __name__, url_prefix="/v1")
    blueprint.post("/orders")(lambda: stacksaga.run(saga, Order()))
    stacksaga.add_status_view(blueprint, authorize=lambda transaction_id: True)

    def create_app() -> Flask:
        app = Flask("shop")
        app.config["STACKSAGA_STORE"] = "memory://"
        stacksaga.init_app(app)
        app.register_blueprint(blueprint)
        return app

    one, two = create_app().test_client(), create_app().test_client()
    shop.errors["charge"] = [UNAVAILABLE, UNAVAILABLE]
    answer = one.post("/v1/orders")
    two.post("/v1/orders")
    assert answer.headers["Location"].startswith("/v1/transactions/")
    assert one.get(answer.headers["Location"]).status_code == 200
    assert two.get(answer.headers["Location"]).status_code == 404, "each application has a store of its own"


# -- configuration ---------------------------------------------------------------------------------------------


def test_a_wrong_setting_is_refused_before_anything_is_registered() -> None:
    app = Flask("shop")
    app.config.update(STACKSAGA_STORE="memory://", STACKSAGA_WINDOW_INTERVALL=60)
    with pytest.raises(ConfigurationError, match="STACKSAGA_WINDOW_INTERVAL"):
        StackSaga(app)
    assert "stacksaga" not in app.extensions
    assert app.error_handler_spec[None][None] == {}


def test_strict_mode_is_refused_until_it_exists() -> None:
    app = Flask("shop")
    app.config.update(STACKSAGA_STORE="memory://", STACKSAGA_WRITE_PROTECTION_MODE="STRICT")
    with pytest.raises(ConfigurationError, match="not in this version"):
        StackSaga(app)


def test_an_unknown_store_is_refused_at_init_app() -> None:
    app = Flask("shop")
    app.config["STACKSAGA_STORE"] = "mysql://shop"
    with pytest.raises(ConfigurationError, match="mysql"):
        StackSaga(app)


def test_init_app_twice_is_refused(make_site: MakeSite) -> None:
    site = make_site()
    with pytest.raises(ConfigurationError, match="has a StackSaga already"):
        site.stacksaga.init_app(site.app)


def test_an_application_without_the_extension_says_what_to_do() -> None:
    with Flask("bare").app_context(), pytest.raises(ConfigurationError, match=r"call stacksaga\.init_app"):
        StackSaga().engine.scope  # noqa: B018


def test_an_unregistered_saga_is_refused_before_anything_is_done(make_site: MakeSite) -> None:
    site = make_site()
    other = place_order_saga(Shop())
    with site.app.app_context(), pytest.raises(SagaNotRegistered, match="is not registered"):
        site.stacksaga.execute(other, Order())


def test_a_payload_over_the_limit_answers_413_and_one_that_cannot_be_stored_400(
    make_site: MakeSite, caplog: pytest.LogCaptureFixture
) -> None:
    site = make_site(STACKSAGA_PAYLOAD_LIMIT=200)

    @site.app.post("/large")
    def large() -> Any:
        return site.stacksaga.run(site.saga, Order(sku="x" * 300))

    @site.app.post("/wrong")
    def wrong() -> Any:
        return site.stacksaga.run(site.saga, Order(total="dear"))  # type: ignore[arg-type]

    large_answer, wrong_answer = site.client.post("/large"), site.client.post("/wrong")
    assert (large_answer.status_code, wrong_answer.status_code) == (413, 400)
    for answer in (large_answer, wrong_answer):
        assert "Order" not in answer.text
        assert "STACKSAGA" not in answer.text
    assert "STACKSAGA_PAYLOAD_LIMIT is 200" in caplog.text, "the log says what a developer needs"
    assert site.shop.calls == []


# -- signals ---------------------------------------------------------------------------------------------------


def test_every_change_of_state_and_every_attempt_is_signalled(make_site: MakeSite) -> None:
    site = make_site()
    seen: list[str] = []

    def changed(app: Flask, change: StateChange) -> None:
        assert app is site.app
        seen.append(f"{change.before and change.before.value} -> {change.after.value}")

    def attempted(app: Flask, tryout: Any, **facts: Any) -> None:
        seen.append(f"{tryout.executor} {tryout.status.value}")

    site.shop.errors["charge"] = [CARD_REFUSED]
    with transaction_state_changed.connected_to(changed), step_attempted.connected_to(attempted):
        site.client.post("/orders")
    assert seen == [
        "None -> PROCESSING",
        "reserve SUCCEEDED",
        "charge REJECTED",
        "PROCESSING -> REVERTING",
        "reserve SUCCEEDED",
        "REVERTING -> REVERT_COMPLETED",
    ]


def test_a_receiver_that_fails_keeps_no_other_signal_from_being_sent(
    make_site: MakeSite, caplog: pytest.LogCaptureFixture
) -> None:
    site = make_site()
    seen: list[str] = []

    def broken(app: Flask, **facts: Any) -> None:
        raise RuntimeError("receiver is broken")

    def changed(app: Flask, change: StateChange) -> None:
        seen.append(change.after.value)

    with step_attempted.connected_to(broken), transaction_state_changed.connected_to(changed):
        site.client.post("/orders")
    assert seen == ["PROCESSING", "PROCESS_COMPLETED"]
    assert caplog.text.count("receiver is broken") >= 3


def test_a_receiver_that_fails_is_logged_and_stops_no_transaction(
    make_site: MakeSite, caplog: pytest.LogCaptureFixture
) -> None:
    site = make_site()

    def broken(app: Flask, **facts: Any) -> None:
        raise RuntimeError("receiver is broken")

    with transaction_state_changed.connected_to(broken):
        answer = site.client.post("/orders")
    assert answer.status_code == 200
    assert "receiver is broken" in caplog.text
    assert answer.headers["Transaction-Id"] in caplog.text


# -- what a step sees ------------------------------------------------------------------------------------------


def run_step(site: Site, step: Callable[[], object]) -> str | None:
    """What the step raised, as the tryout recorded it."""

    def during() -> None:
        step()

    site.shop.during["charge"] = during

    @site.app.post("/with-request")
    def view() -> Any:
        g.user = "view's"
        session["user"] = "view's"
        return site.stacksaga.run(site.saga, Order())

    answer = site.client.post("/with-request?a=1")
    tryouts = site.engine.tryouts(uuid.UUID(answer.headers["Transaction-Id"]))
    return next((tryout.error for tryout in tryouts if tryout.executor == "charge"), None)


@pytest.mark.parametrize(
    "touch", [lambda: request.args, lambda: session["user"], lambda: g.user], ids=["request", "session", "g"]
)
def test_touching_the_request_says_put_it_into_the_payload(make_site: MakeSite, touch: Callable[[], object]) -> None:
    error = run_step(make_site(), touch)
    assert error is not None
    assert "put what it needs into the payload" in error


def test_a_step_has_an_application_context_and_a_g_of_its_own(make_site: MakeSite) -> None:
    seen: list[object] = []

    def step() -> None:
        from flask import current_app, has_request_context

        seen.extend([current_app.name, has_request_context(), hasattr(g, "user"), g.get("user", "nobody")])
        g.mine = 1
        seen.append(g.mine)

    assert run_step(make_site(), step) is None
    assert seen == ["shop", False, False, "nobody", 1]


def test_another_runtime_error_of_a_step_stays_what_it_is(make_site: MakeSite) -> None:
    def step() -> None:
        raise RuntimeError("dictionary changed size")

    assert run_step(make_site(), step) == "RuntimeError: dictionary changed size"


def test_flask_sqlalchemys_session_is_opened_and_removed_for_each_step(make_site: MakeSite, tmp_path: Any) -> None:
    class Base(DeclarativeBase):
        pass

    database = SQLAlchemy(model_class=Base)

    class Note(database.Model):  # type: ignore[name-defined, misc]
        text: Mapped[str] = mapped_column(String, primary_key=True)

    site = make_site(SQLALCHEMY_DATABASE_URI=f"sqlite:///{tmp_path}/app.db")
    database.init_app(site.app)
    sessions: list[object] = []

    def committed() -> None:
        sessions.append(database.session())
        database.session.add(Note(text="from the step"))
        database.session.commit()

    def forgotten() -> None:
        sessions.append(database.session())
        database.session.add(Note(text="never committed"))
        database.session.flush()

    site.shop.during = {"reserve": committed, "charge": forgotten}

    @site.app.post("/noted")
    def noted() -> Any:
        database.session.add(Note(text="the view's own, not committed"))
        answer = site.stacksaga.run(site.saga, Order())
        assert len(database.session.new) == 1, "the view's session is left alone"
        return answer

    with site.app.app_context():
        database.create_all()
    assert site.client.post("/noted").status_code == 200
    with site.app.app_context():
        assert list(database.session.scalars(select(Note.text))) == ["from the step"]
        database.session.remove()
        database.engine.dispose()
    assert sessions[0] is not sessions[1]


# -- several applications --------------------------------------------------------------------------------------


def test_two_applications_in_one_process_do_not_meet(make_site: MakeSite) -> None:
    one, two = make_site(), make_site(STACKSAGA_SERVICE_NAME="other")
    first = one.client.post("/orders", headers={"Idempotency-Key": "k"})
    second = two.client.post("/orders", headers={"Idempotency-Key": "k"})
    assert (first.status_code, second.status_code) == (200, 200)
    assert two.shop.calls == ["reserve", "charge", "ship"]
    assert one.engine.scope.service_name == "shop"
    assert two.engine.scope.service_name == "other"


def test_many_threads_share_one_application(make_site: MakeSite) -> None:
    site = make_site()
    codes: list[int] = []
    threads = [threading.Thread(target=lambda: codes.append(site.client.post("/orders").status_code)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [200] * 8


def test_errors_carry_what_happened() -> None:
    assert str(NotStarted()) == "The transaction was not started and no step ran; it may be started again."
    assert KeyConflict("m", transaction_id=uuid.UUID(int=1)).transaction_id == uuid.UUID(int=1)
    assert Rejected("no").reason == "no"
    assert Retryable("later", retry_after=2).retry_after is not None


# -- the command line ------------------------------------------------------------------------------------------


def test_init_schema_applies_what_is_missing_again_and_again(make_site: MakeSite, tmp_path: Any) -> None:
    site = make_site(STACKSAGA_STORE=f"sqlite:///{tmp_path}/shop.db")
    runner = site.app.test_cli_runner()
    first = runner.invoke(args=["stacksaga", "init-schema"])
    second = runner.invoke(args=["stacksaga", "init-schema"])
    assert first.exit_code == 0, first.output
    assert "applied" in first.output
    assert "nothing was missing" in second.output
    assert site.client.post("/orders").status_code == 200
    site.engine.close()


def test_init_schema_tells_why_it_cannot(make_site: MakeSite, tmp_path: Any) -> None:
    site = make_site(STACKSAGA_STORE=f"sqlite:///{tmp_path}/missing/shop.db")
    result = site.app.test_cli_runner().invoke(args=["stacksaga", "init-schema"])
    assert result.exit_code == 1
    assert "missing" in result.output
    assert "Traceback" not in result.output


def context_is_typed(context: StepContext[Order]) -> Decimal:
    """For mypy: the context knows its payload's type."""
    return context.payload.total
