"""The proxy before a node, with the driver itself: faults are what they say, and counts are what was sent."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cassandra import ConsistencyLevel, OperationTimedOut, ProtocolVersion, ReadTimeout, Unavailable, WriteTimeout
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable, ResponseFuture, Session
from cassandra.connection import ConnectionException
from cassandra.policies import ConstantReconnectionPolicy, FallthroughRetryPolicy, RoundRobinPolicy, WriteType
from cassandra.protocol import IsBootstrappingErrorMessage, OverloadedErrorMessage, ServerError
from cassandra.query import BatchStatement

from stacksaga_flask.store.cassandra.reactor import connection_class
from tests.services.cassandra.node import Node
from tests.support.cql_frames import error
from tests.support.cql_proxy import CqlProxy, cql_proxy
from tests.support.plain_cql import drop_keyspace, plain_session
from tests.support.waiting import wait_until

INSERT = "INSERT INTO {}.item (id, value) VALUES (?, 'new')"
CONDITIONAL = INSERT + " IF NOT EXISTS"
ELSEWHERE = "INSERT INTO {}.item_elsewhere (id) VALUES (?)"
EXCEPTIONS = {
    "Overloaded": OverloadedErrorMessage,
    "Unavailable": Unavailable,
    "IsBootstrapping": IsBootstrappingErrorMessage,
    "ServerError": ServerError,
    "ReadTimeout": ReadTimeout,
    "WriteTimeout:SIMPLE": WriteTimeout,
    "WriteTimeout:BATCH": WriteTimeout,
    "WriteTimeout:CAS": WriteTimeout,
}
each_error = pytest.mark.parametrize("name", EXCEPTIONS)


@pytest.fixture(scope="module")
def proxy(cassandra: Node) -> Iterator[CqlProxy]:
    with cql_proxy(cassandra) as started:
        yield started


@pytest.fixture(autouse=True)
def nothing_is_left_to_do(proxy: CqlProxy) -> Iterator[None]:
    yield
    proxy.forget_rules()
    proxy.release()
    proxy.delay(0)
    proxy.accept(True)


@pytest.fixture(scope="module")
def plain(cassandra: Node) -> Iterator[Session]:
    """A session beside the proxy."""
    with plain_session(cassandra) as session:
        yield session


@pytest.fixture(scope="module")
def keyspace(cassandra: Node, plain: Session) -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex[:12]}"
    replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    plain.execute(f"CREATE KEYSPACE {name} WITH replication = {replication}")
    plain.execute(f"CREATE TABLE {name}.item (id uuid PRIMARY KEY, value text)")
    plain.execute(f"CREATE TABLE {name}.item_elsewhere (id uuid PRIMARY KEY)")
    yield name
    drop_keyspace(cassandra, name)


@contextmanager
def connected(proxy: CqlProxy, keyspace: str | None = None, **options: Any) -> Iterator[Session]:
    profile = ExecutionProfile(
        load_balancing_policy=RoundRobinPolicy(), retry_policy=FallthroughRetryPolicy(), request_timeout=10
    )
    cluster = Cluster(
        [proxy.host],
        port=proxy.port,
        connection_class=connection_class(),
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        reconnection_policy=ConstantReconnectionPolicy(0.1, max_attempts=None),
        **{"protocol_version": ProtocolVersion.V4, **options},
    )
    try:
        yield cluster.connect(keyspace)
    finally:
        cluster.shutdown()


class Client:
    """The driver behind the proxy, and what is really in the table."""

    def __init__(self, session: Session, plain: Session, keyspace: str) -> None:
        self.session = session
        self.keyspace = keyspace
        self._plain = plain
        self.insert = session.prepare(INSERT.format(keyspace))
        self.conditional = session.prepare(CONDITIONAL.format(keyspace))
        self.elsewhere = session.prepare(ELSEWHERE.format(keyspace))
        self.key = uuid.uuid4()

    def write(self) -> None:
        """One plain insert, which waits for its answer."""
        self.session.execute(self.insert, (self.key,))

    def begin(self) -> ResponseFuture:
        """One plain insert, which doesn't wait."""
        return self.session.execute_async(self.insert, (self.key,))

    def is_written(self) -> bool:
        """Whether the row is there, asked beside the proxy."""
        found = self._plain.execute(f"SELECT value FROM {self.keyspace}.item WHERE id = %s", (self.key,))
        return list(found) == [{"value": "new"}]


@pytest.fixture
def client(proxy: CqlProxy, plain: Session, keyspace: str) -> Iterator[Client]:
    with connected(proxy) as session:
        client = Client(session, plain, keyspace)
        proxy.reset()
        yield client


# -- errors ------------------------------------------------------------------------------------------------------


