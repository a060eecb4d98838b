"""What is PostgreSQL's own, on a real server: connections, their errors, the schema, and many writers at once.

The contract is asserted by the conformance suite, and what a server's failures do in `test_postgresql_faults`.
"""

from __future__ import annotations

import ssl
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path as File
from typing import Any
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace
from stacksaga_schema import SCHEMA_VERSION, in_dialect, migrations

from stacksaga_flask.errors import Fenced, SchemaMismatch, SchemaMissing, StoreError, StoreRefused, StoreUnavailable
from stacksaga_flask.store.contract import Expected, Grid, Marker, Path, Scope
from stacksaga_flask.store.sql.postgresql import CONNECTIONS
from stacksaga_flask.testing.conformance.samples import (
    PATH,
    T,
    claim,
    delete,
    drop,
    first,
    read_row,
    register,
    row,
    then,
)
from tests.services.postgresql import PASSWORD, USERNAME, Server
from tests.support.opening import SHOP, open_url
from tests.support.postgresql import Database, Wire

TIERS = (
    "es_days_by_year",
    "es_recovery_windows_by_day",
    "es_instances_by_recovery_window",
    "es_buckets_by_instance",
    "es_recovery_transactions_by_instance",
)


@pytest.fixture
def empty(postgresql: Server) -> Iterator[Database]:
    """A database without tables."""
    with closing(Database(postgresql)) as database:
        yield database


@pytest.fixture
def database(empty: Database) -> Database:
    """A database with all tables."""
    empty.init()
    return empty


def opened(database: Database) -> None:
    """Open the store as an application does, and close it."""
    open_url(database.url, SHOP, store_username=USERNAME, store_password=PASSWORD).close()


def refused(where: Database, **options: Any) -> StoreError:
    """The error of a first call."""
    with pytest.raises(StoreError) as failure:
        where.store(**options).now()
    assert PASSWORD not in str(failure.value)
    return failure.value


# -- connections -----------------------------------------------------------------------------------------------


def test_every_connection_loses_nothing_waits_for_nothing_long_and_says_whose_it_is(database: Database) -> None:
    with database.cursor() as cursor:
        cursor.execute(
            "SELECT name, setting FROM pg_settings WHERE name IN ('synchronous_commit', 'statement_timeout', "
            "'lock_timeout', 'idle_in_transaction_session_timeout', 'default_transaction_isolation', "
            "'application_name', 'TimeZone', 'client_encoding')"
        )
        assert dict(cursor.fetchall()) == {
            "synchronous_commit": "on",
            "statement_timeout": "4750",
            "lock_timeout": "4500",
            "idle_in_transaction_session_timeout": "5000",
            "default_transaction_isolation": "read committed",
            "application_name": "stacksaga",
            "TimeZone": "UTC",
            "client_encoding": "UTF8",
        }


def test_a_wrong_password_is_told_with_what_was_tried_and_the_remedy(database: Database) -> None:
    error = refused(database, password="hunter2")
    told = str(error)
    assert type(error) is StoreRefused
    assert f"PostgreSQL at 127.0.0.1:{database.server.port}, database {database.name}, user {USERNAME}" in told
    assert "password authentication failed" in told
    assert "set STACKSAGA_STORE_USERNAME and STACKSAGA_STORE_PASSWORD" in told
    assert "hunter2" not in told
    assert error.__cause__ is not None


def test_no_password_where_one_is_needed_is_told_alike(database: Database) -> None:
    assert "STACKSAGA_STORE_PASSWORD_FILE" in str(refused(database, password=None))


def test_a_database_that_is_not_there_is_told_with_the_remedy(database: Database) -> None:
    error = refused(database, database="nowhere")
    assert type(error) is StoreRefused
    assert 'database "nowhere" does not exist (3D000): create it (`createdb`), then run `flask stack' in str(error)


def test_a_port_without_a_server_is_unavailable(database: Database) -> None:
    error = refused(database, port=1)
    assert type(error) is StoreUnavailable
    assert "127.0.0.1:1" in str(error)
    assert "Connection refused: see that host and port are right and the server is up" in str(error)


def test_what_is_no_hosts_name_is_unavailable(database: Database) -> None:
    assert "'db..shop' is no host's name" in str(refused(database, host="db..shop"))


def test_a_server_without_tls_is_told_with_the_remedy(database: Database) -> None:
    error = refused(database, ssl_context=ssl.create_default_context())
    assert type(error) is StoreRefused
    assert "offers no TLS: switch it on there, or set STACKSAGA_STORE_TLS to False" in str(error)


