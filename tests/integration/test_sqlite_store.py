"""What is SQLite's own: files and their errors, several processes, commits in groups.

The contract is asserted by the conformance suite.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path as File
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import pytest
from msgspec.structs import replace
from stacksaga_schema import SCHEMA_VERSION, in_dialect, migrations

from stacksaga_flask import Engine, read_settings
from stacksaga_flask.clock import SystemTime
from stacksaga_flask.errors import (
    ConfigurationError,
    Fenced,
    OutcomeUnknown,
    SchemaMismatch,
    SchemaMissing,
    StoreRefused,
    StoreUnavailable,
)
from stacksaga_flask.store.contract import (
    DeletePointer,
    Expected,
    Grid,
    Marker,
    Operation,
    Path,
    Register,
    RunningStatus,
    Scope,
    Store,
    TransactionRow,
    WriteTransaction,
)
from stacksaga_flask.store.opening import Setup, init_schema
from stacksaga_flask.store.sql.group import Call
from stacksaga_flask.store.sql.plan import Planner, carry_out
from stacksaga_flask.store.sql.setup import ensure_tables
from stacksaga_flask.store.sql.sqlite import sqlite_backend
from stacksaga_flask.store.sql.statements import statements_for
from stacksaga_flask.store.sql.store import SqlStore
from stacksaga_flask.store.sql.writer import Writer
from tests.support.opening import init_url, open_url

SCOPE = Scope("default", "default", "shop")
PATH = Path("2023-11-14", 1333, "host-1-abc", 1)
ALL_TIERS = frozenset({1, 2, 3, 4, 5})
NOBODY = 65534


def written(transaction_id: UUID, expected: Expected = Expected.ABSENT, **fields: Any) -> WriteTransaction:
    """The write of a row, of the start unless said otherwise."""
    values: dict[str, Any] = {
        "running_status": RunningStatus.PROCESSING,
        "created_at": 1,
        "updated_at": 2,
        "payload": b"{}",
        "watchdog": PATH,
        "saga_name": "order",
        "saga_version": 1,
        "payload_version": 1,
    }
    row = TransactionRow(transaction_id=transaction_id, **(values | fields))
    return WriteTransaction(row=row, timestamp=3, expected=expected)


def registered(transaction_id: UUID) -> Register:
    """The registration of a watchdog in every tier."""
    return Register(
        path=PATH, transaction_id=transaction_id, instance_token=7, tiers=ALL_TIERS, timestamp=1, day_timestamp=0
    )


@contextmanager
def opened(file: File, *, timeout: float = 5) -> Iterator[SqlStore]:
    """The store of a file."""
    store = open_url(f"sqlite:///{file}", SCOPE, request_timeout=timeout)
    assert isinstance(store, SqlStore)
    with closing(store):
        yield store


@contextmanager
def opened_through(file: File, connect: Callable[..., sqlite3.Connection]) -> Iterator[SqlStore]:
    """The store of a file whose connections are made by a function of the test."""
    source = SystemTime()
    backend = sqlite_backend(file, timeout=5, time_source=source, connect=connect)
    ensure_tables(backend)
    with closing(SqlStore(backend, SCOPE, time_source=source)) as store:
        yield store


@contextmanager
def plain(file: File) -> Iterator[sqlite3.Connection]:
    """A connection beside the store's."""
    with closing(sqlite3.connect(file, isolation_level=None, timeout=5)) as connection:
        yield connection


Run: TypeAlias = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def run_python() -> Iterator[Run]:
    """Starts processes of their own, which report on their standard output."""
    with ExitStack() as stack:

        def run(script: str, *arguments: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-W", "error", "-c", script, *arguments]
            pipe = subprocess.PIPE
            process = stack.enter_context(subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True))
            stack.callback(process.kill)
            return process

        yield run


def answer_of(process: subprocess.Popen[str]) -> str:
    """What the process printed, once it has ended well."""
    output, errors = process.communicate("go\n", timeout=60)
    assert process.returncode == 0, errors
    return output.strip()


# -- files -----------------------------------------------------------------------------------------------------


