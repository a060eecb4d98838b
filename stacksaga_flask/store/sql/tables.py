"""The tables as SQLAlchemy knows them. Only what the statements name; a newer schema may have more."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Boolean, Column, Integer, LargeBinary, MetaData, Table, Text

METADATA: Final = MetaData()


def _key(*names: str) -> list[Column[str]]:
    return [Column(name, Text, primary_key=True) for name in names]


def _numbers(*names: str) -> list[Column[int]]:
    return [Column(name, Integer, primary_key=True) for name in names]


def _scope() -> list[Column[str]]:
    return _key("region", "cluster", "service_name")


TRANSACTION: Final = Table(
    "es_transaction",
    METADATA,
    *_key("region", "cluster", "service_name", "transaction_id"),
    Column("running_status", Text),
    Column("created_at", BigInteger),
    Column("updated_at", BigInteger),
    Column("payload", LargeBinary),
    Column("restore_date", Text),
    Column("restore_window", Integer),
    Column("restore_instance_id", Text),
    Column("restore_bucket", Integer),
    Column("saga_name", Text),
    Column("saga_version", Integer),
    Column("payload_version", Integer),
    Column("epoch", Integer),
    Column("committed_steps", Text),
    Column("possibly_done", Boolean),
    Column("reverts", Text),
    Column("retry_date", Text),
    Column("retry_window", Integer),
    Column("retry_instance_id", Text),
    Column("retry_bucket", Integer),
    Column("attempt", Integer),
    Column("start_hash", Text),
    Column("protection_mode", Text),
    Column("waited", BigInteger),
    Column("status_before_freezing", Text),
    Column("reason", Text),
    Column("public_result", LargeBinary),
)

TRYOUT: Final = Table(
    "es_transaction_tryout",
    METADATA,
    *_key("region", "cluster", "service_name", "transaction_id"),
    *_numbers("tryout_index"),
    Column("executor", Text),
    Column("execution_type", Text),
    Column("status", Text),
    Column("created_at", BigInteger),
    Column("error", Text),
    Column("finished_at", BigInteger),
    Column("instance_id", Text),
)

FROZEN: Final = Table(
    "es_frozen_transaction",
    METADATA,
    *_key("region", "cluster", "service_name", "transaction_id"),
    Column("frozen_at", BigInteger),
    Column("reason", Text),
)

MARKER: Final = Table(
    "es_execution_markers",
    METADATA,
    *_key("region", "cluster", "service_name", "transaction_id", "step_id"),
    Column("execution_state", Text),
    Column("result", LargeBinary),
    Column("expires_at", BigInteger),
)

DAY: Final = Table("es_days_by_year", METADATA, *_scope(), *_numbers("year"), *_key("date_of_year"))

WINDOW: Final = Table(
    "es_recovery_windows_by_day", METADATA, *_scope(), *_key("date_of_year"), *_numbers("minute_of_day")
)

INSTANCE: Final = Table(
    "es_instances_by_recovery_window",
    METADATA,
    *_scope(),
    *_key("date_of_year"),
    *_numbers("minute_of_day"),
    Column("instance_id_token", BigInteger, primary_key=True),
    *_key("instance_id"),
)

BUCKET: Final = Table(
    "es_buckets_by_instance",
    METADATA,
    *_scope(),
    *_key("date_of_year"),
    *_numbers("minute_of_day"),
    *_key("instance_id"),
    *_numbers("bucket_index"),
)

POINTER: Final = Table(
    "es_recovery_transactions_by_instance",
    METADATA,
    *_scope(),
    *_key("date_of_year"),
    *_numbers("minute_of_day"),
    *_key("instance_id"),
    *_numbers("bucket_index"),
    *_key("transaction_id"),
)

SETTINGS: Final = Table(
    "es_settings",
    METADATA,
    *_scope(),
    Column("schema_version", Integer),
    Column("window_interval", Integer),
    Column("clock_skew_margin", BigInteger),
)

START: Final = Table(
    "es_transaction_by_start",
    METADATA,
    *_scope(),
    *_key("date_of_year"),
    *_numbers("minute_of_day", "shard"),
    *_key("transaction_id"),
    Column("saga_name", Text),
    Column("created_at", BigInteger),
    Column("expires_at", BigInteger),
)

MIGRATION: Final = Table(
    "es_schema_migration",
    METADATA,
    *_numbers("version"),
    Column("applied_at", BigInteger),
)