@each_error
def test_an_error_instead_of_the_request_is_the_drivers_of_that_name_and_nothing_is_written(
    client: Client, proxy: CqlProxy, name: str
) -> None:
    proxy.rule("answer", error=name)
    with pytest.raises(EXCEPTIONS[name]):
        client.write()
    assert not client.is_written()
    client.write()
    assert client.is_written(), "only the next request met the rule"


@each_error
def test_an_error_instead_of_the_answer_is_the_drivers_of_that_name_and_the_row_is_written(
    client: Client, proxy: CqlProxy, name: str
) -> None:
    proxy.rule("apply_then_answer", error=name)
    with pytest.raises(EXCEPTIONS[name]):
        client.write()
    assert client.is_written()


def test_the_driver_reads_the_facts_of_each_error(client: Client, proxy: CqlProxy) -> None:
    proxy.rule("answer", error="Unavailable")
    with pytest.raises(Unavailable) as unavailable:
        client.write()
    proxy.rule("answer", error="WriteTimeout:BATCH")
    with pytest.raises(WriteTimeout) as not_written:
        client.write()
    proxy.rule("answer", error="ReadTimeout")
    with pytest.raises(ReadTimeout) as not_read:
        client.write()
    told = unavailable.value
    assert (told.consistency, told.required_replicas, told.alive_replicas) == (ConsistencyLevel.LOCAL_QUORUM, 2, 1)
    told = not_written.value
    assert (told.write_type, told.required_responses, told.received_responses) == (WriteType.BATCH, 1, 0)
    told = not_read.value
    assert (told.required_responses, told.received_responses, told.data_retrieved) == (1, 0, False)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # The protocol's version 4, section 9: code, message, and what each code adds.
        ("ServerError", "00000000 0019 %s"),
        ("Unavailable", "00001000 0019 %s 0006 00000002 00000001"),
        ("Overloaded", "00001001 0018 %s"),
        ("IsBootstrapping", "00001002 001d %s"),
        ("WriteTimeout:CAS", "00001100 001a %s 0006 00000000 00000001 0003 434153"),
        ("ReadTimeout", "00001200 0019 %s 0006 00000000 00000001 00"),
        ("Unprepared", "00002500 0018 %s 0002 abcd"),
    ],
)
def test_an_error_has_the_bytes_that_the_protocol_says(name: str, expected: str) -> None:
    told = f"{name.partition(':')[0]}, by the proxy".encode()
    body = bytes.fromhex(expected % told.hex())
    header = bytes.fromhex("84 00 0007 00") + len(body).to_bytes(4, "big")
    assert error(7, name, b"\xab\xcd").encoded() == header + body


@pytest.mark.parametrize("applied", [True, False])
def test_a_conditional_write_times_out_applied_or_not_and_a_plain_one_is_let_through(
    client: Client, proxy: CqlProxy, applied: bool
) -> None:
    proxy.rule("apply_then_answer" if applied else "answer", conditional=True, error="WriteTimeout:CAS")
    client.session.execute(client.elsewhere, (client.key,))
    with pytest.raises(WriteTimeout) as failure:
        client.session.execute(client.conditional, (client.key,))
    assert failure.value.write_type == WriteType.CAS
    assert client.is_written() is applied


def test_the_driver_prepares_again_what_is_said_to_be_unprepared(client: Client, proxy: CqlProxy) -> None:
    proxy.rule("answer", error="Unprepared")
    client.write()
    assert client.is_written()
    counts = proxy.counts()
    assert counts.requests == {"EXECUTE": 2, "PREPARE": 1}
    assert counts.rounds == 3


# -- connections -------------------------------------------------------------------------------------------------


def test_a_lost_answer_ends_the_connection_and_the_row_is_written(client: Client, proxy: CqlProxy) -> None:
    proxy.rule("lose_answer")
    with pytest.raises(ConnectionException):
        client.write()
    assert client.is_written()


def test_a_lost_answer_in_silence_lets_the_driver_wait_and_the_row_is_written(client: Client, proxy: CqlProxy) -> None:
    proxy.rule("lose_answer", then="silence")
    with pytest.raises(OperationTimedOut):
        client.session.execute(client.insert, (client.key,), timeout=0.5)
    assert client.is_written()


def test_a_lost_answer_does_not_take_the_answer_of_a_slower_request_with_it(client: Client, proxy: CqlProxy) -> None:
    proxy.rule("lose_answer", table="item")
    proxy.rule("hold", table="item_elsewhere")
    slower = client.session.execute_async(client.elsewhere, (client.key,))
    lost = client.begin()
    wait_until(client.is_written)
    proxy.release()
    slower.result()
    with pytest.raises(ConnectionException):
        lost.result()