def test_a_file_that_does_not_exist_is_set_up_with_a_write_ahead_log(tmp_path: File) -> None:
    file = tmp_path / "shop.db"
    with opened(file), plain(file) as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        versions = [version for (version,) in connection.execute("SELECT version FROM es_schema_migration")]
        (mode,) = connection.execute("PRAGMA journal_mode").fetchone()
    assert len(tables) == 12
    assert versions == list(range(1, SCHEMA_VERSION + 1))
    assert mode == "wal"


def test_every_connection_waits_for_the_disk_at_a_commit(tmp_path: File) -> None:
    modes: list[int] = []

    class Watched(sqlite3.Connection):
        def close(self) -> None:
            modes.append(self.execute("PRAGMA synchronous").fetchone()[0])
            super().close()

    with opened_through(tmp_path / "shop.db", partial(sqlite3.connect, factory=Watched)) as store:
        store.apply(written(uuid4()))
    assert set(modes) == {2}


def test_an_empty_file_is_set_up(tmp_path: File) -> None:
    file = tmp_path / "shop.db"
    file.touch()
    with opened(file) as store:
        store.apply(written(uuid4()))


def test_a_relative_path_is_one_below_the_working_directory(tmp_path: File, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(open_url("sqlite:///shop.db", SCOPE)):
        assert (tmp_path / "shop.db").is_file()


def test_a_file_with_tables_of_others_is_left_alone_and_the_remedy_is_named(tmp_path: File) -> None:
    file = tmp_path / "shop.db"
    with plain(file) as connection:
        connection.execute("CREATE TABLE orders (id integer)")
    with pytest.raises(SchemaMissing, match="flask stacksaga init-schema") as failure, opened(file):
        pass
    assert str(file) in str(failure.value)
    with plain(file) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("orders",)]


def test_a_file_that_lacks_one_table_says_which(tmp_path: File) -> None:
    file = tmp_path / "shop.db"
    with opened(file), plain(file) as connection:
        connection.execute("DROP TABLE es_settings")
    with (
        pytest.raises(SchemaMissing, match="lacks the tables es_settings: run `flask stacksaga init-schema`"),
        opened(file),
    ):
        pass


def test_an_older_schema_is_refused_until_it_is_upgraded(tmp_path: File) -> None:
    file = tmp_path / "shop.db"
    with plain(file) as connection:
        for statement in in_dialect(migrations("sql")[0], "sqlite"):
            connection.execute(statement)
    with pytest.raises(SchemaMissing, match="init-schema"), opened(file):
        pass
    applied = init_url(f"sqlite:///{file}", SCOPE)
    assert applied == [*(migration.name for migration in migrations("sql")), "settings of default/default/shop"]
    with opened(file) as store:
        store.apply(written(uuid4()))


def test_a_schema_without_its_last_migration_is_older(tmp_path: File) -> None:
    file = tmp_path / "shop.db"
    with opened(file), plain(file) as connection:
        connection.execute("DELETE FROM es_schema_migration WHERE version = ?", (SCHEMA_VERSION,))
    with pytest.raises(SchemaMissing, match=f"without the migrations {SCHEMA_VERSION}: run"), opened(file):
        pass


def test_a_newer_schema_does_not_matter(tmp_path: File) -> None:
    file = tmp_path / "shop.db"
    transaction_id = uuid4()
    with opened(file), plain(file) as connection:
        connection.execute("ALTER TABLE es_transaction ADD COLUMN colour text DEFAULT 'blue'")
        connection.execute("ALTER TABLE es_execution_markers ADD COLUMN colour text")
        connection.execute("CREATE TABLE es_colours (name text)")
        connection.execute("INSERT INTO es_schema_migration VALUES (99, 0)")
    with opened(file) as store:
        store.apply(registered(transaction_id), written(transaction_id))
        store.apply(written(transaction_id, Expected.EPOCH, committed_steps=("reserve",)))
        found = store.read(transaction_id)
    assert found is not None
    assert found.row.committed_steps == ("reserve",)


