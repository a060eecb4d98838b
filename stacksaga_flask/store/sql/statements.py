"""Every statement of the SQL store, named, and compiled once for a database.

The engine's statements run on the DBAPI connection as strings: compiling or even looking up a Core statement for
each execution would cost more than SQLite's own work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Table,
    bindparam,
    delete,
    literal_column,
    or_,
    select,
    update,
)
from sqlalchemy.sql import ClauseElement
from stacksaga_schema import SqlDialect

from stacksaga_flask.store.columns import TRANSACTION_COLUMNS, TRYOUT_COLUMNS
from stacksaga_flask.store.sql import tables as t
from stacksaga_flask.store.sql.backend import Backend


class Statement(NamedTuple):
    """A compiled statement."""

    sql: str
    order: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    """Puts named values into the order of the statement's placeholders."""


Make: TypeAlias = Callable[[ClauseElement], Statement]


class Statements:
    """The statements for one database. A value is bound by the name of its column unless said otherwise."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._now: ColumnElement[int] = literal_column(backend.now, BigInteger)
        self._transactions(self._compile)
        self._markers(self._compile)
        self._directory(self._compile)
        self._settings_and_schema(self._compile)

    def _transactions(self, make: Make) -> None:
        # `expected_epoch` is what fences (R13).
        self.insert_row = make(self._insert_or_ignore(t.TRANSACTION))
        self.update_row = make(
            update(t.TRANSACTION)
            .values({name: bindparam(name) for name in TRANSACTION_COLUMNS})
            .where(*_key(t.TRANSACTION), t.TRANSACTION.c.epoch == bindparam("expected_epoch"))
        )
        self.upsert_row = make(self._upsert(t.TRANSACTION, where=t.TRANSACTION.c.epoch == bindparam("expected_epoch")))
        # Its count tells whether there is a row, after any insert under way, for which a SELECT does not wait.
        self.hold_row = make(self._hold(t.TRANSACTION))
        self.drop_row = make(delete(t.TRANSACTION).where(*_key(t.TRANSACTION)))
        self.select_row = make(select(*_columns(t.TRANSACTION, TRANSACTION_COLUMNS)).where(*_key(t.TRANSACTION)))
        self.upsert_tryout = make(self._upsert(t.TRYOUT))
        self.select_tryouts = make(
            select(*_columns(t.TRYOUT, TRYOUT_COLUMNS))
            .where(*_key(t.TRYOUT, "tryout_index"))
            .order_by(t.TRYOUT.c.tryout_index)
        )
        self.upsert_frozen = make(self._upsert(t.FROZEN))
        self.delete_frozen = make(delete(t.FROZEN).where(*_key(t.FROZEN)))
        self.select_frozen = make(
            select(*_columns(t.FROZEN, ("transaction_id", "frozen_at", "reason")))
            .where(*_key(t.FROZEN, "transaction_id"))
            .order_by(t.FROZEN.c.transaction_id)
        )

    def _markers(self, make: Make) -> None:
        # `ttl` is in microseconds or None, `expected_state` what a conditional write must find.
        alive = or_(t.MARKER.c.expires_at.is_(None), t.MARKER.c.expires_at > self._now)
        as_expected = t.MARKER.c.execution_state == bindparam("expected_state")
        gone_at = self._now + bindparam("ttl", type_=BigInteger)
        self.put_marker = make(self._upsert(t.MARKER, {"expires_at": gone_at}))
        self.insert_marker = make(
            self._upsert(t.MARKER, {"expires_at": gone_at}, where=t.MARKER.c.expires_at <= self._now)
        )
        self.replace_marker = make(
            update(t.MARKER)
            .values(execution_state=bindparam("execution_state"), result=bindparam("result"), expires_at=gone_at)
            .where(*_key(t.MARKER), as_expected, alive)
        )
        self.delete_marker = make(delete(t.MARKER).where(*_key(t.MARKER), as_expected, alive))
        self.hold_marker = make(self._hold(t.MARKER))
        self.drop_marker = make(delete(t.MARKER).where(*_key(t.MARKER)))
        marker = select(*_columns(t.MARKER, ("step_id", "execution_state", "result")))
        self.select_marker = make(marker.where(*_key(t.MARKER), alive))
        self.select_markers = make(marker.where(*_key(t.MARKER, "step_id"), alive).order_by(t.MARKER.c.step_id))
        self.delete_markers = make(delete(t.MARKER).where(*_key(t.MARKER, "step_id")))

    def _directory(self, make: Make) -> None:
        self.insert_day = make(self._insert_or_ignore(t.DAY))
        self.insert_window = make(self._insert_or_ignore(t.WINDOW))
        self.insert_instance = make(self._insert_or_ignore(t.INSTANCE))
        self.insert_bucket = make(self._insert_or_ignore(t.BUCKET))
        self.insert_pointer = make(self._insert_or_ignore(t.POINTER))
        self.delete_pointer = make(delete(t.POINTER).where(*_key(t.POINTER)))
        # Tier by tier the row and what must not lie below it; of tier 5 pointers are deleted by the ids read (R13).
        self.drops = {
            tier: make(self._drop(table, below))
            for tier, table, below in (
                (1, t.DAY, t.WINDOW),
                (2, t.WINDOW, t.INSTANCE),
                (3, t.INSTANCE, t.BUCKET),
                (4, t.BUCKET, t.POINTER),
            )
        }
        self.select_days = make(self._tier(t.DAY, "date_of_year"))
        self.select_windows = make(
            select(t.WINDOW.c.minute_of_day)
            .where(
                *_key(t.WINDOW, "minute_of_day"),
                t.WINDOW.c.minute_of_day >= bindparam("minimum"),
                t.WINDOW.c.minute_of_day <= bindparam("maximum"),
            )
            .order_by(t.WINDOW.c.minute_of_day)
        )
        self.select_instances = make(
            select(t.INSTANCE.c.instance_id_token, t.INSTANCE.c.instance_id)
            .where(
                *_key(t.INSTANCE, "instance_id_token", "instance_id"),
                t.INSTANCE.c.instance_id_token >= bindparam("minimum"),
                t.INSTANCE.c.instance_id_token <= bindparam("maximum"),
            )
            .order_by(t.INSTANCE.c.instance_id_token, t.INSTANCE.c.instance_id)
        )
        self.select_buckets = make(self._tier(t.BUCKET, "bucket_index"))
        self.select_pointers = make(
            select(t.POINTER.c.transaction_id)
            .where(*_key(t.POINTER, "transaction_id"))
            .order_by(literal_column(self._backend.arrival))
        )
        self.select_pointer = make(select(t.POINTER.c.transaction_id).where(*_key(t.POINTER)))
        # `keep_for` is in microseconds.
        self.insert_start = make(
            self._insert_or_ignore(t.START, {"expires_at": self._now + bindparam("keep_for", type_=BigInteger)})
        )

    def _settings_and_schema(self, make: Make) -> None:
        self.insert_settings = make(self._insert_or_ignore(t.SETTINGS))
        self.raise_schema_version = make(
            update(t.SETTINGS)
            .values(schema_version=bindparam("schema_version"))
            .where(*_key(t.SETTINGS), t.SETTINGS.c.schema_version < bindparam("schema_version"))
        )
        self.select_settings = make(
            select(*_columns(t.SETTINGS, ("schema_version", "window_interval", "clock_skew_margin"))).where(
                *_key(t.SETTINGS)
            )
        )
        self.select_now = make(select(self._now))
        self.insert_migration = make(self._insert_or_ignore(t.MIGRATION, {"applied_at": self._now}))
        self.select_migrations = make(select(t.MIGRATION.c.version))

    def _hold(self, table: Table) -> ClauseElement:
        """Insert a key alone; it is to be deleted by the same transaction."""
        keys: dict[str, Any] = {column.name: bindparam(column.name) for column in table.primary_key}
        insert: Any = self._backend.insert(table)
        statement: ClauseElement = insert.values(keys).on_conflict_do_nothing()
        return statement

    def _insert_or_ignore(self, table: Table, computed: Mapping[str, Any] | None = None) -> ClauseElement:
        statement: ClauseElement = self._insert(table, computed).on_conflict_do_nothing()
        return statement

    def _upsert(
        self, table: Table, computed: Mapping[str, Any] | None = None, where: ColumnElement[bool] | None = None
    ) -> ClauseElement:
        insert = self._insert(table, computed)
        statement: ClauseElement = insert.on_conflict_do_update(
            index_elements=list(table.primary_key.columns),
            set_={column.name: insert.excluded[column.name] for column in table.columns if not column.primary_key},
            where=where,
        )
        return statement

    def _insert(self, table: Table, computed: Mapping[str, Any] | None) -> Any:
        # Any: the two dialects' inserts share no type that has ON CONFLICT.
        values: dict[str, Any] = {column.name: bindparam(column.name) for column in table.columns}
        return self._backend.insert(table).values({**values, **(computed or {})})

    def _drop(self, table: Table, below: Table) -> ClauseElement:
        """Delete a row of a tier unless something lies below it."""
        shared = [table.c[column.name] == column for column in below.primary_key if column.name in table.c]
        lies_below = select(literal_column("1")).select_from(below).where(*shared).correlate(table).exists()
        return delete(table).where(*_key(table), ~lies_below)

    def _tier(self, table: Table, name: str) -> ClauseElement:
        return select(table.c[name]).where(*_key(table, name)).order_by(table.c[name])

    def _compile(self, statement: ClauseElement) -> Statement:
        compiled: Any = statement.compile(dialect=self._backend.engine.dialect)
        names: list[str] = compiled.positiontup
        return Statement(str(compiled), _in_order(names))


_COMPILED: Final[dict[SqlDialect, Statements]] = {}


def statements_for(backend: Backend) -> Statements:
    """The statements of the backend's dialect, compiled the first time."""
    found = _COMPILED.get(backend.dialect)
    if found is None:
        found = _COMPILED[backend.dialect] = Statements(backend)
    return found


def _key(table: Table, *without: str) -> list[ColumnElement[bool]]:
    """The table's whole primary key, or the part of it that comes before the named columns."""
    return [column == bindparam(column.name) for column in table.primary_key if column.name not in without]


def _columns(table: Table, names: tuple[str, ...]) -> list[ColumnElement[Any]]:
    return [table.c[name] for name in names]


def _in_order(names: list[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    if len(names) > 1:
        return itemgetter(*names)
    # An itemgetter of one name gives no tuple.
    return lambda values: tuple(values[name] for name in names)
