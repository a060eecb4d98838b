"""The Cassandra store on a real node, with faults made on the wire and by hand."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from uuid import uuid4

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import Session
from cassandra.connection import DefaultEndPoint
from cassandra.metadata import KeyspaceMetadata, Metadata
from cassandra.policies import RetryPolicy, SimpleConvictionPolicy
from cassandra.pool import Host
from cassandra.query import BatchStatement
from flask import Flask
from msgspec.structs import replace

from stacksaga_flask import (
    ClockSkew,
    ConfigurationError,
    Engine,
    OutcomeUnknown,
    PayloadTooLarge,
    Saga,
    SchemaMismatch,
    SchemaMissing,
    StackSaga,
    StoreRefused,
    StoreUnavailable,
    SystemTime,
)
from stacksaga_flask.clock import SECOND
from stacksaga_flask.errors import CorruptRow
from stacksaga_flask.store.cassandra.place import read_place
from stacksaga_flask.store.cassandra.replication import check_replication
from stacksaga_flask.store.cassandra.store import CassandraStore
from stacksaga_flask.store.contract import Grid, Marker, Path, Scope, Store
from stacksaga_flask.store.opening import Setup
from stacksaga_flask.testing.conformance.samples import PATH, claim, first, fresh_scope, register, row
from tests.services.cassandra.node import Node
from tests.support.cql_proxy import CqlProxy, cql_proxy
from tests.support.opening import SHOP, init_url, open_url, settings_of
from tests.support.plain_cql import drop_keyspace, plain_session
from tests.support.waiting import wait_until

SCHEMA = ["0001_seed", "0002_own_columns", "0003_own_tables"]
TIERS = frozenset({1, 2, 3, 4, 5})


@pytest.fixture(scope="module")
def proxy(cassandra: Node) -> Iterator[CqlProxy]:
    with cql_proxy(cassandra) as started:
        yield started


@pytest.fixture
def keyspace(cassandra: Node) -> Iterator[str]:
    """The name of a keyspace that is still to be created."""
    name = f"test_{uuid.uuid4().hex[:12]}"
    yield name
    drop_keyspace(cassandra, name)


@pytest.fixture(scope="module")
def plain(cassandra: Node) -> Iterator[Session]:
    with plain_session(cassandra) as session:
        yield session


Open = Callable[..., CassandraStore]


@pytest.fixture
def opened(cassandra: Node, proxy: CqlProxy, cassandra_keyspace: str) -> Iterator[Open]:
    """Opens stores of a scope of their own, behind the proxy."""
    stores: list[CassandraStore] = []

    def open_one(**settings: object) -> CassandraStore:
        store = open_url(proxy.url(cassandra_keyspace), SHOP, **settings)
        assert isinstance(store, CassandraStore)
        store.scope = fresh_scope()
        stores.append(store)
        return store

    yield open_one
    proxy.forget_rules()
    for store in stores:
        store.close()


def refused(url: str, scope: Scope = SHOP, **settings: object) -> str:
    """What opening the store says, which must refuse."""
    with pytest.raises(StoreRefused) as failure:
        open_url(url, scope, **settings).close()
    return str(failure.value)


def this_year() -> int:
    """The year in UTC."""
    return datetime.datetime.fromtimestamp(SystemTime().wall() / SECOND, datetime.timezone.utc).year


# -- where it is -------------------------------------------------------------------------------------------------


def test_a_cluster_that_cannot_be_reached_is_one_error_with_what_was_tried_and_why_each_failed() -> None:
    with pytest.raises(StoreUnavailable) as failure:
        open_url("cassandra://127.0.78.1,127.0.78.2:9042/shop?local_datacenter=dc1", SHOP).close()
    told = str(failure.value)
    for host in ("127.0.78.1", "127.0.78.2"):
        assert f"{host}:9042: [Errno 111] Tried connecting to" in told
    assert "see that the hosts and the port are right and a node is up" in told


def test_one_of_two_contact_points_is_enough(cassandra: Node, cassandra_keyspace: str) -> None:
    url = cassandra.url(cassandra_keyspace).replace("//", "//127.0.78.1,")
    with closing(open_url(url, SHOP)) as store:
        assert abs(store.now() - SystemTime().wall()) < SECOND


def test_a_wrong_data_centre_is_told_with_those_that_there_are(cassandra: Node, cassandra_keyspace: str) -> None:
    told = refused(cassandra.url(cassandra_keyspace).replace("datacenter1", "elsewhere"))
    assert "there is no data centre 'elsewhere' (there are datacenter1)" in told


def test_a_time_out_below_the_servers_is_refused(cassandra: Node, cassandra_keyspace: str) -> None:
    told = refused(cassandra.url(cassandra_keyspace), request_timeout="2s")
    assert "STACKSAGA_REQUEST_TIMEOUT is 2000 ms and the server's write_request_timeout_in_ms is 2000" in told


# -- its schema --------------------------------------------------------------------------------------------------


def test_a_keyspace_that_is_not_there_is_told_with_the_remedy(cassandra: Node, keyspace: str) -> None:
    with pytest.raises(SchemaMissing, match=f"no keyspace {keyspace} .*flask stacksaga init-schema"):
        open_url(cassandra.url(keyspace), SHOP).close()


def test_init_schema_creates_keyspace_tables_and_settings_says_so_before_and_may_be_repeated(
    cassandra: Node, keyspace: str, plain: Session
) -> None:
    said: list[str] = []
    setup = Setup(development=True, say=said.append)
    applied = init_url(cassandra.url(keyspace), SHOP, setup=setup)
    assert applied == [f"keyspace {keyspace}", *SCHEMA, "settings of default/default/shop"]
    replication = {"class": "SimpleStrategy", "replication_factor": "1"}
    assert said == [f"creating keyspace {keyspace} with replication {replication}"]
    with closing(open_url(cassandra.url(keyspace), SHOP)) as store:
        assert store.read_grid() == Grid(schema_version=3, window_interval=60, clock_skew_margin=SECOND)
    assert init_url(cassandra.url(keyspace), SHOP, setup=setup) == []
    assert init_url(cassandra.url(keyspace), SHOP._replace(cluster="two")) == ["settings of default/two/shop"]
    tables = plain.execute("SELECT table_name FROM system_schema.tables WHERE keyspace_name = %s", [keyspace])
    assert len(list(tables)) == 11


def test_without_development_there_are_three_replicas_unless_said_otherwise(cassandra: Node, keyspace: str) -> None:
    with pytest.raises(ConfigurationError, match="3 replicas in 'datacenter1' need as many nodes, and there are 1"):
        init_url(cassandra.url(keyspace), SHOP)
    with pytest.raises(ConfigurationError, match="names the data centre 'dc9'; there are datacenter1"):
        init_url(cassandra.url(keyspace), SHOP, setup=Setup(replication={"dc9": 1}))
    applied = init_url(cassandra.url(keyspace), SHOP, setup=Setup(replication={"datacenter1": 1}))
    assert applied[0] == f"keyspace {keyspace}"


def test_more_replicas_than_nodes_can_answer_for_are_refused(cassandra: Node, keyspace: str, plain: Session) -> None:
    plain.execute(
        f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 3}}"
    )
    assert "3 replicas in the data centre 'datacenter1', of which a quorum is 2, and that has 1 node(s)" in refused(
        cassandra.url(keyspace)
    )


def test_a_keyspace_without_replicas_in_the_local_data_centre_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    # A node alone refuses to create one, so the driver's own view of a cluster is made by hand.
    metadata = Metadata()
    for datacenter, host in (("dc1", "127.0.0.1"), ("dc2", "127.0.0.2")):
        node, _ = metadata.add_or_return_host(Host(DefaultEndPoint(host), SimpleConvictionPolicy))
        node.set_location_info(datacenter, "rack1")
    options = {"class": "NetworkTopologyStrategy", "dc2": "1"}
    metadata.keyspaces["shop"] = KeyspaceMetadata("shop", True, options.pop("class"), options)
    place = read_place(settings_of("cassandra://a/shop?local_datacenter=dc1", SHOP))
    with pytest.raises(StoreRefused, match=r"no replica in the data centre 'dc1' \(it has 1 in 'dc2'"):
        check_replication(metadata, place)
    check_replication(metadata, place._replace(local_datacenter="dc2"))
    assert "has 1 replica(s) in dc2: the loss of one node stops its sagas" in caplog.text


def test_a_keyspace_without_tables_or_with_an_older_schema_is_told_with_the_remedy(
    cassandra: Node, keyspace: str, plain: Session
) -> None:
    plain.execute(
        f"CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
    )
    with pytest.raises(SchemaMissing, match="init-schema"):
        open_url(cassandra.url(keyspace), SHOP).close()
    assert init_url(cassandra.url(keyspace), SHOP) == [*SCHEMA, "settings of default/default/shop"]
    plain.execute(f"ALTER TABLE {keyspace}.es_transaction DROP public_result")
    with pytest.raises(SchemaMissing, match=r"public_result.*init-schema"):
        open_url(cassandra.url(keyspace), SHOP).close()
    assert init_url(cassandra.url(keyspace), SHOP) == ["0002_own_columns"]
    plain.execute(f"ALTER TABLE {keyspace}.es_transaction ADD colour text")
    plain.execute(f"CREATE TABLE {keyspace}.es_colours (name text PRIMARY KEY)")
    with closing(open_url(cassandra.url(keyspace), SHOP)) as store:
        started = row()
        store.apply(first(started))
        found = store.read(started.transaction_id)
    assert found is not None
    assert found.row == started


def test_another_grid_is_refused_and_taken_once_the_directory_is_empty(
    cassandra: Node, cassandra_keyspace: str, plain: Session
) -> None:
    scope, url = fresh_scope(), cassandra.url(cassandra_keyspace)
    init_url(url, scope)
    other: dict[str, Any] = {"window_interval": 300, "restore_delay_windows": 60}
    engine = Engine(settings_of(url, scope, **other))
    with pytest.raises(SchemaMismatch, match="window_interval is 300 here and 60 in the store"):
        engine.find(uuid4())
    with closing(open_url(url, scope)) as store:
        year = this_year()
        date = f"{year}-06-01"
        store.apply(register(path=PATH._replace(date=date), transaction_id=uuid4(), tiers=TIERS))
    with pytest.raises(SchemaMismatch, match=f"its directory has 1 date.s., {date} first"):
        init_url(url, scope, **other)
    plain.execute(
        f"DELETE FROM {cassandra_keyspace}.es_days_by_year WHERE region = %s AND cluster = %s AND service_name = %s "
        f"AND year = %s",
        [*scope, year],
    )
    (changed,) = init_url(url, scope, **other)
    assert "a window interval of 300 s" in changed
    assert engine.find(uuid4()) is None


def test_a_clock_beyond_the_margin_starts_nothing(cassandra: Node, cassandra_keyspace: str) -> None:
    class Ahead(SystemTime):
        def wall(self) -> int:
            return super().wall() + 3 * SECOND

    saga: Saga[dict[str, Any], None] = Saga("one", payload=dict)

    @saga.step
    def only(order: dict[str, Any], context: Any) -> None:
        raise AssertionError("it ran")

    @only.revert
    def undo(order: dict[str, Any], context: Any) -> None: ...

    url, scope = cassandra.url(cassandra_keyspace), fresh_scope()
    init_url(url, scope)
    with pytest.raises(ClockSkew):
        Engine(settings_of(url, scope), sagas=[saga], time_source=Ahead()).run(saga, {})
    with closing(open_url(url, scope)) as store:
        assert list(store.days(this_year())) == []


# -- answers of a node -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "means"),
    [
        ("Unavailable", StoreUnavailable),
        ("IsBootstrapping", StoreUnavailable),
        ("Overloaded", OutcomeUnknown),
        ("ServerError", OutcomeUnknown),
        ("WriteTimeout:SIMPLE", OutcomeUnknown),
        ("WriteTimeout:BATCH", OutcomeUnknown),
    ],
)
def test_an_error_instead_of_a_write_is_named_and_the_write_is_not_made_elsewhere(
    opened: Open, proxy: CqlProxy, error: str, means: type[Exception]
) -> None:
    store, started = opened(), row()
    proxy.rule("answer", error=error)
    proxy.reset()
    with pytest.raises(means):
        store.apply(first(started))
    assert proxy.counts().requests == {"EXECUTE": 1}, "not sent again"
    assert store.read(started.transaction_id) is None
    store.apply(first(started))


@pytest.mark.parametrize("error", ["Overloaded", "ServerError", "WriteTimeout:SIMPLE"])
def test_an_error_after_the_write_leaves_it_unknown_and_there(opened: Open, proxy: CqlProxy, error: str) -> None:
    store, started = opened(), row()
    proxy.rule("apply_then_answer", error=error)
    with pytest.raises(OutcomeUnknown):
        store.apply(first(started))
    found = store.read(started.transaction_id)
    assert found is not None
    assert found.row == started


@pytest.mark.parametrize("action", ["close", "lose_answer"])
def test_a_connection_that_ends_leaves_a_write_unknown_and_is_opened_again(
    opened: Open, proxy: CqlProxy, action: Any
) -> None:
    store, started = opened(), row()
    proxy.rule(action)
    with pytest.raises(OutcomeUnknown):
        store.apply(first(started))
    wait_until(lambda: is_there(store, started.transaction_id, action == "lose_answer"))


def is_there(store: Store, transaction_id: uuid.UUID, expected: bool) -> bool:
    """Whether the row is as expected there, once the store answers again."""
    try:
        return (store.read(transaction_id) is not None) is expected
    except StoreUnavailable:
        return False


def test_a_node_that_does_not_answer_leaves_a_write_unknown_after_the_time_out(opened: Open, proxy: CqlProxy) -> None:
    store, started = opened(request_timeout="2500ms"), row()
    proxy.rule("lose_answer", then="silence")
    with pytest.raises(OutcomeUnknown, match="timed out here"):
        store.apply(first(started))
    assert store.read(started.transaction_id) is not None


@pytest.mark.parametrize("applied", [True, False])
def test_a_conditional_write_that_times_out_is_unknown_and_its_holder_finds_out(
    opened: Open, proxy: CqlProxy, applied: bool
) -> None:
    store, key = opened(), uuid4()
    proxy.rule("apply_then_answer" if applied else "answer", conditional=True, error="WriteTimeout:CAS")
    with pytest.raises(OutcomeUnknown):
        store.insert_marker(key, claim("mine"), ttl=30)
    assert store.marker(key, "#claim") == (claim("mine") if applied else None)


@pytest.mark.parametrize("error", ["Unavailable", "Overloaded", "IsBootstrapping", "ServerError", "ReadTimeout"])
def test_any_error_of_a_conditional_write_leaves_it_unknown_as_it_may_come_after_it_was_accepted(
    opened: Open, proxy: CqlProxy, error: str
) -> None:
    store, key = opened(), uuid4()
    proxy.rule("apply_then_answer", conditional=True, error=error)
    with pytest.raises(OutcomeUnknown):
        store.insert_marker(key, claim("mine"), ttl=30)
    assert store.marker(key, "#claim") == claim("mine")


@pytest.mark.parametrize("error", ["Unavailable", "Overloaded", "ReadTimeout", "ServerError"])
def test_a_read_that_fails_is_unavailable(opened: Open, proxy: CqlProxy, error: str) -> None:
    store = opened()
    proxy.rule("answer", error=error, times=5)
    with pytest.raises(StoreUnavailable):
        store.read(uuid4())


# -- what no driver should raise ---------------------------------------------------------------------------------


class NoAnswer(RetryPolicy):  # type: ignore[misc]
    """Fails where the driver asks it, which the driver then gives to the caller as the outcome."""

    def on_write_timeout(self, *args: Any, **kwargs: Any) -> Any:
        raise ValueError("a defect of the policy")


def no_rows(*_: Any) -> Any:
    raise ValueError("a defect of the row factory")


def profile_of(store: CassandraStore, name: str) -> Any:
    """An execution profile of the store's own session."""
    return store._connection().cluster.profile_manager.profiles[name]


