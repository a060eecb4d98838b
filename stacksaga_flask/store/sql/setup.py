"""Creating, upgrading and checking the tables, each under one transaction that writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

from sqlalchemy.exc import SQLAlchemyError
from stacksaga_schema import SCHEMA_VERSION, in_dialect, migrations

from stacksaga_flask.clock import SECOND
from stacksaga_flask.errors import SchemaMismatch, SchemaMissing
from stacksaga_flask.store.contract import Grid, Scope
from stacksaga_flask.store.sql import tables
from stacksaga_flask.store.sql.backend import Backend, Cursor
from stacksaga_flask.store.sql.rows import grid, grid_values
from stacksaga_flask.store.sql.statements import Statements, statements_for
from stacksaga_flask.store.sql.writer import explained

REMEDY: Final = "run `flask stacksaga init-schema`"


def ensure_tables(backend: Backend) -> None:
    """Create the tables in a database that has none at all; otherwise check that ours are there.

    Raises:
        SchemaMissing: There are tables, but not all of ours or of an older version.
        StoreError: The database cannot be opened or written.
    """
    statements = statements_for(backend)
    with _transaction(backend) as cursor:
        if _tables(backend, cursor):
            _check(backend, statements, cursor)
        else:
            _migrate(backend, statements, cursor)


def upgrade(backend: Backend, scope: Scope, wanted: Grid) -> list[str]:
    """Apply what is missing and record the grid of the scope (R15); again and again without harm.

    Returns:
        The names of the migrations that were applied, and of the settings if they were recorded.

    Raises:
        SchemaMismatch: The scope was set up with another grid; nothing was changed.
        StoreError: The database cannot be opened or written.
    """
    statements = statements_for(backend)
    with _transaction(backend) as cursor:
        applied = _migrate(backend, statements, cursor)
        values = {**scope._asdict(), **grid_values(wanted)}
        insert, select = statements.insert_settings, statements.select_settings
        cursor.execute(insert.sql, insert.order(values))
        if cursor.rowcount == 1:
            applied.append(f"settings of {'/'.join(scope)}")
        cursor.execute(select.sql, select.order(values))
        _compare(backend, scope, wanted, grid(cursor.fetchone()))
        newer = statements.raise_schema_version
        cursor.execute(newer.sql, newer.order(values))
    return applied


@contextmanager
def _transaction(backend: Backend) -> Iterator[Cursor]:
    try:
        with closing(backend.engine.raw_connection()) as connection:
            cursor: Cursor = connection.cursor()
            cursor.execute(backend.begin)
            try:
                yield cursor
                cursor.execute("COMMIT")
            except BaseException:
                if backend.in_transaction(connection.driver_connection):
                    cursor.execute("ROLLBACK")
                raise
    except (backend.driver_error, SQLAlchemyError) as error:
        raise explained(backend.refusal, error) from error


def _tables(backend: Backend, cursor: Cursor) -> set[str]:
    cursor.execute(backend.tables)
    return {name for (name,) in cursor.fetchall()}


def _applied(backend: Backend, statements: Statements, cursor: Cursor) -> set[int]:
    if tables.MIGRATION.name not in _tables(backend, cursor):
        return set()
    cursor.execute(statements.select_migrations.sql)
    return {version for (version,) in cursor.fetchall()}


def _check(backend: Backend, statements: Statements, cursor: Cursor) -> None:
    missing = set(tables.METADATA.tables) - _tables(backend, cursor)
    if missing:
        raise SchemaMissing(f"{backend.name} has tables, but not {', '.join(sorted(missing))}: {REMEDY}")
    lacking = {migration.number for migration in migrations("sql")} - _applied(backend, statements, cursor)
    if lacking:
        raise SchemaMissing(
            f"{backend.name} has an older schema than version {SCHEMA_VERSION}, without the migrations "
            f"{', '.join(map(str, sorted(lacking)))}: {REMEDY}"
        )
    # It is there and changes nothing, but SQLite begins on a file that may only be read without a word.
    again = statements.insert_migration
    cursor.execute(again.sql, again.order({"version": SCHEMA_VERSION}))


def _migrate(backend: Backend, statements: Statements, cursor: Cursor) -> list[str]:
    applied = _applied(backend, statements, cursor)
    missing = [migration for migration in migrations("sql") if migration.number not in applied]
    for migration in missing:
        for statement in in_dialect(migration, backend.dialect):
            cursor.execute(statement)
    # Not after each file: the first ones come before the table that tells which were applied.
    insert = statements.insert_migration
    for migration in missing:
        cursor.execute(insert.sql, insert.order({"version": migration.number}))
    return [migration.name for migration in missing]


def _compare(backend: Backend, scope: Scope, wanted: Grid, found: Grid) -> None:
    theirs = (found.window_interval, found.clock_skew_margin)
    if theirs != (wanted.window_interval, wanted.clock_skew_margin):
        raise SchemaMismatch(
            f"{backend.name} was set up for {'/'.join(scope)} with a window interval of {found.window_interval} s and "
            f"a clock skew margin of {found.clock_skew_margin / SECOND:g} s, not {wanted.window_interval} s and "
            f"{wanted.clock_skew_margin / SECOND:g} s: use those, or change them while the directory is empty (R15)"
        )
