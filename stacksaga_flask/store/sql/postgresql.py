"""PostgreSQL: how it is connected to, and what its errors mean."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pg8000.dbapi
from sqlalchemy import URL, QueuePool, create_engine
from sqlalchemy.dialects.postgresql import insert

from stacksaga_flask.clock import TimeSource
from stacksaga_flask.errors import OutcomeUnknown, SchemaMissing, StoreError, StoreRefused, StoreUnavailable
from stacksaga_flask.store.sql.backend import Backend, Failure
from stacksaga_flask.store.sql.postgresql_connection import Connection, connected_socket, limits

NOW: Final = "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"
TABLES: Final = "SELECT relname FROM pg_catalog.pg_class WHERE relkind IN ('r', 'p') AND pg_table_is_visible(oid)"
SETUP_LOCK: Final = "SELECT pg_advisory_xact_lock(7381264915370924)"
"""Any number, the same in all versions."""
TABLE_LOCK: Final = "LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE"
CONNECTIONS: Final = 20
"""How many a process has at most. They are opened when needed and kept, since a log-in costs more than a step."""

_CONFLICTS: Final = ("40P01", "40001")
"""A deadlock and a failure to serialise: the server has rolled back."""
_ENDED: Final = ("08", "57P")
"""Classes of errors that end the connection."""
_READ_ONLY: Final = "25006"
"""The server has become a standby, or always was one; the address may lead to the primary by now."""
_LACKS: Final = ("42P01", "42703", "3F000")
_PASSING: Final = ("53", "55", "57", "58", "08", "25", "40", "XX")
"""Classes of errors that may not come again: resources, locks, an operator's doing, the system's failures."""
_NOT_WRITTEN: Final = ("40", "23")
"""Classes of errors that a server tells instead of a commit: conflicts, and constraints checked last."""
_OUTCOME_UNKNOWN: Final = "40003"
_REMEDIES: Final = {
    "28P01": "set STACKSAGA_STORE_USERNAME and STACKSAGA_STORE_PASSWORD or STACKSAGA_STORE_PASSWORD_FILE to a login of "
    "the server",
    "28000": "see the server's pg_hba.conf for who may connect from where, and whether with STACKSAGA_STORE_TLS",
    "3D000": "create it (`createdb`), then run `flask stacksaga init-schema`",
    "42501": "grant this user SELECT, INSERT, UPDATE and DELETE on the tables",
    "53300": "raise the server's max_connections, or run fewer processes",
    _READ_ONLY: "name the primary and not a standby in STACKSAGA_STORE",
}


def postgresql_backend(
    *,
    host: str,
    port: int,
    database: str,
    username: str | None,
    password: str | None,
    ssl_context: ssl.SSLContext | None,
    timeout: float,
    time_source: TimeSource,
    connect: Callable[..., Any] = Connection,
) -> Backend:
    """A backend for one database; nothing is opened yet. `timeout` is how many seconds a call may take."""
    name = f"PostgreSQL at {host}:{port}, database {database}, user {username or 'postgres'}"
    creator = partial(
        _open,
        connect,
        limit=timeout,
        host=host,
        port=port,
        database=database,
        user=username or "postgres",
        # The driver knows no None where the server asks for a password.
        password=password or "",
        ssl_context=ssl_context or False,
        application_name="stacksaga",
        startup_params={
            # Nothing acknowledged is lost; nobody who was stopped keeps a lock.
            "synchronous_commit": "on",
            "default_transaction_isolation": "read committed",
            "idle_in_transaction_session_timeout": str(round(timeout * 1000)),
            **limits(timeout),
            "timezone": "UTC",
            "client_encoding": "UTF8",
        },
    )
    engine = create_engine(
        URL.create("postgresql+pg8000", host=host, port=port, database=database),
        creator=creator,
        poolclass=QueuePool,
        pool_size=CONNECTIONS,
        max_overflow=0,
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
        timeout=timeout,
        time_source=time_source,
        connections=CONNECTIONS,
        single_writer=False,
        failure=failure,
        setup_lock=SETUP_LOCK,
        table_lock=TABLE_LOCK,
        is_contention=lambda error: False,
        be_patient=lambda cursor, patient: None,
        in_transaction=lambda connection: bool(connection._in_transaction),
        refusal=partial(refusal, name),
        commit_failure=partial(commit_failure, name),
    )


def failure(error: Exception) -> Failure:
    """What an error means for its connection."""
    code = _code(error)
    if code is None:
        late = isinstance(error, TimeoutError) or isinstance(error.__cause__, TimeoutError)
        return Failure.BROKEN if late else Failure.LOST
    if code in _CONFLICTS:
        return Failure.CONFLICT
    # The class has a statement's time-out too, which ends no connection.
    return Failure.LOST if code.startswith(_ENDED) or code == _READ_ONLY else Failure.REFUSED


def refusal(name: str, error: Exception) -> StoreError:
    """What an error means where nothing was written."""
    text, code = _told(error), _code(error)
    if code is None:
        return _not_reached(name, error)
    if code in _LACKS:
        return SchemaMissing(f"{name}: {text}: run `flask stacksaga init-schema`")
    kind = StoreUnavailable if code.startswith(_PASSING) else StoreRefused
    return kind(f"{name}: {text}: {_REMEDIES.get(code, 'nothing was written')}")


def commit_failure(name: str, error: Exception) -> StoreError:
    """What the error of a COMMIT means: it may have been written, unless the server says that it was not."""
    code = _code(error)
    if code is not None and code.startswith(_NOT_WRITTEN) and code != _OUTCOME_UNKNOWN:
        return refusal(name, error)
    return OutcomeUnknown(f"{name}: the commit was not acknowledged ({_told(error)}): it may have been written")


def _not_reached(name: str, error: Exception) -> StoreError:
    text = _told(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return StoreRefused(
            f"{name}: no TLS connection ({text}): name the authority of the server's certificate in "
            f"STACKSAGA_STORE_CA_FILE, and the host in STACKSAGA_STORE as the certificate does"
        )
    if "refuses SSL" in text:
        return StoreRefused(
            f"{name}: the server offers no TLS: switch it on there, or set STACKSAGA_STORE_TLS to False"
        )
    return StoreUnavailable(f"{name}: {text}: see that host and port are right and the server is up")


def _open(connect: Callable[..., Any], *, limit: float, **options: Any) -> Any:
    socket = connected_socket(options["host"], options["port"], limit)
    try:
        return connect(sock=socket, limit=limit, **options)
    except BaseException:
        socket.close()
        raise


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
