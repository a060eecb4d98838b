"""Every statement of the Cassandra store, by name. No other file holds CQL for them.

Plain writes carry an explicit timestamp as their last value (R13), whole rows are inserted, and each names the
keyspace. Conditional ones (R16) take none, as Cassandra gives them a ballot.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from cassandra.query import PreparedStatement

from stacksaga_flask.store.cassandra.binding import Bind, binder
from stacksaga_flask.store.columns import TRANSACTION_COLUMNS, TRYOUT_COLUMNS

_SCOPE: Final = ("region", "cluster", "service_name")
_TRANSACTION: Final = (*_SCOPE, "transaction_id")
_MARKER: Final = (*_TRANSACTION, "step_id")
_TIER_1: Final = (*_SCOPE, "year")
_TIER_2: Final = (*_SCOPE, "date_of_year")
_TIER_3: Final = (*_TIER_2, "minute_of_day")
_TIER_4: Final = (*_TIER_3, "instance_id")
_TIER_5: Final = (*_TIER_4, "bucket_index")
_START: Final = (*_TIER_3, "shard", "transaction_id", "saga_name", "created_at")
_GRID: Final = ("schema_version", "window_interval", "clock_skew_margin")


def _insert(table: str, columns: tuple[str, ...], using: str = "TIMESTAMP ?") -> str:
    marks = ", ".join("?" for _ in columns)
    return f"INSERT INTO {{keyspace}}.{table} ({', '.join(columns)}) VALUES ({marks}) USING {using}"


def _delete(table: str, key: tuple[str, ...]) -> str:
    # The timestamp comes first in the text, so the values begin with it.
    return f"DELETE FROM {{keyspace}}.{table} USING TIMESTAMP ? WHERE {_where(key)}"


def _select(table: str, columns: tuple[str, ...], key: tuple[str, ...]) -> str:
    return f"SELECT {', '.join(columns)} FROM {{keyspace}}.{table} WHERE {_where(key)}"


def _where(key: tuple[str, ...]) -> str:
    return " AND ".join(f"{column} = ?" for column in key)


def _times(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Columns with their times as milliseconds, since the driver's datetimes know no time zone."""
    return tuple(f"toUnixTimestamp({column})" if column.endswith("_at") else column for column in columns)


class Statements:
    """The statements of one keyspace, prepared; each binds values in the order of the text.

    Args:
        keyspace: The keyspace.
        prepare: Prepares a text.
    """

    # -- the four tables of one transaction
    write_row: Bind
    delete_row: Bind
    read_row: Bind
    write_tryout: Bind
    read_tryouts: Bind
    write_frozen: Bind
    delete_frozen: Bind
    read_all_frozen: Bind
    write_marker: Bind
    delete_markers: Bind
    read_markers: Bind
    # -- conditional, and the read that resolves one
    insert_marker: Bind
    replace_marker: Bind
    delete_marker: Bind
    read_marker: Bind
    insert_grid: Bind
    replace_grid: Bind
    read_grid: Bind
    # -- the directory
    write_day: Bind
    write_window: Bind
    write_instance: Bind
    write_bucket: Bind
    write_pointer: Bind
    delete_pointer: Bind
    drop_pointers: Bind
    drop_bucket: Bind
    drop_instance: Bind
    drop_window: Bind
    drop_day: Bind
    read_days: Bind
    read_windows: Bind
    read_instances: Bind
    read_buckets: Bind
    read_pointers: Bind
    read_pointer: Bind
    write_start: Bind
    # -- others
    read_now: Bind

    def __init__(self, keyspace: str, prepare: Callable[[str], PreparedStatement]) -> None:
        for name, text in TEXTS.items():
            prepared = prepare(text.format(keyspace=keyspace))
            prepared.is_idempotent = name not in CONDITIONAL
            setattr(self, name, binder(prepared))


CONDITIONAL: Final = frozenset({"insert_marker", "replace_marker", "delete_marker", "insert_grid", "replace_grid"})
"""Statements whose outcome depends on what is there: never marked idempotent."""