def test_init_schema_again_and_again_does_no_harm(tmp_path: File) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    transaction_id = uuid4()
    init = partial(init_url, url)
    assert len(init(SCOPE)) == SCHEMA_VERSION + 1
    with opened(tmp_path / "shop.db") as store:
        store.apply(written(transaction_id))
        assert init(SCOPE) == []
        assert init(Scope("default", "default", "stock")) == ["settings of default/default/stock"]
        assert store.read(transaction_id) is not None
        assert store.read_grid() == Grid(schema_version=SCHEMA_VERSION, window_interval=60, clock_skew_margin=1_000_000)


def test_init_schema_raises_the_version_of_the_settings(tmp_path: File) -> None:
    file = tmp_path / "shop.db"
    with opened(file) as store:
        store.record_grid(Grid(schema_version=1, window_interval=60, clock_skew_margin=1_000_000))
        init_url(f"sqlite:///{file}", SCOPE)
        found = store.read_grid()
    assert found == Grid(schema_version=SCHEMA_VERSION, window_interval=60, clock_skew_margin=1_000_000)


TIERS = (
    "es_days_by_year",
    "es_recovery_windows_by_day",
    "es_instances_by_recovery_window",
    "es_buckets_by_instance",
    "es_recovery_transactions_by_instance",
)


def tiers_of(file: File, service: str) -> list[int]:
    """How many rows a service has in the tiers 1 to 5."""
    with plain(file) as connection:
        counts = [f"(SELECT count(*) FROM {table} WHERE service_name = :service)" for table in TIERS]
        return list(connection.execute(f"SELECT {', '.join(counts)}", {"service": service}).fetchone())


def test_init_schema_changes_the_grid_while_the_directory_is_empty_and_no_others(tmp_path: File) -> None:
    url = f"sqlite:///{tmp_path / 'shop.db'}"
    stock, transaction_id, theirs = Scope("default", "default", "stock"), uuid4(), uuid4()
    recorded = Grid(schema_version=SCHEMA_VERSION, window_interval=60, clock_skew_margin=1_000_000)
    with opened(tmp_path / "shop.db") as store, closing(open_url(url, stock)) as other:
        store.record_grid(recorded)
        other.record_grid(recorded)
        store.apply(registered(transaction_id), written(transaction_id))
        other.apply(registered(theirs))
        store.apply(DeletePointer(path=PATH, transaction_id=transaction_id, timestamp=2))
        assert tiers_of(tmp_path / "shop.db", "shop") == [1, 1, 1, 1, 0]
        changed = init_url(url, SCOPE, window_interval=300, restore_delay_windows=60, clock_skew_margin=0.5)
        assert len(changed) == 1
        assert (
            "settings of default/default/shop: a window interval of 300 s and a clock skew margin of 0.5 s instead of "
            "a window interval of 60 s and a clock skew margin of 1 s, and deleted 4 rows of its empty directory"
        ) in changed[0]
        assert store.read_grid() == replace(recorded, window_interval=300, clock_skew_margin=500_000)
        assert store.read(transaction_id) is not None
        assert other.read_grid() == recorded
        assert init_url(url, SCOPE, window_interval=300, restore_delay_windows=60, clock_skew_margin=0.5) == []
    assert tiers_of(tmp_path / "shop.db", "shop") == [0, 0, 0, 0, 0]
    assert tiers_of(tmp_path / "shop.db", "stock") == [1, 1, 1, 1, 1]


def test_the_remedy_that_the_engine_names_for_another_grid_is_one(tmp_path: File) -> None:
    def engine(**settings: object) -> Engine:
        config = {"STACKSAGA_STORE": f"sqlite:///{tmp_path / 'shop.db'}", **settings}
        return Engine(read_settings(config, application_name="shop"))

    assert engine().find(uuid4()) is None
    other = engine(STACKSAGA_WINDOW_INTERVAL=30)
    with pytest.raises(SchemaMismatch, match="stop the service and run `flask stacksaga init-schema` with the new"):
        other.find(uuid4())
    init_schema(other.settings, SystemTime(), Setup())
    assert other.find(uuid4()) is None
    with pytest.raises(SchemaMismatch, match="window_interval is 60 here and 30 in the store"):
        engine().find(uuid4())


