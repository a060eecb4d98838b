"""What becomes of calls when a real PostgreSQL server, or a connection to it, fails under them; and forks."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from uuid import UUID, uuid4

import pg8000.dbapi
import pytest
from msgspec.structs import replace

from stacksaga_flask.errors import OutcomeUnknown, StoreUnavailable
from stacksaga_flask.store.contract import FrozenRow, Store
from stacksaga_flask.store.sql.backend import Failure
from stacksaga_flask.store.sql.postgresql import commit_failure, failure
from stacksaga_flask.store.sql.postgresql_connection import Connection
from stacksaga_flask.testing.conformance.samples import PATH, T, first, read_row, register, row, then
from tests.services.postgresql import PASSWORD, USERNAME, Server
from tests.support.postgresql import Database, Wire
from tests.support.waiting import wait_until


@pytest.fixture
def database(postgresql: Server) -> Iterator[Database]:
    """A database with all tables."""
    with closing(Database(postgresql)) as made:
        made.init()
        yield made


def once(statement: str, fault: Callable[[Connection], None]) -> Callable[[Connection, str], None]:
    """Do something before such a statement is sent, the first time."""
    done: list[str] = []

    def before(connection: Connection, sent: str) -> None:
        if sent.startswith(statement) and not done:
            done.append(sent)
            fault(connection)

    return before


def use_together(database: Database, store: Store, count: int) -> None:
    """Have so many connections open and at rest."""
    with database.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("LOCK TABLE es_transaction")
        done = [database.meanwhile(store.apply, first(row())) for _ in range(count)]
        database.wait_for_blocked(count)
        cursor.execute("COMMIT")
    for each in done:
        each.result()
    assert database.connections() == count


# -- lost connections ------------------------------------------------------------------------------------------


def test_a_restart_of_the_server_between_calls_is_not_noticed(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    wire, started = Wire(), row()
    store = database.store(connect=wire.connect)
    use_together(database, store, 5)
    database.server.restart()
    wire.statements.clear()
    store.apply(register(transaction_id=started.transaction_id), first(started))
    assert wire.statements.count("BEGIN") == 2, "one of the five was tried, and the other four no more"
    assert database.connections() == 1
    assert list(store.pointers(PATH)) == [started.transaction_id]
    assert [record for record in caplog.records if record.name.startswith("sqlalchemy")] == []


def test_a_read_outlives_a_restart_of_the_server(database: Database) -> None:
    store, started = database.store(), row()
    store.apply(first(started))
    database.server.restart()
    assert read_row(store, started.transaction_id) == started


def test_a_server_that_is_down_is_unavailable_until_it_is_up(database: Database) -> None:
    store, never, started = database.store(), row(), row()
    store.apply(first(row()))
    database.server.stop()
    try:
        with pytest.raises(StoreUnavailable, match="see that host and port are right and the server is up"):
            store.apply(first(never))
        with pytest.raises(StoreUnavailable):
            store.read(never.transaction_id)
    finally:
        database.server.start()
    store.apply(first(started))
    assert read_row(store, started.transaction_id) == started
    assert store.read(never.transaction_id) is None


@pytest.mark.parametrize("how", [Server.stop, Server.kill])
def test_what_was_acknowledged_before_the_server_died_is_there_and_callers_go_on(
    database: Database, how: Callable[[Server], None]
) -> None:
    store = database.store()
    acknowledged: list[UUID] = []
    refused: list[UUID] = []
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            transaction_id = uuid4()
            try:
                store.apply(register(transaction_id=transaction_id), first(row(transaction_id)))
            except StoreUnavailable:
                refused.append(transaction_id)
            except OutcomeUnknown:
                continue
            else:
                acknowledged.append(transaction_id)

    writers = [database.meanwhile(write) for _ in range(8)]
    try:
        wait_until(lambda: len(acknowledged) >= 40)
        how(database.server)
        wait_until(lambda: len(refused) >= 8)
        database.server.start()
        before = len(acknowledged)
        wait_until(lambda: len(acknowledged) >= before + 40)
    finally:
        done.set()
    for each in writers:
        each.result()
    found = set(store.pointers(PATH))
    assert set(acknowledged) <= found
    assert not set(refused) & found
    assert {UUID(text) for (text,) in database.sql("SELECT transaction_id FROM es_transaction")} == found


def test_a_connection_that_ends_within_a_transaction_is_replaced_once(database: Database) -> None:
    wire, started = Wire(), row()
    store = database.store(connect=wire.connect)
    wire.before = once("INSERT INTO es_transaction ", lambda connection: database.end_connections())
    store.apply(register(transaction_id=started.transaction_id), first(started))
    assert wire.statements.count("BEGIN") == 2
    assert read_row(store, started.transaction_id) == started
    assert list(store.pointers(PATH)) == [started.transaction_id]


def test_connections_that_end_again_and_again_are_unavailable(database: Database) -> None:
    wire, started = Wire(), row()
    store = database.store(connect=wire.connect)

    def end(connection: Connection, statement: str) -> None:
        if statement.startswith("INSERT INTO es_transaction "):
            database.end_connections()

    wire.before = end
    with pytest.raises(StoreUnavailable):
        store.apply(first(started))
    assert wire.statements.count("BEGIN") == 2
    wire.before = Wire().before
    assert store.read(started.transaction_id) is None


def test_connections_to_a_server_that_has_become_a_standby_are_replaced_by_those_to_the_primary(
    database: Database,
) -> None:
    wire, started = Wire(), row()
    store = database.store(connect=wire.connect)
    use_together(database, store, 5)
    wire.statements.clear()
    become_a_standby = "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"
    wire.before = once("BEGIN", lambda connection: connection.execute_simple(become_a_standby))
    store.apply(register(transaction_id=started.transaction_id), first(started))
    assert wire.statements.count("BEGIN") == 2
    # The other four may lead to the standby too.
    wait_until(lambda: database.connections() == 1)
    assert read_row(store, started.transaction_id) == started


def test_a_standby_is_tried_once_more_and_then_told(database: Database) -> None:
    wire = Wire()
    database.sql(f"ALTER DATABASE {database.name} SET default_transaction_read_only = on")
    store = database.store(connect=wire.connect)
    with pytest.raises(StoreUnavailable, match="name the primary and not a standby"):
        store.apply(first(row()))
    assert wire.statements.count("BEGIN") == 2


@pytest.mark.parametrize("is_there", [True, False])
def test_a_commit_without_an_answer_is_unknown_and_reading_tells(database: Database, is_there: bool) -> None:
    wire, started = Wire(), row()
    store = database.store(connect=wire.connect)

    def lose(connection: Connection) -> None:
        if is_there:
            connection.execute_simple("COMMIT")
        database.end_connections()

    wire.before = once("COMMIT", lose)
    with pytest.raises(OutcomeUnknown, match="may have been written") as failed:
        store.apply(register(transaction_id=started.transaction_id), first(started))
    assert isinstance(failed.value.__cause__, pg8000.dbapi.Error | OSError)
    assert wire.statements.count("COMMIT") == 1
    assert (store.read(started.transaction_id) is not None) is is_there
    assert store.has_pointer(PATH, started.transaction_id) is is_there
    store.apply(first(row()))


def test_a_server_that_falls_silent_is_unavailable_after_the_time_out_and_not_asked_again(database: Database) -> None:
    wire = Wire()
    store = database.store(connect=wire.connect, timeout=0.2)
    ((pid,),) = store._pool.run(lambda cursor: (cursor.execute("SELECT pg_backend_pid()"), cursor.fetchall())[1])
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable, match="timed out"):
            store.apply(first(row()))
    finally:
        os.kill(pid, signal.SIGCONT)
    assert wire.statements.count("BEGIN") == 1
    started = row()
    store.apply(first(started))
    assert read_row(store, started.transaction_id) == started


class Interrupted(Exception):
    """What somebody throws into a call."""


def test_a_call_that_is_interrupted_leaves_no_answer_for_the_next(database: Database) -> None:
    wire, started = Wire(), row()
    store = database.store(connect=wire.connect)
    store.apply(first(started))

    def interrupt(connection: Connection) -> None:
        connection.send_QUERY("SELECT 'an answer that nobody reads'")
        connection._sock.flush()
        raise Interrupted

    calls: dict[str, Callable[[], object]] = {
        "SELECT": lambda: store.read(started.transaction_id),
        "UPDATE": lambda: store.apply(then(replace(started, attempt=1), at=T + 1)),
        "COMMIT": lambda: store.apply(then(replace(started, attempt=1), at=T + 1)),
    }
    for statement, call in calls.items():
        wire.before = once(statement, interrupt)
        with pytest.raises(Interrupted):
            call()
        assert read_row(store, started.transaction_id) == started
    assert database.connections() == 1


# -- one time-out for a whole call ------------------------------------------------------------------------------


@contextmanager
def takes_at_most(seconds: float) -> Iterator[None]:
    """Fail if it takes longer."""
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    assert took <= seconds, f"it took {took:.2f} s"


def write(store: Store) -> None:
    """Write a row."""
    store.apply(first(row()))


def read(store: Store) -> None:
    """Read a row."""
    store.read(uuid4())


@pytest.mark.parametrize(("call", "told", "kept"), [(write, "due to lock timeout", 20), (read, "timed out", 19)])
def test_what_is_spent_on_waiting_for_a_connection_is_not_left_to_the_statement(
    database: Database, call: Callable[[Store], None], told: str, kept: int
) -> None:
    store = database.store(timeout=2)
    store.apply(first(row()))
    with database.cursor() as cursor, database.used_up(store) as free:
        cursor.execute("BEGIN")
        cursor.execute("LOCK TABLE es_transaction IN ACCESS EXCLUSIVE MODE")
        threading.Timer(1.2, free).start()
        with takes_at_most(2.3), pytest.raises(StoreUnavailable, match=told):
            call(store)
        cursor.execute("ROLLBACK")
    wait_until(lambda: database.connections() == kept)
    store.apply(first(row()))


SLOW = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN PERFORM pg_sleep({seconds}); {then} END $$
"""
SLOWLY = "CREATE TRIGGER slow BEFORE INSERT ON {} FOR EACH ROW EXECUTE FUNCTION slow()"


