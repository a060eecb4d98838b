"""The schema files, against the design's list of tables and the rows of the contract."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing

import pytest
from stacksaga_schema import SCHEMA_VERSION, Kind, in_dialect, migrations

from stacksaga_flask.store.contract import TransactionRow

KINDS: tuple[Kind, ...] = ("cql", "sql")

SEED_KEYS = {
    "es_transaction": "region cluster service_name transaction_id",
    "es_transaction_tryout": "region cluster service_name transaction_id tryout_index",
    "es_frozen_transaction": "region cluster service_name transaction_id",
    "es_execution_markers": "region cluster service_name transaction_id step_id",
    "es_days_by_year": "region cluster service_name year date_of_year",
    "es_recovery_windows_by_day": "region cluster service_name date_of_year minute_of_day",
    "es_instances_by_recovery_window": (
        "region cluster service_name date_of_year minute_of_day instance_id_token instance_id"
    ),
    "es_buckets_by_instance": "region cluster service_name date_of_year minute_of_day instance_id bucket_index",
    "es_recovery_transactions_by_instance": (
        "region cluster service_name date_of_year minute_of_day instance_id bucket_index transaction_id"
    ),
}
OWN_KEYS = {
    "es_settings": "region cluster service_name",
    "es_transaction_by_start": "region cluster service_name date_of_year minute_of_day shard transaction_id",
}


def created(kind: Kind) -> dict[str, str]:
    """Tables that the files create, with the text of each statement."""
    statements = [statement for migration in migrations(kind) for statement in migration.statements]
    found = ((re.search(r"CREATE TABLE (?:IF NOT EXISTS )?(\w+)", statement), statement) for statement in statements)
    return {match.group(1): statement for match, statement in found if match}


def columns(kind: Kind, table: str) -> set[str]:
    """Names of a table's columns, those added later included."""
    names = set(re.findall(r"^ +([a-z_]+) +[\w{]", created(kind)[table], re.MULTILINE))
    for migration in migrations(kind):
        for statement in migration.statements:
            if f"ALTER TABLE {table} " in statement:
                names |= set(re.findall(r"^ +([a-z_]+) +[\w{]", statement, re.MULTILINE))
                names |= set(re.findall(r"ADD (?:COLUMN |IF NOT EXISTS )(\w+) ", statement))
    return names


def key(statement: str) -> str:
    """The names of a primary key in order, without its parentheses."""
    found = re.search(r"PRIMARY KEY \((.*)\)", statement)
    assert found is not None
    return " ".join(re.findall(r"\w+", found.group(1)))


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_numbered_from_one_without_a_gap(kind: Kind) -> None:
    assert [migration.number for migration in migrations(kind)] == list(range(1, SCHEMA_VERSION + 1))


def test_a_number_has_the_same_name_in_both_kinds() -> None:
    cql, sql = ([migration.name for migration in migrations(kind)] for kind in KINDS)
    assert cql == sql


@pytest.mark.parametrize("kind", KINDS)
def test_tables_have_the_keys_of_the_design(kind: Kind) -> None:
    tables = created(kind)
    # What was applied is kept by SQL alone.
    tables.pop("es_schema_migration", None)
    found = {table: key(statement) for table, statement in tables.items()}
    assert found == SEED_KEYS | OWN_KEYS


def test_the_first_file_creates_the_nine_tables_of_the_seed_and_chooses_no_keyspace() -> None:
    seed = migrations("cql")[0]
    assert len(seed.statements) == 9
    assert not any("USE " in statement or "KEYSPACE" in statement for statement in seed.statements)


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_a_transaction_has_its_column(kind: Kind) -> None:
    fields = set(TransactionRow.__struct_fields__) - {"watchdog", "retry"}
    paths = {
        f"{pointer}_{part}" for pointer in ("restore", "retry") for part in ("date", "window", "instance_id", "bucket")
    }
    assert columns(kind, "es_transaction") == fields | paths | {"region", "cluster", "service_name"}


def test_both_kinds_have_the_same_columns_but_for_what_only_sql_needs() -> None:
    only_sql = {(table, column) for table in created("cql") for column in columns("sql", table) ^ columns("cql", table)}
    assert only_sql == {
        ("es_execution_markers", "expires_at"),
        ("es_transaction_by_start", "expires_at"),
        ("es_recovery_transactions_by_instance", "sequence"),
    }


@pytest.mark.parametrize("kind", KINDS)
def test_migrations_only_add(kind: Kind) -> None:
    words = {
        word
        for migration in migrations(kind)
        for statement in migration.statements
        for word in re.findall(r"^\s*(CREATE TABLE|ALTER TABLE \w+ ADD|[A-Z]{4,}\b)", statement, re.MULTILINE)
    }
    assert {re.sub(r"TABLE \w+ ADD", "TABLE ADD", word) for word in words} <= {
        "CREATE TABLE",
        "ALTER TABLE ADD",
        "PRIMARY",
    }


def test_cql_can_be_applied_again() -> None:
    statements = [statement for migration in migrations("cql") for statement in migration.statements]
    assert all("IF NOT EXISTS" in statement for statement in statements)


def test_sqlite_accepts_every_statement_and_knows_the_same_columns() -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        for migration in migrations("sql"):
            for statement in in_dialect(migration, "sqlite"):
                connection.execute(statement)
        found = {name for _, name, *_ in connection.execute("PRAGMA table_info(es_transaction)")}
    assert found == columns("sql", "es_transaction")


def test_postgresql_gets_its_own_types_and_its_sequence() -> None:
    statements = [statement for migration in migrations("sql") for statement in in_dialect(migration, "postgresql")]
    assert any("payload             BYTEA" in statement for statement in statements)
    assert sum("sequence bigint GENERATED" in statement for statement in statements) == 1
    assert not any("{" in statement or "--" in statement for statement in statements)


def test_sqlite_orders_by_its_rowid_and_needs_no_sequence() -> None:
    statements = [statement for migration in migrations("sql") for statement in in_dialect(migration, "sqlite")]
    assert not any("sequence" in statement for statement in statements)