def test_init_schema_keeps_the_grid_while_there_are_pointers_and_counts_them(tmp_path: File) -> None:
    file = tmp_path / "shop.db"
    recorded = Grid(schema_version=1, window_interval=60, clock_skew_margin=1_000_000)
    with opened(file) as store:
        store.record_grid(recorded)
        store.apply(registered(uuid4()), registered(uuid4()))
        with pytest.raises(SchemaMismatch, match=r"60 s and a clock skew margin of 1 s, not .* 300 s") as failure:
            init_url(f"sqlite:///{file}", SCOPE, window_interval=300, restore_delay_windows=60)
        assert "2 pointer(s)" in str(failure.value)
        assert "let those transactions end, stop the service and run" in str(failure.value)
        assert store.read_grid() == recorded, "not even the version was raised"
    assert tiers_of(file, "shop") == [1, 1, 1, 1, 2]


# -- bad places ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("mysql://shop", "names no known store"),
        ("mysql://me:secret@shop", r"mysql:\*\*\*@shop"),
        ("shop.db", "sqlite:///shop.db"),
        ("postgresql://shop", "postgresql://host:5432/database"),
        ("cassandra://shop", "local_datacenter"),
        ("sqlite://", "names no file"),
        ("sqlite:///", "names no file"),
        ("sqlite:///:memory:", "memory://"),
        ("sqlite://shop.db", "names no file"),
        ("sqlite:///shop.db?mode=ro", "takes no options"),
    ],
)
def test_a_url_that_names_no_store_opens_nothing(
    url: str, told: str, tmp_path: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=told):
        open_url(url, SCOPE)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_directory_is_named(tmp_path: File) -> None:
    folder = tmp_path / "data"
    with (
        pytest.raises(StoreRefused, match=f"the directory {folder} does not exist: create it"),
        opened(folder / "a.db"),
    ):
        pass


def test_a_directory_is_no_file(tmp_path: File) -> None:
    with pytest.raises(StoreRefused, match="it is a directory"), opened(tmp_path):
        pass


def test_a_file_of_another_kind_is_left_as_it_is(tmp_path: File) -> None:
    file = tmp_path / "shop.db"
    file.write_text("orders, in ink. " * 100)
    with pytest.raises(StoreRefused, match="not a database") as failure, opened(file):
        pass
    assert isinstance(failure.value.__cause__, sqlite3.DatabaseError)
    assert file.read_text() == "orders, in ink. " * 100


@pytest.fixture
def public_folder() -> Iterator[File]:
    """A directory that any user may enter."""
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o755)
        yield File(name)


@contextmanager
def without_privileges() -> Iterator[int]:
    """Act as a user whom permissions bind."""
    if os.geteuid() != 0:
        yield os.geteuid()
        return
    os.seteuid(NOBODY)
    try:
        yield NOBODY
    finally:
        os.seteuid(0)


def test_a_directory_without_permission_is_named_with_the_user(public_folder: File) -> None:
    os.chmod(public_folder, 0o555)
    with without_privileges() as user, pytest.raises(StoreRefused) as failure, opened(public_folder / "shop.db"):
        pass
    assert f"user {user} may not read and write the directory {public_folder}" in str(failure.value)


def test_a_file_without_permission_is_named_before_anything_is_written(public_folder: File) -> None:
    file = public_folder / "shop.db"
    with opened(file):
        pass
    os.chmod(file, 0o444)
    os.chmod(public_folder, 0o777)
    with without_privileges() as user, pytest.raises(StoreRefused) as failure, opened(file):
        pass
    assert f"user {user} may not read and write the file {file}" in str(failure.value)


def test_a_full_disk_refuses_the_write_whole_and_room_made_is_used(tmp_path: File) -> None:
    first, large, after = uuid4(), uuid4(), uuid4()
    limits: list[sqlite3.Connection] = []

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = sqlite3.connect(*arguments, **options)
        connection.execute("PRAGMA max_page_count = 60")
        limits.append(connection)
        return connection

    with opened_through(tmp_path / "shop.db", connect) as store:
        store.apply(registered(first), written(first))
        with pytest.raises(StoreUnavailable, match="disk is full: free space"):
            store.apply(registered(large), written(large, payload=bytes(1_000_000)))
        assert store.read(large) is None
        assert list(store.pointers(PATH)) == [first]
        for connection in limits:
            connection.execute("PRAGMA max_page_count = 1000")
        store.apply(registered(after), written(after, payload=bytes(1_000_000)))
        assert list(store.pointers(PATH)) == [first, after]