def test_statements_that_are_slow_together_end_with_the_call(database: Database) -> None:
    database.sql(SLOW.format(seconds=0.6, then="RETURN NEW;"))
    for table in ("es_days_by_year", "es_recovery_windows_by_day", "es_buckets_by_instance"):
        database.sql(SLOWLY.format(table))
    store = database.store(timeout=1.5)
    with takes_at_most(1.7), pytest.raises(StoreUnavailable, match="due to statement timeout"):
        store.apply(register())
    assert list(store.days(2023)) == []
    assert database.connections() == 1, "the server was told what is left, so the connection is good"


def test_repeats_end_with_the_call(database: Database) -> None:
    database.sql(SLOW.format(seconds=0.6, then="RAISE EXCEPTION 'again' USING ERRCODE = '40001';"))
    database.sql(SLOWLY.format("es_transaction"))
    wire = Wire()
    store = database.store(timeout=1.5, connect=wire.connect)
    with takes_at_most(1.7), pytest.raises(StoreUnavailable, match="due to statement timeout"):
        store.apply(first(row()))
    assert wire.statements.count("BEGIN") == 3


def test_a_server_that_accepts_and_says_nothing_is_unavailable_after_the_time_out(database: Database) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as silent:
        store = database.store(timeout=0.5, port=silent.getsockname()[1])
        with takes_at_most(0.8), pytest.raises(StoreUnavailable, match="timed out"):
            store.now()