def test_a_closed_connection_has_written_nothing(client: Client, proxy: CqlProxy) -> None:
    proxy.rule("close")
    with pytest.raises(ConnectionException):
        client.write()
    assert proxy.counts().hits[-1] == 1
    assert not client.is_written()


def test_a_held_request_is_under_way_until_it_is_released(client: Client, proxy: CqlProxy) -> None:
    proxy.rule("hold")
    held = client.begin()
    wait_until(lambda: proxy.counts().hits[-1] == 1)
    assert not client.is_written()
    proxy.release()
    held.result()
    assert client.is_written()


def test_connections_are_refused_and_accepted_again(client: Client, proxy: CqlProxy) -> None:
    proxy.accept(False)
    proxy.close_all()
    wait_until(lambda: not answers(client))
    with pytest.raises(NoHostAvailable), connected(proxy):
        pass
    proxy.accept(True)
    wait_until(lambda: answers(client))


def answers(client: Client) -> bool:
    try:
        client.write()
    except (NoHostAvailable, ConnectionException):
        return False
    return True


def test_a_driver_that_may_choose_goes_down_to_the_version_the_proxy_speaks(proxy: CqlProxy) -> None:
    options = {"protocol_version": ProtocolVersion.V5}
    with pytest.raises(NoHostAvailable), connected(proxy, **options):
        pass
    cluster = Cluster([proxy.host], port=proxy.port, connection_class=connection_class())
    try:
        cluster.connect().execute("SELECT key FROM system.local")
        assert cluster.protocol_version == ProtocolVersion.V4
    finally:
        cluster.shutdown()


# -- which requests ----------------------------------------------------------------------------------------------


def test_a_rule_is_for_its_opcode_table_and_number_of_requests_only(client: Client, proxy: CqlProxy) -> None:
    proxy.rule("answer", error="Overloaded", times=2, opcode="EXECUTE", table="item")
    client.session.execute(client.elsewhere, (client.key,))
    client.session.execute(batch(client))
    assert proxy.counts().hits[-1] == 0
    for _ in range(2):
        with pytest.raises(OverloadedErrorMessage):
            client.write()
    client.write()
    assert proxy.counts().hits[-1] == 2


def test_a_rule_knows_the_tables_of_a_batch_of_prepared_statements_and_texts(client: Client, proxy: CqlProxy) -> None:
    proxy.rule("answer", error="Overloaded", times=2, opcode="BATCH", table="item_elsewhere")
    client.session.execute(batch(client))
    texts = batch(client)
    texts.add(f"INSERT INTO {client.keyspace}.item_elsewhere (id) VALUES (%s)", (client.key,))
    prepared = batch(client)
    prepared.add(client.elsewhere, (client.key,))
    for told in (texts, prepared):
        with pytest.raises(OverloadedErrorMessage):
            client.session.execute(told)


def test_a_rule_knows_the_table_of_a_statement_that_the_node_warned_of(proxy: CqlProxy, keyspace: str) -> None:
    with connected(proxy, keyspace) as session:
        # Prepared after USE, which Cassandra answers with a warning before the id.
        insert = session.prepare("INSERT INTO item (id) VALUES (?)")
        proxy.rule("answer", error="Overloaded", table="item")
        with pytest.raises(OverloadedErrorMessage):
            session.execute(insert, (uuid.uuid4(),))


def batch(client: Client) -> BatchStatement:
    made = BatchStatement()
    made.add(client.insert, (client.key,))
    return made


# -- counts ------------------------------------------------------------------------------------------------------


def test_requests_one_after_the_other_are_a_round_each(client: Client, proxy: CqlProxy) -> None:
    client.write()
    client.session.execute(batch(client))
    client.session.execute(f"SELECT value FROM {client.keyspace}.item WHERE id = %s", (client.key,))
    client.session.prepare(f"SELECT id FROM {client.keyspace}.item")
    counts = proxy.counts()
    assert counts.requests == {"EXECUTE": 1, "BATCH": 1, "QUERY": 1, "PREPARE": 1}
    assert counts.rounds == 4


def test_requests_that_go_out_together_are_one_round_and_each_answer_waits(client: Client, proxy: CqlProxy) -> None:
    proxy.delay(0.2)
    begun = time.monotonic()
    together = [client.begin() for _ in range(5)]
    for future in together:
        future.result()
    assert time.monotonic() - begun >= 0.2
    client.write()
    counts = proxy.counts()
    assert (counts.requests, counts.rounds) == ({"EXECUTE": 6}, 2)
    proxy.reset()
    assert proxy.counts()[:2] == ({}, 0)


def test_what_the_driver_asks_about_the_cluster_is_not_counted(proxy: CqlProxy) -> None:
    proxy.reset()
    with connected(proxy) as session:
        assert session.cluster.metadata.all_hosts()
    assert proxy.counts()[:2] == ({}, 0)