def test_a_writer_that_waits_in_vain_has_written_nothing(tmp_path: File) -> None:
    file = tmp_path / "shop.db"
    transaction_id = uuid4()
    with opened(file, timeout=0.05) as store, plain(file) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match=r"writing for longer than 0\.05 s"):
            store.apply(written(transaction_id))
        assert store.read(transaction_id) is None
        other.execute("ROLLBACK")
        store.apply(written(transaction_id))


def test_a_table_that_went_away_is_named_by_reads_and_writes(tmp_path: File) -> None:
    file = tmp_path / "shop.db"
    with opened(file) as store, plain(file) as other:
        other.execute("DROP TABLE es_transaction")
        with pytest.raises(SchemaMissing, match="no such table: es_transaction: run `flask stacksaga init-schema`"):
            store.read(uuid4())
        with pytest.raises(SchemaMissing, match="es_transaction"):
            store.apply(written(uuid4()))


def test_a_closed_store_says_so_and_may_be_closed_again(tmp_path: File) -> None:
    with opened(tmp_path / "shop.db") as store:
        store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            store.apply(written(uuid4()))
        with pytest.raises(StoreUnavailable, match="closed"):
            store.read(uuid4())


# -- lost answers ----------------------------------------------------------------------------------------------


class Disk:
    """Decides what becomes of the next commit."""

    fails: str | None = None

    def connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        """A connection whose commits this disk may fail."""
        disk = self

        class FailingCursor(sqlite3.Cursor):
            def execute(self, statement: str, values: Any = (), /) -> FailingCursor:
                if statement == "COMMIT" and disk.fails is not None:
                    when, disk.fails = disk.fails, None
                    if when == "after":
                        super().execute(statement, values)
                    raise sqlite3.OperationalError("disk I/O error")
                return super().execute(statement, values)

        class FailingConnection(sqlite3.Connection):
            def cursor(self, factory: Any = FailingCursor) -> Any:
                return super().cursor(factory)

        connection: sqlite3.Connection = sqlite3.connect(*arguments, factory=FailingConnection, **options)
        return connection


@pytest.mark.parametrize(("fails", "is_there"), [("after", True), ("before", False)])
def test_a_commit_without_an_answer_is_unknown_and_reading_tells(tmp_path: File, fails: str, is_there: bool) -> None:
    disk = Disk()
    transaction_id, after = uuid4(), uuid4()
    with opened_through(tmp_path / "shop.db", disk.connect) as store:
        disk.fails = fails
        with pytest.raises(OutcomeUnknown, match="may or may not have been written") as failure:
            store.apply(registered(transaction_id), written(transaction_id))
        assert isinstance(failure.value.__cause__, sqlite3.OperationalError)
        assert (store.read(transaction_id) is not None) is is_there
        assert store.has_pointer(PATH, transaction_id) is is_there
        store.apply(written(after))
        assert store.read(after) is not None


def test_a_conditional_write_without_an_answer_is_unknown_and_the_marker_tells(tmp_path: File) -> None:
    disk = Disk()
    transaction_id = uuid4()
    mine = Marker(step_id="#claim", execution_state="me")
    with opened_through(tmp_path / "shop.db", disk.connect) as store:
        disk.fails = "after"
        with pytest.raises(OutcomeUnknown):
            store.insert_marker(transaction_id, mine, ttl=30)
        assert store.marker(transaction_id, "#claim") == mine


# -- groups ----------------------------------------------------------------------------------------------------


def run_together(file: File, *operations: Operation, disk: Disk | None = None) -> tuple[list[Call[None]], int]:
    """Run each operation as a caller of one group; tells the calls and the number of commits."""
    connect = disk.connect if disk else sqlite3.connect
    backend = sqlite_backend(file, timeout=5, time_source=SystemTime(), connect=connect)
    ensure_tables(backend)
    planner = Planner(statements_for(backend), SCOPE)
    calls = [Call(partial(carry_out, planner.plan((operation,)))) for operation in operations]
    writer = Writer(backend)
    if disk:
        disk.fails = "after"
    writer.run(calls)
    writer.close()
    backend.engine.dispose()
    return calls, writer.commits