def test_a_commit_for_which_no_time_is_left_is_not_sent_and_nothing_is_written(database: Database) -> None:
    wire, started = Wire(), row()
    store = database.store(timeout=0.5, connect=wire.connect)

    def hesitate(connection: Connection) -> None:
        threading.Event().wait(0.6)

    wire.before = once("COMMIT", hesitate)
    with pytest.raises(StoreUnavailable, match=r"nothing is left of the 0\.5 s that a call may take"):
        store.apply(first(started))
    assert store.read(started.transaction_id) is None


# -- conflicts that the server tells ---------------------------------------------------------------------------

FAILS = """
CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'told by the test' USING ERRCODE = '{code}'; END $$
"""
AT_ONCE = "CREATE TRIGGER fails BEFORE INSERT ON es_frozen_transaction FOR EACH ROW EXECUTE FUNCTION fails()"
AT_COMMIT = (
    "CREATE CONSTRAINT TRIGGER fails AFTER INSERT ON es_frozen_transaction DEFERRABLE INITIALLY DEFERRED "
    "FOR EACH ROW EXECUTE FUNCTION fails()"
)


@pytest.mark.parametrize(("trigger", "attempts"), [(AT_ONCE, 4), (AT_COMMIT, 1)])
def test_a_conflict_that_does_not_end_is_unavailable_and_nothing_is_written(
    database: Database, trigger: str, attempts: int
) -> None:
    database.sql(FAILS.format(code="40001"))
    database.sql(trigger)
    wire, started = Wire(), row()
    store = database.store(connect=wire.connect)
    frozen = FrozenRow(transaction_id=started.transaction_id, frozen_at=T, reason="a test")
    with pytest.raises(StoreUnavailable, match=r"told by the test \(40001\): nothing was written"):
        store.apply(register(), replace(first(started), frozen=frozen))
    assert wire.statements.count("BEGIN") == attempts
    assert store.read(started.transaction_id) is None
    assert list(store.pointers(PATH)) == []
    store.apply(register(), first(started))
    assert database.connections() == 1, "the connection was good"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("40P01", Failure.CONFLICT),
        ("40001", Failure.CONFLICT),
        ("57014", Failure.REFUSED),
        ("55P03", Failure.REFUSED),
        ("23505", Failure.REFUSED),
        ("57P01", Failure.LOST),
        ("25006", Failure.LOST),
        ("08006", Failure.LOST),
    ],
)
def test_what_the_server_tells_says_what_the_connection_is_worth(code: str, expected: Failure) -> None:
    assert failure(pg8000.dbapi.DatabaseError({"C": code, "M": "told by the test"})) is expected


