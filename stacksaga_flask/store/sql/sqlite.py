"""SQLite: how a file is opened, and what its errors mean."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, QueuePool, create_engine
from sqlalchemy.dialects.sqlite import insert

from stacksaga_flask.clock import SECOND, TimeSource
from stacksaga_flask.errors import (
    OutcomeUnknown,
    SchemaMissing,
    StoreError,
    StoreRefused,
    StoreUnavailable,
)
from stacksaga_flask.store.sql.backend import Backend, Cursor, Failure

# Microseconds, in whole milliseconds since that is what SQLite's clock counts. Older SQLites know no
# unixepoch('subsec'); a Julian day is too coarse a float for anything finer.
NOW: Final = "CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000"
RETRY_EVERY: Final = 10_000
KEPT: Final = 4
READERS: Final = 31
"""How many calls of a process read at once; each has a connection, of which so many are kept."""

Connect = Callable[..., sqlite3.Connection]


def sqlite_backend(
    path: Path, *, timeout: float, time_source: TimeSource, connect: Connect = sqlite3.connect
) -> Backend:
    """A backend for one file; nothing is opened yet. `timeout` is how many seconds to wait for another writer."""
    creator = partial(_open, connect, path, timeout, time_source)
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        creator=creator,
        poolclass=QueuePool,
        pool_size=KEPT,
        max_overflow=READERS + 1 - KEPT,
        pool_reset_on_return=None,
    )
    return Backend(
        name=str(path),
        engine=engine,
        dialect="sqlite",
        insert=insert,
        now=NOW,
        arrival="rowid",
        begin="BEGIN IMMEDIATE",
        tables="SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
        driver_errors=(sqlite3.Error,),
        timeout=timeout,
        time_source=time_source,
        connections=READERS,
        single_writer=True,
        failure=lambda error: Failure.REFUSED,
        setup_lock=None,
        table_lock=None,
        is_contention=_is_locked,
        be_patient=partial(_be_patient, timeout),
        in_transaction=_in_transaction,
        refusal=partial(refusal, path, timeout),
        commit_failure=partial(commit_failure, path, timeout),
    )


def refusal(path: Path, timeout: float, error: Exception) -> StoreError:
    """What an error means where nothing was written."""
    text = str(error)
    if _is_locked(error):
        return StoreUnavailable(
            f"{path}: another process has been writing for longer than {timeout:g} s ({text}): find out which one "
            f"holds its transaction open (a shell, a backup), or put the file on a quicker disk"
        )
    if "disk is full" in text:
        # It passes, like a server that is away: what could not be recorded is kept until there is room.
        return StoreUnavailable(f"{path}: {text}: free space on its disk, or raise the limit of the file's size")
    if "no such table" in text or "no such column" in text or "has no column named" in text:
        return SchemaMissing(f"{path}: {text}: run `flask stacksaga init-schema`")
    if "not a database" in text or "malformed" in text:
        return StoreRefused(
            f"{path}: {text}: STACKSAGA_STORE must name a SQLite file; restore this one or name another"
        )
    if "readonly" in text or "unable to open" in text:
        return _not_accessible(path, text)
    if isinstance(error, sqlite3.OperationalError):
        return StoreUnavailable(f"{path}: {text}: nothing was written")
    return StoreRefused(f"{path}: {text}: nothing was written")


def commit_failure(path: Path, timeout: float, error: Exception) -> StoreError:
    """What the error of a COMMIT means.

    A full disk and a lock are told before the log has its commit record; after anything else it may have it.
    """
    if _is_locked(error) or "disk is full" in str(error) or "readonly" in str(error):
        return refusal(path, timeout, error)
    return OutcomeUnknown(f"{path}: the commit was not acknowledged ({error}): it may or may not have been written")


def _open(connect: Connect, path: Path, timeout: float, time_source: TimeSource) -> sqlite3.Connection:
    connection = connect(str(path), timeout=timeout, isolation_level=None, check_same_thread=False)
    try:
        _write_ahead_log(connection, timeout, time_source)
        # Nothing acknowledged is lost, not even when the power fails.
        connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return connection


def _write_ahead_log(connection: sqlite3.Connection, timeout: float, time_source: TimeSource) -> None:
    # SQLite does not wait by itself while two connections switch a new file to WAL at once.
    deadline = time_source.boot() + round(timeout * SECOND)
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if not _is_locked(error) or time_source.boot() >= deadline:
                raise
        time_source.sleep(RETRY_EVERY)


def _be_patient(timeout: float, cursor: Cursor, patient: bool) -> None:
    cursor.execute(f"PRAGMA busy_timeout = {round(timeout * 1000) if patient else 0}")


def _in_transaction(connection: Any) -> bool:
    result: bool = connection.in_transaction
    return result


def _is_locked(error: Exception) -> bool:
    # Python has the error's code only since 3.11; SQLite's texts have not changed for decades.
    return "is locked" in str(getattr(error, "orig", None) or error)


def _not_accessible(path: Path, text: str) -> StoreError:
    folder = path.parent
    try:
        os.stat(folder)
    except FileNotFoundError:
        return StoreRefused(f"{path}: {text}: the directory {folder} does not exist: create it")
    except OSError as error:
        return StoreRefused(f"{path}: {text}: the directory {folder} cannot be entered ({error.strerror})")
    if os.path.isdir(path):
        return StoreRefused(f"{path}: {text}: it is a directory: let STACKSAGA_STORE name a file in it")
    for what, where in (("file", path), ("directory", folder)):
        if os.path.exists(where) and not os.access(where, os.R_OK | os.W_OK, effective_ids=True):
            return StoreRefused(
                f"{path}: {text}: user {os.geteuid()} may not read and write the {what} {where}: give that permission "
                f"on the file and on its directory, since SQLite keeps its log beside the file"
            )
    if "readonly" in text:
        return StoreRefused(f"{path}: {text}: the file or its log is read-only: mount its disk for writing")
    return StoreUnavailable(f"{path}: {text}: look at the limit of open files and at the state of the disk")