def test_a_fenced_member_of_a_group_leaves_the_others_alone(tmp_path: File) -> None:
    file = tmp_path / "shop.db"
    one, absent, two = uuid4(), uuid4(), uuid4()
    calls, commits = run_together(file, written(one), written(absent, Expected.EPOCH), written(two))
    assert [type(call.error) for call in calls] == [type(None), Fenced, type(None)]
    assert commits == 1
    with opened(file) as store:
        assert [store.read(each) is not None for each in (one, absent, two)] == [True, False, True]


def test_all_of_a_group_learn_that_its_commit_was_not_acknowledged(tmp_path: File) -> None:
    calls, commits = run_together(tmp_path / "shop.db", written(uuid4()), written(uuid4()), disk=Disk())
    errors = [call.error for call in calls]
    assert [type(error) for error in errors] == [OutcomeUnknown, OutcomeUnknown]
    assert errors[0] is not errors[1]
    assert commits == 0


def test_of_one_transaction_started_twice_in_a_group_one_is_fenced(tmp_path: File) -> None:
    transaction_id = uuid4()
    calls, _ = run_together(tmp_path / "shop.db", written(transaction_id), written(transaction_id))
    assert [type(call.error) for call in calls] == [type(None), Fenced]


def test_one_caller_makes_one_commit_a_call(tmp_path: File) -> None:
    with opened(tmp_path / "shop.db") as store:
        for number in range(5):
            store.apply(registered(uuid4()), written(uuid4()))
            assert store.commits == number + 1


