"""Creating, upgrading and checking the tables, each under one transaction that writes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Table, delete, func, select, update
from sqlalchemy.sql import ClauseElement
from stacksaga_schema import SCHEMA_VERSION, in_dialect, migrations

from stacksaga_flask.clock import SECOND
from stacksaga_flask.errors import SchemaMismatch, SchemaMissing
from stacksaga_flask.store.contract import Grid, Scope
from stacksaga_flask.store.sql import tables
from stacksaga_flask.store.sql.backend import Backend, Cursor
from stacksaga_flask.store.sql.pooled import Pool
from stacksaga_flask.store.sql.rows import grid, grid_values
from stacksaga_flask.store.sql.statements import Statements, statements_for

T = TypeVar("T")
REMEDY: Final = "run `flask stacksaga init-schema`"
TIERS_ABOVE_POINTERS: Final = (tables.DAY, tables.WINDOW, tables.INSTANCE, tables.BUCKET)


def ensure_tables(backend: Backend) -> None:
    """Create the tables in a database that has none at all; otherwise check that ours are there.

    Raises:
        SchemaMissing: There are tables, but not all of ours or of an older version.
        StoreError: The database cannot be opened or written.
    """
    statements = statements_for(backend)

    def ensure(cursor: Cursor) -> None:
        if _tables(backend, cursor):
            _check(backend, statements, cursor)
        else:
            _migrate(backend, statements, cursor)

    _in_a_transaction(backend, ensure)


def require_tables(backend: Backend) -> None:
    """Check that our tables are there.

    Raises:
        SchemaMissing: Not all of them are, or they are of an older version.
        StoreError: The database cannot be opened or written.
    """
    _in_a_transaction(backend, partial(_check, backend, statements_for(backend)))


def upgrade(backend: Backend, scope: Scope, wanted: Grid) -> list[str]:
    """Apply what is missing and record the grid of the scope (R15); again and again without harm.

    Another grid than the recorded one takes its place if the scope has no pointer. What is left of the tiers above goes
    with the old one, since its windows would be taken for others.

    Returns:
        The names of the migrations that were applied, and what became of the settings if they were written.

    Raises:
        SchemaMismatch: The scope was set up with another grid and has pointers; nothing was changed.
        StoreError: The database cannot be opened or written.
    """
    return _in_a_transaction(backend, partial(_upgrade, backend, statements_for(backend), scope, wanted))


def _upgrade(backend: Backend, statements: Statements, scope: Scope, wanted: Grid, cursor: Cursor) -> list[str]:
    applied = _migrate(backend, statements, cursor)
    values = {**scope._asdict(), **grid_values(wanted)}
    insert, recorded = statements.insert_settings, statements.select_settings
    cursor.execute(insert.sql, insert.order(values))
    if cursor.rowcount == 1:
        applied.append(f"settings of {'/'.join(scope)}")
    cursor.execute(recorded.sql, recorded.order(values))
    found = grid(cursor.fetchone())
    if _spacing(found) != _spacing(wanted):
        applied.append(_change_grid(backend, cursor, scope, found, wanted))
    newer = statements.raise_schema_version
    cursor.execute(newer.sql, newer.order(values))
    return applied


def _in_a_transaction(backend: Backend, work: Callable[[Cursor], T]) -> T:
    """Do the work alone: of two processes that set up the schema, one waits."""

    def alone(cursor: Cursor) -> T:
        if backend.setup_lock is not None:
            cursor.execute(backend.setup_lock)
        return work(cursor)

    return Pool(backend).run(alone, commits=True)


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
        raise SchemaMissing(f"{backend.name} lacks the tables {', '.join(sorted(missing))}: {REMEDY}")
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


def _change_grid(backend: Backend, cursor: Cursor, scope: Scope, found: Grid, wanted: Grid) -> str:
    """Put another grid into place, and say so."""
    if backend.table_lock is not None:
        # In the order of a registration, so that neither waits for the other: no pointer comes after they are counted.
        for table in (*TIERS_ABOVE_POINTERS, tables.POINTER):
            cursor.execute(backend.table_lock.format(table.name))
    _execute(backend, cursor, select(func.count()).where(*_of(scope, tables.POINTER)))
    (pointers,) = cursor.fetchone()
    if pointers:
        raise SchemaMismatch(
            f"{backend.name} was set up for {'/'.join(scope)} with {_told(found)}, not {_told(wanted)}, and its "
            f"directory has {pointers} pointer(s) to transactions under way, paused, waiting or frozen, which would "
            f"be looked for at wrong times (R15): set the old values, let those transactions end, stop the service "
            f"and run `flask stacksaga init-schema` with the new ones"
        )
    dropped = 0
    for table in TIERS_ABOVE_POINTERS:
        _execute(backend, cursor, delete(table).where(*_of(scope, table)))
        dropped += cursor.rowcount
    values = {"window_interval": wanted.window_interval, "clock_skew_margin": wanted.clock_skew_margin}
    _execute(backend, cursor, update(tables.SETTINGS).values(values).where(*_of(scope, tables.SETTINGS)))
    return (
        f"settings of {'/'.join(scope)}: {_told(wanted)} instead of {_told(found)}, and deleted {dropped} rows of its "
        f"empty directory; restart every process of the service that still runs with the old ones"
    )


def _execute(backend: Backend, cursor: Cursor, statement: ClauseElement) -> None:
    """Run a statement that is not worth compiling beforehand."""
    compiled: Any = statement.compile(dialect=backend.engine.dialect)
    cursor.execute(str(compiled), tuple(compiled.params[name] for name in compiled.positiontup))


def _of(scope: Scope, table: Table) -> list[ColumnElement[bool]]:
    return [table.c[name] == value for name, value in scope._asdict().items()]


def _spacing(of: Grid) -> tuple[int, int]:
    return of.window_interval, of.clock_skew_margin


def _told(of: Grid) -> str:
    return f"a window interval of {of.window_interval} s and a clock skew margin of {of.clock_skew_margin / SECOND:g} s"