def test_any_error_of_the_driver_makes_a_read_unavailable(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened()
    with monkeypatch.context() as patched:
        patched.setattr(profile_of(store, "read"), "row_factory", no_rows)
        with pytest.raises(StoreUnavailable, match="ValueError: a defect of the row factory") as failure:
            store.read(uuid4())
    assert isinstance(failure.value.__cause__, ValueError)
    assert store.read(uuid4()) is None


def test_any_error_of_the_driver_leaves_a_write_that_was_sent_unknown(
    opened: Open, proxy: CqlProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, started, key = opened(), row(), uuid4()
    monkeypatch.setattr(profile_of(store, "write"), "retry_policy", NoAnswer())
    monkeypatch.setattr(profile_of(store, "conditional"), "retry_policy", NoAnswer())
    proxy.rule("apply_then_answer", error="WriteTimeout:SIMPLE")
    with pytest.raises(OutcomeUnknown, match="ValueError: a defect of the policy"):
        store.apply(first(started))
    assert store.read(started.transaction_id) is not None
    proxy.rule("apply_then_answer", conditional=True, error="WriteTimeout:CAS")
    with pytest.raises(OutcomeUnknown, match="ValueError: a defect of the policy"):
        store.insert_marker(key, claim("mine"), ttl=30)
    assert store.marker(key, "#claim") == claim("mine")


def test_a_write_that_could_not_be_sent_beside_another_leaves_the_call_unknown(
    opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, started, other = opened(), row(), row()
    session = store._connection().session
    execute = session.execute_async
    sent: list[Any] = []

    def once(statement: Any, **options: Any) -> Any:
        if sent:
            raise ValueError("it cannot be sent")
        sent.append(statement)
        return execute(statement, **options)

    with monkeypatch.context() as patched:
        patched.setattr(session, "execute_async", once)
        with pytest.raises(OutcomeUnknown, match="ValueError: it cannot be sent"):
            store.apply(first(started), first(other))
    assert store.read(started.transaction_id) is not None, "what was sent was waited for"
    assert store.read(other.transaction_id) is None


def test_a_node_that_forgot_a_statement_is_told_it_again(opened: Open, proxy: CqlProxy) -> None:
    store, started = opened(), row()
    proxy.rule("answer", error="Unprepared")
    proxy.reset()
    store.apply(first(started))
    assert proxy.counts().requests == {"EXECUTE": 2, "PREPARE": 1}
    assert store.read(started.transaction_id) is not None


def test_conditional_statements_go_to_the_local_data_centre_and_plain_ones_to_a_quorum(opened: Open) -> None:
    quorum, serial = ConsistencyLevel.LOCAL_QUORUM, ConsistencyLevel.LOCAL_SERIAL
    profiles = opened()._connection().cluster.profile_manager.profiles
    levels = {"read": quorum, "write": quorum, "conditional": quorum, "serial read": serial}
    for name, level in levels.items():
        assert (profiles[name].consistency_level, profiles[name].serial_consistency_level) == (level, serial)


# -- what is written ---------------------------------------------------------------------------------------------


def test_a_step_is_one_commit_log_append_and_no_batch_log(
    cassandra: Node, cassandra_keyspace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    saga: Saga[dict[str, Any], None] = Saga("three", payload=dict)
    for name in ("reserve", "charge"):
        step = saga.step(named(name))
        step.revert(named(f"undo_{name}"))
    saga.pivot(named("ship"))
    url, scope = cassandra.url(cassandra_keyspace), fresh_scope()
    init_url(url, scope)
    engine = Engine(settings_of(url, scope), sagas=[saga])
    store = engine.node().store
    assert isinstance(store, CassandraStore)
    session = store._connection().session
    traces: list[Any] = []
    execute = session.execute_async

    def traced(statement: Any, *more: Any, **options: Any) -> Any:
        if not isinstance(statement, BatchStatement):
            return execute(statement, *more, **options)
        traces.append(execute(statement, *more, trace=True, **options))
        return traces[-1]

    monkeypatch.setattr(session, "execute_async", traced)
    assert engine.run(saga, {}).completed
    assert len(traces) == 3, "one batch a step"
    for future in traces:
        events = [event.description for event in future.get_query_trace(max_wait=20).events]
        assert len([event for event in events if "Appending to commitlog" in event]) == 1, events
        assert len([event for event in events if "Adding to es_" in event]) >= 2, events
        assert not [event for event in events if "batchlog" in event.lower().replace(" ", "")], events


def named(name: str) -> Any:
    def step(order: dict[str, Any], context: Any) -> None: ...

    step.__name__ = name
    return step


def test_a_live_saga_of_three_steps_is_five_round_trips_at_the_wire(proxy: CqlProxy, cassandra_keyspace: str) -> None:
    saga: Saga[dict[str, Any], None] = Saga("three", payload=dict)
    for name in ("reserve", "charge"):
        saga.step(named(name)).revert(named(f"undo_{name}"))
    saga.pivot(named("ship"))
    url, scope = proxy.url(cassandra_keyspace), fresh_scope()
    init_url(url, scope)
    engine = Engine(settings_of(url, scope), sagas=[saga])
    engine.run(saga, {})
    # Answers wait, so that those that go out together are seen together.
    proxy.delay(0.05)
    proxy.reset()
    assert engine.run(saga, {}).completed
    counts = proxy.counts()
    proxy.delay(0)
    assert counts.rounds == 3 + 2
    # Pointer, row and index; a batch for each step; the watchdog.
    assert counts.requests == {"EXECUTE": 3 + 1, "BATCH": 3}


def test_values_are_as_the_columns_say(opened: Open, plain: Session, cassandra_keyspace: str) -> None:
    store = opened()
    started = replace(row(), committed_steps=("reserve",), retry=Path("2026-01-02", 3, "host-1", 0), waited=5)
    store.apply(first(started, at=1_700_000_000_000_123))
    (found,) = plain.execute(
        f"SELECT running_status, committed_steps, retry_date, retry_window, waited, writetime(running_status) AS at "
        f"FROM {cassandra_keyspace}.es_transaction WHERE region = %s AND cluster = %s AND service_name = %s "
        f"AND transaction_id = %s",
        [*store.scope, started.transaction_id],
    )
    assert found == {
        "running_status": "PROCESSING",
        "committed_steps": ["reserve"],
        "retry_date": "2026-01-02",
        "retry_window": 3,
        "waited": 5,
        "at": 1_700_000_000_000_123,
    }


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("running_status", None, "es_transaction.running_status is NULL"),
        ("running_status", "LOST", "es_transaction.running_status is 'LOST'"),
        ("epoch", None, "es_transaction.epoch is NULL"),
        ("restore_date", None, "es_transaction.restore_* is"),
    ],
)
def test_a_row_that_no_writer_of_ours_wrote_is_told_and_changes_nothing(
    opened: Open, plain: Session, cassandra_keyspace: str, column: str, value: str | None, told: str
) -> None:
    store, started = opened(), row()
    store.apply(first(started))
    plain.execute(
        f"UPDATE {cassandra_keyspace}.es_transaction SET {column} = %s "
        f"WHERE region = %s AND cluster = %s AND service_name = %s AND transaction_id = %s",
        [value, *store.scope, started.transaction_id],
    )
    with pytest.raises(CorruptRow) as failure:
        store.read(started.transaction_id)
    assert told in str(failure.value)
    assert str(started.transaction_id) in str(failure.value)


def test_a_lease_that_was_replaced_by_a_shorter_one_leaves_nothing_that_blocks_the_next(opened: Open) -> None:
    store, key = opened(), uuid4()
    store.insert_marker(key, Marker(step_id="charge", execution_state="long"), ttl=600)
    short = Marker(step_id="charge", execution_state="short")
    assert store.replace_marker(key, short, expected_state="long", ttl=1).applied
    wait_until(lambda: store.marker(key, "charge") is None)
    assert store.markers(key) == ()
    assert store.insert_marker(key, Marker(step_id="charge", execution_state="next"), ttl=600).applied


def test_a_payload_at_the_limit_is_stored_and_one_over_it_is_not(cassandra: Node, cassandra_keyspace: str) -> None:
    saga: Saga[dict[str, Any], None] = Saga("large", payload=dict)
    saga.step(named("only")).revert(named("undo"))
    url, scope = cassandra.url(cassandra_keyspace), fresh_scope()
    init_url(url, scope)
    engine = Engine(settings_of(url, scope, payload_limit=4 * 1024 * 1024), sagas=[saga])
    around = len(saga.codec.encode({"text": ""}, limit=1000))
    largest = "x" * (4 * 1024 * 1024 - around)
    assert engine.run(saga, {"text": largest}).completed
    with pytest.raises(PayloadTooLarge):
        engine.run(saga, {"text": largest + "x"})


def test_what_the_server_finds_too_large_is_refused_and_not_repeated(opened: Open, proxy: CqlProxy) -> None:
    store, started = opened(), replace(row(), payload=b"x" * (9 * 1024 * 1024))
    with pytest.raises(StoreRefused, match="nothing was written"):
        store.apply(first(started))
    assert store.read(started.transaction_id) is None


def test_a_store_that_came_to_rest_has_no_connection_and_opens_one_when_it_is_used(opened: Open) -> None:
    store = opened()
    store.before_fork(5)
    assert not store._link.is_open
    store.after_fork_in_parent()
    assert store.read(uuid4()) is None


def test_a_store_that_was_closed_says_so(opened: Open) -> None:
    store = opened()
    store.close()
    with pytest.raises(StoreUnavailable, match="was closed"):
        store.read(uuid4())


def test_init_schema_is_a_command(cassandra: Node, keyspace: str) -> None:
    app = Flask("shop")
    app.config["STACKSAGA_STORE"] = cassandra.url(keyspace)
    StackSaga(app)
    runner = app.test_cli_runner()
    refused = runner.invoke(args=["stacksaga", "init-schema", "--replication", "three"])
    assert (refused.exit_code, "is not like dc1=3" in refused.output) == (2, True)
    ended = runner.invoke(args=["stacksaga", "init-schema", "--development"])
    assert ended.exit_code == 0, ended.output
    lines = ended.output.splitlines()
    assert lines[0].startswith(f"creating keyspace {keyspace} with replication")
    assert lines[-1].endswith("is ready for default/default/shop")