def test_sixteen_threads_share_commits_and_lose_nothing(tmp_path: File) -> None:
    each, count = 20, 16
    barrier = threading.Barrier(count)
    ids: list[UUID] = []

    def start_many(store: Store) -> None:
        barrier.wait()
        for _ in range(each):
            transaction_id = uuid4()
            store.apply(registered(transaction_id), written(transaction_id))
            ids.append(transaction_id)

    with opened(tmp_path / "shop.db") as store:
        threads = [threading.Thread(target=start_many, args=(store,)) for _ in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(store.pointers(PATH)) == set(ids)
        assert len(ids) == each * count
        assert store.commits <= each * count / 2


GREENLETS = """
import gevent.monkey; gevent.monkey.patch_all()
import sys, gevent
from uuid import uuid4
from tests.integration.test_sqlite_store import File, PATH, opened, registered, written

with opened(File(sys.argv[1])) as store:
    for _ in range(10):
        store.apply(written(uuid4()))
    alone = store.commits
    def start_many():
        for _ in range(20):
            transaction_id = uuid4()
            store.apply(registered(transaction_id), written(transaction_id))
    gevent.joinall([gevent.spawn(start_many) for _ in range(16)], raise_error=True)
    print(alone, store.commits - alone, len(list(store.pointers(PATH))))
"""


def test_sixteen_greenlets_share_commits_and_one_alone_does_not_wait_for_company(
    tmp_path: File, run_python: Run
) -> None:
    alone, together, pointers = answer_of(run_python(GREENLETS, str(tmp_path / "shop.db"))).split()
    assert int(alone) == 10
    assert int(together) <= 40
    assert int(pointers) == 320


INTERRUPTED = """
import gevent.monkey; gevent.monkey.patch_all()
import sys, gevent
from uuid import uuid4
from tests.integration.test_sqlite_store import File, opened, plain, written

file = File(sys.argv[1])
with opened(file) as store, plain(file) as other:
    store.apply(written(uuid4()))
    ids = [uuid4() for _ in range(3)]
    other.execute("BEGIN IMMEDIATE")
    leader, withdrawn, kept = [gevent.spawn(store.apply, written(each)) for each in ids]
    gevent.sleep(0)
    late = [gevent.spawn(store.apply, written(each)) for each in (uuid4(), uuid4())]
    for _ in range(10):
        gevent.sleep(0)
    ticks = 0
    while ticks < 100:
        gevent.sleep(0)
        ticks += 1
    leader.kill(); late[0].kill()
    other.execute("ROLLBACK")
    gevent.joinall([kept, late[1]], raise_error=True)
    store.apply(written(uuid4()))
    print(store.read(ids[2]) is not None)
"""


def test_greenlets_that_are_killed_while_another_process_writes_hold_nobody_up(tmp_path: File, run_python: Run) -> None:
    assert answer_of(run_python(INTERRUPTED, str(tmp_path / "shop.db"))) == "True"


# -- several processes -----------------------------------------------------------------------------------------

STARTS = """
import sys
from uuid import UUID, uuid4
from stacksaga_flask.errors import Fenced
from tests.integration.test_sqlite_store import File, opened, registered, written

sys.stdin.readline()
with opened(File(sys.argv[1])) as store:
    for _ in range(20):
        transaction_id = uuid4()
        store.apply(registered(transaction_id), written(transaction_id))
    try:
        store.apply(written(UUID(sys.argv[2])))
        print("first")
    except Fenced:
        print("fenced")
"""


def test_processes_that_create_and_write_one_file_at_once_lose_nothing(tmp_path: File, run_python: Run) -> None:
    file, contested = tmp_path / "shop.db", uuid4()
    processes = [run_python(STARTS, str(file), str(contested)) for _ in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = sorted(answer_of(process) for process in processes)
    assert answers == ["fenced", "fenced", "fenced", "first"]
    with opened(file) as store:
        assert len(list(store.pointers(PATH))) == 80


def test_opening_module_imports_no_driver(run_python: Run) -> None:
    script = "import sys, stacksaga_flask.store.opening; print(sorted({'sqlalchemy', 'sqlite3'} & set(sys.modules)))"
    assert answer_of(run_python(script)) == "[]"


# -- expiry and order ------------------------------------------------------------------------------------------


def test_a_marker_lives_by_the_clock_of_the_database(tmp_path: File) -> None:
    file, transaction_id = tmp_path / "shop.db", uuid4()
    old, new = (Marker(step_id="#claim", execution_state=holder) for holder in ("old", "new"))
    with opened(file) as store, plain(file) as other:
        before = store.now()
        assert store.insert_marker(transaction_id, old, ttl=30).applied
        (expires_at,) = other.execute("SELECT expires_at FROM es_execution_markers").fetchone()
        assert before + 30_000_000 <= expires_at <= store.now() + 30_000_000
        assert store.insert_marker(transaction_id, new, ttl=30) == (False, old)

        other.execute("UPDATE es_execution_markers SET expires_at = ?", (store.now() - 1,))
        assert store.marker(transaction_id, "#claim") is None
        assert store.markers(transaction_id) == ()
        assert store.replace_marker(transaction_id, new, expected_state="old", ttl=30) == (False, None)
        assert store.delete_marker(transaction_id, "#claim", expected_state="old") == (False, None)
        assert store.insert_marker(transaction_id, new, ttl=None).applied
        assert other.execute("SELECT expires_at FROM es_execution_markers").fetchone() == (None,)


def test_the_clock_of_the_database_is_the_machines_in_whole_milliseconds(tmp_path: File) -> None:
    source = SystemTime()
    with opened(tmp_path / "shop.db") as store:
        before = source.wall()
        told = store.now()
        after = source.wall()
    assert before - 1_000 <= told <= after + 1_000
    assert told % 1_000 == 0


def test_pointers_keep_the_order_of_registration_when_others_leave(tmp_path: File) -> None:
    first, second, third, again = (UUID(int=number) for number in (9, 5, 7, 1))
    with opened(tmp_path / "shop.db") as store, plain(tmp_path / "shop.db") as other:
        for transaction_id in (first, second, third):
            store.apply(registered(transaction_id))
        other.execute("DELETE FROM es_recovery_transactions_by_instance WHERE transaction_id = ?", (str(third),))
        store.apply(registered(again))
        store.apply(registered(first))
        assert list(store.pointers(PATH)) == [first, second, again]
        other.execute("VACUUM")
        assert list(store.pointers(PATH)) == [first, second, again]