@pytest.mark.parametrize("code", ["57P01", "58030", "XX000", "40003", "08007"])
def test_a_commit_that_failed_otherwise_than_by_a_conflict_is_unknown(code: str) -> None:
    error = pg8000.dbapi.DatabaseError({"C": code, "M": "told by the test"})
    assert isinstance(commit_failure("PostgreSQL", error), OutcomeUnknown)


# -- forks -----------------------------------------------------------------------------------------------------


def test_a_store_that_came_to_rest_has_no_connection_and_opens_one_when_it_is_used(database: Database) -> None:
    store, started = database.store(), row()
    use_together(database, store, 5)
    store.before_fork(1)
    wait_until(lambda: database.connections() == 0)
    waits = database.meanwhile(store.apply, first(started))
    assert not waits.done()
    store.after_fork_in_parent()
    waits.result()
    assert read_row(store, started.transaction_id) == started


def test_calls_go_on_if_the_last_moment_before_a_fork_is_interrupted(database: Database) -> None:
    interrupted: list[str] = []

    class Interrupting(Connection):
        def close(self) -> None:
            super().close()
            if not interrupted:
                interrupted.append("once")
                raise KeyboardInterrupt

    store, started = database.store(connect=Interrupting), row()
    store.apply(first(row()))
    with pytest.raises(KeyboardInterrupt):
        store.before_fork(1)
    database.meanwhile(store.apply, first(started)).result(10)
    assert read_row(store, started.transaction_id) == started


def test_a_fork_does_not_come_while_a_call_is_under_way_for_longer(database: Database) -> None:
    store, locked = database.store(), row()
    store.apply(first(locked))
    with database.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("LOCK TABLE es_transaction")
        waits = database.meanwhile(store.apply, then(replace(locked, attempt=1), at=T + 1))
        database.wait_for_blocked()
        with pytest.raises(StoreUnavailable, match=r"calls were still under way after 0\.1 s"):
            store.before_fork(0.1)
        cursor.execute("ROLLBACK")
    waits.result()
    store.apply(then(replace(locked, attempt=2), at=T + 2))


FORKS = """
import os, sys
from uuid import UUID
from stacksaga_flask.testing.conformance.samples import first, row
from tests.support.opening import SHOP, open_url

def opened():
    return open_url(sys.argv[1], SHOP, store_username=sys.argv[2], store_password=sys.argv[3])

store = opened()
store.apply(first(row(UUID(int=1))))
store.before_fork(1)
child = os.fork()
if child == 0:
    own = opened()
    own.apply(first(row(UUID(int=2))))
    own.close()
    os._exit(0)
store.after_fork_in_parent()
store.apply(first(row(UUID(int=3))))
assert os.waitpid(child, 0)[1] == 0
store.apply(first(row(UUID(int=4))))
store.close()
"""


@pytest.mark.parametrize("patch", ["", "import gevent.monkey; gevent.monkey.patch_all()\n"])
def test_parent_and_child_write_on_connections_of_their_own(database: Database, patch: str) -> None:
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", "-c", patch + FORKS]
    subprocess.run([*command, database.url, USERNAME, PASSWORD], check=True, timeout=60)
    found = database.sql("SELECT transaction_id FROM es_transaction ORDER BY 1")
    assert [UUID(text).int for (text,) in found] == [1, 2, 3, 4]


def test_a_closed_store_says_so_and_may_be_closed_again(database: Database) -> None:
    store = database.store()
    store.apply(first(row()))
    store.close()
    wait_until(lambda: database.connections() == 0)
    with pytest.raises(StoreUnavailable, match="closed"):
        store.apply(first(row()))
    with pytest.raises(StoreUnavailable, match="closed"):
        store.read(uuid4())
    store.close()
