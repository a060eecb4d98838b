"""PostgreSQL: how it is connected to, and what its errors mean."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pg8000.dbapi
from sqlalchemy import URL, QueuePool, create_engine
from sqlalchemy.dialects.postgresql import insert

from stacksaga_flask.errors import OutcomeUnknown, SchemaMissing, StoreError, StoreRefused, StoreUnavailable
from stacksaga_flask.store.sql.backend import Backend

NOW: Final = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"
TABLES: Final = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
SETUP_LOCK: Final = "SELECT pg_advisory_xact_lock(7381264915370924)"
"""Any number, the same in all versions."""
CONNECTIONS, MORE_CONNECTIONS = 5, 15
"""How many a process keeps, and has besides when it is busy."""
SLACK: Final = 2.0
"""Seconds by which this side waits longer than the server does, so that it is the server that gives up."""

_DEADLOCK, _SERIALIZATION = "40P01", "40001"
_WRONG_LOGIN: Final = ("28P01", "28000")
_NO_DATABASE: Final = "3D000"
_NOT_PERMITTED: Final = "42501"
_LACKS: Final = ("42P01", "42703", "3F000")
_PASSING: Final = ("53", "55", "57", "58", "08", "25", "40", "XX")
"""Classes of errors that may not come again: resources, locks, an operator's doing, the system's failures."""


def postgresql_backend(
    *,
    host: str,
    port: int,
    database: str,
    username: str | None,
    password: str | None,
    ssl_context: ssl.SSLContext | None,
    timeout: float,
    connect: Callable[..., Any] = pg8000.dbapi.connect,
) -> Backend:
    """A backend for one database; nothing is opened yet. `timeout` is how many seconds a statement may take."""
    name = f"PostgreSQL at {host}:{port}, database {database}, user {username or 'postgres'}"
    milliseconds = str(round(timeout * 1000))
    creator = partial(
        _open,
        connect,
        host=host,
        port=port,
        database=database,
        user=username or "postgres",
        password=password,
        ssl_context=ssl_context or False,
        timeout=timeout + SLACK,
        tcp_keepalive=True,
        application_name="stacksaga",
        startup_params={
            # Nothing acknowledged is lost; nobody who was stopped keeps a lock.
            "synchronous_commit": "on",
            "default_transaction_isolation": "read committed",
            "statement_timeout": milliseconds,
            "lock_timeout": milliseconds,
            "idle_in_transaction_session_timeout": milliseconds,
        },
    )
    engine = create_engine(
        URL.create("postgresql+pg8000", host=host, port=port, database=database),
        creator=creator,
        poolclass=QueuePool,
        pool_size=CONNECTIONS,
        max_overflow=MORE_CONNECTIONS,
        pool_timeout=timeout,
        pool_reset_on_return=None,
    )
    return Backend(
        name=name,
        engine=engine,
        dialect="postgresql",
        insert=insert,
        now=NOW,
        arrival="sequence",
        begin="BEGIN",
        tables=TABLES,
        driver_errors=(pg8000.dbapi.Error, OSError),
        single_writer=False,
        is_passing=is_passing,
        setup_lock=SETUP_LOCK,
        is_contention=lambda error: False,
        be_patient=lambda cursor, patient: None,
        in_transaction=lambda connection: bool(connection._in_transaction),
        refusal=partial(refusal, name),
        commit_failure=partial(commit_failure, name),
    )


def is_passing(error: Exception) -> bool:
    """Whether the same may be done again at once: nothing was written, and a new connection may fare better."""
    code = _code(error)
    return code in (_DEADLOCK, _SERIALIZATION) or code is None or code.startswith(("08", "57P"))


def refusal(name: str, error: Exception) -> StoreError:
    """What an error means where nothing was written."""
    text, code = _told(error), _code(error)
    if code is None:
        return StoreUnavailable(f"{name}: {text}: see that host and port are right and the server is up")
    if code in _WRONG_LOGIN:
        return StoreRefused(
            f"{name}: {text}: set STACKSAGA_STORE_USERNAME and STACKSAGA_STORE_PASSWORD or "
            f"STACKSAGA_STORE_PASSWORD_FILE to a login of the server"
        )
    if code == _NO_DATABASE:
        return StoreRefused(f"{name}: {text}: create it (`createdb`), then run `flask stacksaga init-schema`")
    if code == _NOT_PERMITTED:
        return StoreRefused(f"{name}: {text}: grant this user SELECT, INSERT, UPDATE and DELETE on the tables")
    if code in _LACKS:
        return SchemaMissing(f"{name}: {text}: run `flask stacksaga init-schema`")
    if code.startswith(_PASSING):
        return StoreUnavailable(f"{name}: {text}: nothing was written")
    return StoreRefused(f"{name}: {text}: nothing was written")


def commit_failure(name: str, error: Exception) -> StoreError:
    """What the error of a COMMIT means: only a conflict is told instead of a commit."""
    code = _code(error)
    if code is not None and code.startswith(("40", "23")):
        return refusal(name, error)
    return OutcomeUnknown(f"{name}: the commit was not acknowledged ({_told(error)}): it may have been written")


def _open(connect: Callable[..., Any], **options: Any) -> Any:
    connection = connect(**options)
    # The store begins and ends transactions itself.
    connection.autocommit = True
    return connection


def _code(error: Exception) -> str | None:
    """The SQLSTATE that the server sent, or None if it sent none."""
    told = error.args[0] if error.args else None
    return told.get("C") if isinstance(told, dict) else None


def _told(error: Exception) -> str:
    told = error.args[0] if error.args else None
    if isinstance(told, dict):
        return f"{told.get('M')} ({told.get('C')})"
    cause = error.__cause__
    return f"{error}" if cause is None else f"{error} {cause}"