TEXTS: Final = {
    "write_row": _insert("es_transaction", (*_TRANSACTION, *TRANSACTION_COLUMNS)),
    "delete_row": _delete("es_transaction", _TRANSACTION),
    "read_row": _select("es_transaction", (*_times(TRANSACTION_COLUMNS), "WRITETIME(running_status)"), _TRANSACTION),
    "write_tryout": _insert("es_transaction_tryout", (*_TRANSACTION, *TRYOUT_COLUMNS)),
    "read_tryouts": _select("es_transaction_tryout", _times(TRYOUT_COLUMNS), _TRANSACTION),
    "write_frozen": _insert("es_frozen_transaction", (*_TRANSACTION, "frozen_at", "reason")),
    "delete_frozen": _delete("es_frozen_transaction", _TRANSACTION),
    # The only walk over a whole table, which is small; those of other scopes are left out while it is read.
    "read_all_frozen": (
        "SELECT region, cluster, service_name, transaction_id, toUnixTimestamp(frozen_at), reason "
        "FROM {keyspace}.es_frozen_transaction"
    ),
    "write_marker": _insert("es_execution_markers", (*_MARKER, "execution_state", "result")),
    "delete_markers": _delete("es_execution_markers", _TRANSACTION),
    "read_markers": _select("es_execution_markers", ("step_id", "execution_state", "result"), _TRANSACTION),
    # An UPDATE, not an INSERT: it leaves no row behind when its cells expire, which would block the next one.
    "insert_marker": (
        "UPDATE {keyspace}.es_execution_markers USING TTL ? SET execution_state = ?, result = ? "
        f"WHERE {_where(_MARKER)} IF execution_state = null AND result = null"
    ),
    "replace_marker": (
        "UPDATE {keyspace}.es_execution_markers USING TTL ? SET execution_state = ?, result = ? "
        f"WHERE {_where(_MARKER)} IF execution_state = ?"
    ),
    "delete_marker": f"DELETE FROM {{keyspace}}.es_execution_markers WHERE {_where(_MARKER)} IF execution_state = ?",
    "read_marker": _select("es_execution_markers", ("execution_state", "result"), _MARKER),
    "insert_grid": (
        f"INSERT INTO {{keyspace}}.es_settings ({', '.join((*_SCOPE, *_GRID))}) "
        f"VALUES ({', '.join('?' * 6)}) IF NOT EXISTS"
    ),
    "replace_grid": (
        f"UPDATE {{keyspace}}.es_settings SET {', '.join(f'{column} = ?' for column in _GRID)} "
        f"WHERE {_where(_SCOPE)} IF {_where(_GRID)}"
    ),
    "read_grid": _select("es_settings", _GRID, _SCOPE),
    "write_day": _insert("es_days_by_year", (*_TIER_1, "date_of_year")),
    "write_window": _insert("es_recovery_windows_by_day", (*_TIER_2, "minute_of_day")),
    "write_instance": _insert("es_instances_by_recovery_window", (*_TIER_3, "instance_id_token", "instance_id")),
    "write_bucket": _insert("es_buckets_by_instance", (*_TIER_4, "bucket_index")),
    "write_pointer": _insert("es_recovery_transactions_by_instance", (*_TIER_5, "transaction_id")),
    "delete_pointer": _delete("es_recovery_transactions_by_instance", (*_TIER_5, "transaction_id")),
    "drop_pointers": _delete("es_recovery_transactions_by_instance", _TIER_5),
    "drop_bucket": _delete("es_buckets_by_instance", (*_TIER_4, "bucket_index")),
    "drop_instance": _delete("es_instances_by_recovery_window", (*_TIER_3, "instance_id_token", "instance_id")),
    "drop_window": _delete("es_recovery_windows_by_day", (*_TIER_2, "minute_of_day")),
    "drop_day": _delete("es_days_by_year", (*_TIER_1, "date_of_year")),
    "read_days": _select("es_days_by_year", ("date_of_year",), _TIER_1),
    "read_windows": (
        _select("es_recovery_windows_by_day", ("minute_of_day",), _TIER_2)
        + " AND minute_of_day >= ? AND minute_of_day <= ?"
    ),
    "read_instances": (
        _select("es_instances_by_recovery_window", ("instance_id_token", "instance_id"), _TIER_3)
        + " AND instance_id_token >= ? AND instance_id_token <= ?"
    ),
    "read_buckets": _select("es_buckets_by_instance", ("bucket_index",), _TIER_4),
    "read_pointers": _select("es_recovery_transactions_by_instance", ("transaction_id",), _TIER_5),
    "read_pointer": _select("es_recovery_transactions_by_instance", ("transaction_id",), (*_TIER_5, "transaction_id")),
    "write_start": _insert("es_transaction_by_start", _START, "TIMESTAMP ? AND TTL ?"),
    "read_now": "SELECT toUnixTimestamp(now()) FROM system.local WHERE key = 'local'",
}
"""CQL by the names of `Statements`; the keyspace is still to be put in."""