@contextmanager
def over_tls(server: Server, folder: File) -> Iterator[File]:
    """Let the server speak TLS with a certificate for 127.0.0.1, whose file is given."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=database"]
    places = ["-addext", "subjectAltName=IP:127.0.0.1", "-out", str(certificate), "-keyout", str(key)]
    subprocess.run([*command, *places], check=True, capture_output=True)
    server.use_tls(certificate.read_text(), key.read_text())
    yield certificate
    server.use_no_tls()


def test_tls_is_spoken_with_a_server_that_can_be_trusted_and_no_other(database: Database, tmp_path: File) -> None:
    with over_tls(database.server, tmp_path) as certificate:
        store = database.store(ssl_context=ssl.create_default_context(cafile=certificate))
        store.apply(first(row()))
        sessions = "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE datname = %s"
        assert database.server.sql("postgres", sessions, (database.name,)) == [[True]]
        untrusted = refused(database, ssl_context=ssl.create_default_context())
        misnamed = refused(database, host="localhost", ssl_context=ssl.create_default_context(cafile=certificate))
    for error in (untrusted, misnamed):
        assert type(error) is StoreRefused
        assert "STACKSAGA_STORE_CA_FILE, and the host in STACKSAGA_STORE as the certificate does" in str(error)


@pytest.fixture
def clerk(database: Database) -> Iterator[str]:
    """A user who may log in and no more, with the password of all."""
    name = f"clerk_{uuid.uuid4().hex[:12]}"
    database.sql(f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'")
    yield name
    database.sql(f"DROP OWNED BY {name}")
    database.sql(f"DROP ROLE {name}")


def test_a_user_without_rights_on_the_tables_is_told_which_to_grant(database: Database, clerk: str) -> None:
    store = database.store(username=clerk)
    with pytest.raises(StoreRefused, match=r"permission denied for table es_transaction .*: grant this user SELECT"):
        store.read(uuid4())
    rights = "SELECT, INSERT, UPDATE, DELETE"
    database.sql(f"GRANT {rights} ON ALL TABLES IN SCHEMA public TO {clerk}")
    started = row()
    store.apply(register(), first(started))
    assert read_row(store, started.transaction_id) == started


def test_too_many_connections_are_unavailable(database: Database, clerk: str) -> None:
    database.sql(f"ALTER ROLE {clerk} CONNECTION LIMIT 0")
    error = refused(database, username=clerk)
    assert type(error) is StoreUnavailable
    assert "raise the server's max_connections, or run fewer processes" in str(error)


def test_a_standby_is_told_and_passes(database: Database) -> None:
    store = database.store()
    database.sql(f"ALTER DATABASE {database.name} SET default_transaction_read_only = on")
    with pytest.raises(StoreUnavailable, match=r"read-only transaction .*: name the primary and not a standby"):
        store.apply(first(row()))


def test_a_pool_that_is_used_up_is_unavailable_and_then_goes_on(database: Database) -> None:
    store = database.store(timeout=0.2)
    with database.used_up(store), pytest.raises(StoreUnavailable, match=f"all {CONNECTIONS} connections of this"):
        store.apply(first(row()))
    store.apply(first(row()))


def test_a_step_is_five_round_trips(database: Database) -> None:
    wire = Wire()
    store = database.store(connect=wire.connect)
    started = row()
    store.apply(first(started))
    wire.statements.clear()
    step = replace(then(started, at=T + 1), markers=(Marker(step_id="a", execution_state="COMMITTED"),))
    store.apply(step)
    assert [statement.split()[0] for statement in wire.statements] == ["BEGIN", "UPDATE", "INSERT", "COMMIT"]
    with database.cursor() as cursor:
        for number in (1, 2):
            cursor.execute("SELECT %s::integer", (number,))
            assert cursor.fetchall() == ([number],)
        cursor.execute("SELECT count(*) FROM pg_prepared_statements")
        assert cursor.fetchone() == [1], "it was parsed once"


# -- the schema ------------------------------------------------------------------------------------------------


def tables_of(database: Database) -> set[str]:
    return {name for (name,) in database.sql("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")}


def test_a_database_without_tables_is_refused_with_the_remedy_and_left_alone(empty: Database) -> None:
    with pytest.raises(SchemaMissing, match=r"lacks the tables es_.*: run `flask stacksaga init-schema`") as failure:
        opened(empty)
    assert empty.name in str(failure.value)
    assert tables_of(empty) == set()


def test_init_schema_sets_up_beside_tables_of_others_and_may_be_repeated(empty: Database) -> None:
    empty.sql("CREATE TABLE orders AS SELECT 7 AS id")
    assert empty.init() == [*(migration.name for migration in migrations("sql")), "settings of default/default/shop"]
    assert len(tables_of(empty)) == 13
    assert empty.sql("SELECT id FROM orders") == [[7]]
    opened(empty)
    assert empty.init() == []
    assert empty.init(Scope("default", "default", "stock")) == ["settings of default/default/stock"]


def test_a_database_that_lacks_one_table_says_which(database: Database) -> None:
    database.sql("DROP TABLE es_settings")
    with pytest.raises(SchemaMissing, match="lacks the tables es_settings: run `flask stacksaga init-schema`"):
        opened(database)


def test_tables_in_a_schema_that_is_searched_second_are_found(database: Database) -> None:
    database.sql(f"CREATE SCHEMA {USERNAME}")
    opened(database)
    assert database.init() == []


def test_an_older_schema_is_refused_until_it_is_upgraded(empty: Database) -> None:
    for statement in in_dialect(migrations("sql")[0], "postgresql"):
        empty.sql(statement)
    with pytest.raises(SchemaMissing, match="init-schema"):
        opened(empty)
    assert len(empty.init()) == SCHEMA_VERSION + 1
    opened(empty)


def test_a_schema_without_its_last_migration_is_older(database: Database) -> None:
    database.sql("DELETE FROM es_schema_migration WHERE version = %s", (SCHEMA_VERSION,))
    with pytest.raises(SchemaMissing, match=f"without the migrations {SCHEMA_VERSION}: run"):
        opened(database)


def test_a_newer_schema_does_not_matter_even_while_stores_are_open(database: Database) -> None:
    store, started = database.store(), row()
    store.apply(register(transaction_id=started.transaction_id), first(started))
    database.sql("ALTER TABLE es_transaction ADD COLUMN colour text DEFAULT 'blue'")
    database.sql("CREATE TABLE es_colours (name text)")
    database.sql("INSERT INTO es_schema_migration VALUES (99, 0)")
    opened(database)
    moved_on = replace(started, committed_steps=("reserve",))
    store.apply(then(moved_on, at=T + 1))
    assert read_row(store, started.transaction_id) == moved_on


def test_a_table_or_column_that_went_away_is_named_by_reads_and_writes(database: Database) -> None:
    store = database.store()
    database.sql("ALTER TABLE es_transaction DROP COLUMN attempt")
    with pytest.raises(SchemaMissing, match=r"attempt.*: run `flask stacksaga init-schema`"):
        store.apply(first(row()))
    database.sql("DROP TABLE es_transaction")
    with pytest.raises(SchemaMissing, match=r"es_transaction.*: run `flask stacksaga init-schema`"):
        store.read(uuid4())


def test_processes_that_set_up_at_once_wait_for_one_another(empty: Database) -> None:
    together = threading.Barrier(6, timeout=20)

    def init() -> list[str]:
        together.wait()
        return empty.init()

    done = [empty.meanwhile(init) for _ in range(6)]
    assert sorted(len(each.result()) for each in done) == [0, 0, 0, 0, 0, SCHEMA_VERSION + 1]
    opened(empty)


def test_of_two_grids_that_are_recorded_at_once_all_learn_the_same(database: Database) -> None:
    together, scope = threading.Barrier(8, timeout=20), Scope("default", "default", "stock")

    def record(window_interval: int) -> Grid:
        grid = Grid(schema_version=1, window_interval=window_interval, clock_skew_margin=1)
        store = database.store(scope)
        together.wait()
        return store.record_grid(grid)

    done = [database.meanwhile(record, interval) for interval in (60, 30) * 4]
    recorded = {each.result().window_interval for each in done}
    assert len(recorded) == 1
    assert recorded == {
        interval for (interval,) in database.sql("SELECT window_interval FROM es_settings WHERE service_name = 'stock'")
    }


def other_grid(database: Database) -> list[str]:
    return database.init(window_interval=300, restore_delay_windows=60)


def tiers_of(database: Database) -> list[int]:
    """How many rows the tiers 1 to 5 have."""
    counts = ", ".join(f"(SELECT count(*) FROM {table})" for table in TIERS)
    return list(database.sql(f"SELECT {counts}")[0])


def test_the_grid_changes_while_the_directory_is_empty(database: Database) -> None:
    store, pointer = database.store(), uuid4()
    store.apply(register(transaction_id=pointer))
    with pytest.raises(SchemaMismatch, match=r"has 1 pointer\(s\)"):
        other_grid(database)
    store.apply(drop(pointer))
    (told,) = other_grid(database)
    assert "a window interval of 300 s" in told
    assert "deleted 4 rows of its empty directory" in told
    assert tiers_of(database) == [0, 0, 0, 0, 0]
    assert database.sql("SELECT window_interval FROM es_settings") == [[300]]


@pytest.mark.parametrize("ends", ["COMMIT", "ROLLBACK"])
def test_a_change_of_the_grid_waits_for_the_starts_under_way(database: Database, ends: str) -> None:
    wire, held, go_on = Wire(), threading.Event(), threading.Event()

    def hold(connection: object, statement: str) -> None:
        if statement == "COMMIT":
            held.set()
            assert go_on.wait(10)
            if ends == "ROLLBACK":
                raise ConnectionResetError("reset by the test")

    wire.before = hold
    start = database.meanwhile(database.store(connect=wire.connect).apply, register())
    assert held.wait(10)
    change = database.meanwhile(other_grid, database)
    database.wait_for_blocked()
    go_on.set()
    if ends == "COMMIT":
        start.result()
        with pytest.raises(SchemaMismatch, match=r"has 1 pointer\(s\)"):
            change.result()
        assert tiers_of(database) == [1, 1, 1, 1, 1]
    else:
        assert isinstance(start.exception(), StoreError)
        assert "a window interval of 300 s" in change.result()[0]
        assert tiers_of(database) == [0, 0, 0, 0, 0]


# -- many writers ----------------------------------------------------------------------------------------------


def test_pointers_come_in_the_order_of_registration_whatever_their_ids(database: Database) -> None:
    stores = [database.store(), database.store()]
    nine, five, seven, one = (UUID(int=number) for number in (9, 5, 7, 1))
    for number, pointer in enumerate((nine, five, seven)):
        stores[number % 2].apply(register(transaction_id=pointer))
    stores[0].apply(drop(seven))
    stores[1].apply(register(transaction_id=one))
    stores[0].apply(register(transaction_id=nine))
    database.sql("VACUUM FULL es_recovery_transactions_by_instance")
    assert stores[0].first_in_first_out
    assert list(stores[0].pointers(PATH)) == [nine, five, one]


def test_a_blocked_row_holds_up_nobody_else(database: Database) -> None:
    store, locked, free = database.store(), row(), row()
    store.apply(first(locked))
    store.apply(first(free))
    with database.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT FROM es_transaction WHERE transaction_id = %s FOR UPDATE", (str(locked.transaction_id),))
        waits = database.meanwhile(store.apply, then(replace(locked, attempt=1), at=T + 1))
        database.wait_for_blocked()
        for attempt in range(1, 6):
            store.apply(then(replace(free, attempt=attempt), at=T + attempt))
        store.apply(register(), first(row()))
        assert not waits.done()
        cursor.execute("ROLLBACK")
        waits.result()
    assert read_row(store, locked.transaction_id) == replace(locked, attempt=1)


def test_a_row_that_stays_locked_is_unavailable_and_nothing_is_written(database: Database) -> None:
    store, locked = database.store(timeout=0.3), row()
    store.apply(first(locked))
    with database.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT FROM es_transaction WHERE transaction_id = %s FOR UPDATE", (str(locked.transaction_id),))
        with pytest.raises(StoreUnavailable, match="due to lock timeout"):
            store.apply(register(), then(replace(locked, attempt=1), at=T + 1))
        cursor.execute("ROLLBACK")
    assert read_row(store, locked.transaction_id) == locked
    assert list(store.pointers(PATH)) == []
    assert database.connections() == 1, "the connection was good"


def test_a_deadlock_is_done_again_and_both_are_written(database: Database) -> None:
    wire, one, two = Wire(), row(), row()
    store = database.store(connect=wire.connect)
    store.apply(first(one), first(two))
    wire.statements.clear()
    touch = "UPDATE es_transaction SET reason = 'touched' WHERE transaction_id = %s"
    with database.cursor() as cursor:
        cursor.execute("SET deadlock_timeout = '60s'")
        cursor.execute("BEGIN")
        cursor.execute(touch, (str(two.transaction_id),))
        both = (then(replace(one, attempt=1), at=T + 1), then(replace(two, attempt=1), at=T + 1))
        waits = database.meanwhile(store.apply, *both)
        database.wait_for_blocked()
        # The two wait for each other now. The store's side is the one that looks for a deadlock soon.
        cursor.execute(touch, (str(one.transaction_id),))
        cursor.execute("COMMIT")
        waits.result()
    assert wire.statements.count("BEGIN") == 2
    assert wire.statements.count("ROLLBACK") == 1
    assert [read_row(store, each.transaction_id) for each in (one, two)] == [
        replace(one, attempt=1),
        replace(two, attempt=1),
    ]


def test_starts_that_write_the_same_tiers_never_deadlock(database: Database) -> None:
    wire, together = Wire(), threading.Barrier(8, timeout=20)
    stores = [database.store(connect=wire.connect) for _ in range(2)]

    def start(number: int) -> None:
        instance = f"web-{number}"
        for window in range(25):
            near, far = (Path("2023-11-14", 2 * window + later, instance, later) for later in (0, 1))
            pointers = [register(near), register(far)]
            together.wait()
            stores[number % 2].apply(*(pointers if number % 3 else reversed(pointers)), first(row()))

    done = [database.meanwhile(start, number) for number in range(8)]
    for each in done:
        each.result()
    assert wire.statements.count("BEGIN") == sum(store.commits for store in stores) == 200
    assert tiers_of(database)[:2] == [1, 50]


def test_of_many_owners_of_one_epoch_one_takes_over_and_the_others_are_fenced(database: Database) -> None:
    together, stores, started = threading.Barrier(8, timeout=20), [database.store() for _ in range(2)], row()
    stores[0].apply(first(started))

    def take_over(number: int) -> bool:
        together.wait()
        try:
            stores[number % 2].apply(then(replace(started, epoch=1, attempt=number), at=T + 1))
        except Fenced:
            return False
        return True

    done = [database.meanwhile(take_over, number) for number in range(8)]
    won = [number for number, each in enumerate(done) if each.result()]
    assert len(won) == 1
    assert read_row(stores[0], started.transaction_id) == replace(started, epoch=1, attempt=won[0])


def test_of_many_who_claim_at_once_one_is_granted_and_all_know_whom(database: Database) -> None:
    together, stores, key = threading.Barrier(8, timeout=20), [database.store() for _ in range(2)], uuid4()

    def take(number: int) -> str:
        together.wait()
        outcome = stores[number % 2].insert_marker(key, claim(f"holder-{number}"), ttl=30)
        holder = claim(f"holder-{number}") if outcome.applied else outcome.current
        assert holder is not None
        return holder.execution_state

    done = [database.meanwhile(take, number) for number in range(8)]
    assert len({each.result() for each in done}) == 1


@pytest.mark.parametrize("ends", ["COMMIT", "ROLLBACK"])
def test_a_marker_is_read_after_the_conditional_write_under_way(database: Database, ends: str) -> None:
    store, key = database.store(), uuid4()
    with database.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(
            "INSERT INTO es_execution_markers (region, cluster, service_name, transaction_id, step_id, execution_state)"
            " VALUES ('default', 'default', 'shop', %s, '#claim', 'late')",
            (str(key),),
        )
        reads = database.meanwhile(store.marker, key, "#claim")
        database.wait_for_blocked()
        cursor.execute(ends)
        assert reads.result() == (claim("late") if ends == "COMMIT" else None)
    assert len(store.markers(key)) == database.sql("SELECT count(*) FROM es_execution_markers")[0][0]


@pytest.mark.parametrize("ends", ["COMMIT", "ROLLBACK"])
def test_the_deletion_of_a_row_waits_for_the_start_under_way(database: Database, ends: str) -> None:
    store, late = database.store(), row()
    with database.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(
            "INSERT INTO es_transaction (region, cluster, service_name, transaction_id) "
            "VALUES ('default', 'default', 'shop', %s)",
            (str(late.transaction_id),),
        )
        deletes = database.meanwhile(store.apply, delete(late.transaction_id, T))
        database.wait_for_blocked()
        cursor.execute(ends)
        if ends == "COMMIT":
            assert isinstance(deletes.exception(), Fenced)
        else:
            deletes.result()
    assert database.sql("SELECT count(*) FROM es_transaction") == [[1 if ends == "COMMIT" else 0]]


def test_a_start_expects_no_row_even_of_one_under_way(database: Database) -> None:
    store, started, together = database.store(), row(), threading.Barrier(4, timeout=20)

    def start(number: int) -> bool:
        together.wait()
        try:
            store.apply(replace(first(replace(started, attempt=number)), expected=Expected.ABSENT))
        except Fenced:
            return False
        return True

    done = [database.meanwhile(start, number) for number in range(4)]
    assert sorted(each.result() for each in done) == [False, False, False, True]
