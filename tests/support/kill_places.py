"""Where a child's transaction is kept, and how what it left behind is read: with plain SQL or plain CQL only."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Protocol
from urllib.parse import urlsplit
from uuid import UUID

import pg8000.dbapi
from cassandra import ConsistencyLevel
from cassandra.cluster import Session
from cassandra.query import SimpleStatement

from tests.services.cassandra.node import Node
from tests.services.postgresql import PASSWORD, USERNAME, Server
from tests.support.kill_evidence import TABLES, Record
from tests.support.plain_cql import plain_session

GRID = (3, 60, 1_000_000)
"""Schema version, window interval in seconds and δ in microseconds."""


class KillPlace(Protocol):
    """A store of one kind.

    Attributes:
        name: Of its kind.
        transactional: Whether it writes the operations of one call together.
        embedded: Whether it records the grid by itself.
        settings: What a child's settings need besides the URL.
    """

    name: str
    transactional: bool
    embedded: bool
    settings: ClassVar[dict[str, object]]

    def url(self, folder: Path) -> str:
        """The URL of a child's store."""

    def service(self, folder: Path) -> str:
        """The name of a child's service."""

    def prepare(self, folder: Path) -> None:
        """Make ready for a child."""

    def tables(self, folder: Path) -> dict[str, list[Record]]:
        """Every record of each table that belongs to a child."""

    def row(self, folder: Path) -> Record:
        """The row of a child's only transaction, read while the child lives and by itself."""

    def let_claims_expire(self, folder: Path, *, never: bool) -> None:
        """Let every claim of a child expire never, or now."""


class SqlitePlace:
    """A file for each child."""

    name = "sqlite"
    transactional = True
    embedded = True
    settings: ClassVar[dict[str, object]] = {}

    def __init__(self, template: Path) -> None:
        self._template = template

    def url(self, folder: Path) -> str:
        return f"sqlite:///{folder}/shop.db"

    def service(self, folder: Path) -> str:
        return "shop"

    def prepare(self, folder: Path) -> None:
        shutil.copy(self._template, folder / "shop.db")

    def tables(self, folder: Path) -> dict[str, list[Record]]:
        # From a copy: whoever opens the database after a death also recovers its log.
        with tempfile.TemporaryDirectory() as copies:
            for name in ("shop.db", "shop.db-wal"):
                if (folder / name).exists():
                    shutil.copy(folder / name, copies)
            return dict(zip(TABLES, rows_of(Path(copies) / "shop.db", *TABLES), strict=True))

    def row(self, folder: Path) -> Record:
        # Not from a copy: a process that closes a file gives up the locks of its other connections to it.
        ((row,),) = rows_of(folder / "shop.db", "es_transaction")
        return row

    def let_claims_expire(self, folder: Path, *, never: bool) -> None:
        with closing(sqlite3.connect(folder / "shop.db")) as connection, connection:
            when = 2**62 if never else 1
            connection.execute("UPDATE es_execution_markers SET expires_at = ? WHERE step_id = '#claim'", [when])


class PostgresqlPlace:
    """A database for all, a service for each child."""

    name = "postgresql"
    transactional = True
    embedded = False
    settings: ClassVar[dict[str, object]] = {"store_username": USERNAME, "store_password": PASSWORD}

    def __init__(self, url: str, connection: Any) -> None:
        self._url = url
        self._connection = connection

    def url(self, folder: Path) -> str:
        return self._url

    def service(self, folder: Path) -> str:
        return service_of(folder)

    def prepare(self, folder: Path) -> None:
        self._run("INSERT INTO es_settings VALUES ('default', 'default', %s, %s, %s, %s)", self.service(folder), *GRID)

    def tables(self, folder: Path) -> dict[str, list[Record]]:
        return {table: self._records(table, folder) for table in TABLES}

    def row(self, folder: Path) -> Record:
        (row,) = self._records("es_transaction", folder)
        return row

    def let_claims_expire(self, folder: Path, *, never: bool) -> None:
        update = "UPDATE es_execution_markers SET expires_at = %s WHERE step_id = '#claim' AND service_name = %s"
        self._run(update, 2**62 if never else 1, self.service(folder))

    def _records(self, table: str, folder: Path) -> list[Record]:
        return self._run(f"SELECT * FROM {table} WHERE service_name = %s", self.service(folder))

    def _run(self, statement: str, *values: Any) -> list[Record]:
        cursor = self._connection.cursor()
        cursor.execute(statement, values)
        if cursor.description is None:
            return []
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, record, strict=True)) for record in cursor.fetchall()]


class CassandraPlace:
    """A keyspace for all, a service for each child."""

    name = "cassandra"
    transactional = False
    embedded = False
    # Nobody moves its clock, so claims must outlast the test.
    settings: ClassVar[dict[str, object]] = {"claim_ttl": 3600}

    def __init__(self, node: Node, keyspace: str, session: Session) -> None:
        self._url = node.url(keyspace)
        self._keyspace = keyspace
        self._session = session

    def url(self, folder: Path) -> str:
        return self._url

    def service(self, folder: Path) -> str:
        return service_of(folder)

    def prepare(self, folder: Path) -> None:
        self._run(
            f"INSERT INTO {self._keyspace}.es_settings (region, cluster, service_name, schema_version, window_interval,"
            f" clock_skew_margin) VALUES ('default', 'default', %s, %s, %s, %s) IF NOT EXISTS",
            self.service(folder),
            *GRID,
        )

    def tables(self, folder: Path) -> dict[str, list[Record]]:
        return {table: self._records(table, folder) for table in TABLES}

    def row(self, folder: Path) -> Record:
        (row,) = self._records("es_transaction", folder)
        return row

    def let_claims_expire(self, folder: Path, *, never: bool) -> None:
        # Never is soon enough by their time to live.
        for marker in [] if never else self.tables(folder)["es_execution_markers"]:
            if marker["step_id"] == "#claim":
                key = ("region", "cluster", "service_name", "transaction_id", "step_id")
                where = " AND ".join(f"{name} = %s" for name in key)
                values = [UUID(marker[name]) if name == "transaction_id" else marker[name] for name in key]
                self._run(f"DELETE FROM {self._keyspace}.es_execution_markers WHERE {where} IF EXISTS", *values)

    def _records(self, table: str, folder: Path) -> list[Record]:
        # The keyspace is small, and only a test walks through it whole.
        text = f"SELECT * FROM {self._keyspace}.{table} WHERE service_name = %s ALLOW FILTERING"
        found = self._run(text, self.service(folder))
        return [{name: _plain(value) for name, value in record.items()} for record in found]

    def _run(self, text: str, *values: Any) -> list[Record]:
        statement = SimpleStatement(
            text,
            consistency_level=ConsistencyLevel.LOCAL_QUORUM,
            serial_consistency_level=ConsistencyLevel.LOCAL_SERIAL,
        )
        return list(self._session.execute(statement, values))


def _plain(value: Any) -> Any:
    """A value as the SQL tables have it."""
    if isinstance(value, UUID):
        return str(value)
    return json.dumps(list(value)) if isinstance(value, (list, tuple)) else value


def service_of(folder: Path) -> str:
    """A name that no other child has, of this run or of another one."""
    return f"{folder.parent.name}-{folder.name}"


@contextmanager
def postgresql_place(server: Server, database: str) -> Iterator[PostgresqlPlace]:
    """A database of a server."""
    with postgresql_at(f"postgresql://127.0.0.1:{server.port}/{database}") as place:
        yield place


@contextmanager
def postgresql_at(url: str) -> Iterator[PostgresqlPlace]:
    """The database that a URL names."""
    parts = urlsplit(url)
    login = {"user": USERNAME, "password": PASSWORD, "ssl_context": False}
    database = parts.path[1:]
    with closing(pg8000.dbapi.connect(host=parts.hostname, port=parts.port, database=database, **login)) as connection:
        connection.autocommit = True
        yield PostgresqlPlace(url, connection)


@contextmanager
def cassandra_place(node: Node, keyspace: str) -> Iterator[CassandraPlace]:
    """A keyspace of a node."""
    with plain_session(node) as session:
        yield CassandraPlace(node, keyspace, session)


@contextmanager
def place_at(url: str, folder: Path) -> Iterator[KillPlace]:
    """The place of a child's URL, for the child."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        yield SqlitePlace(folder / "shop.db")
    elif parts.scheme == "postgresql":
        with postgresql_at(url) as database:
            yield database
    else:
        node = Node(Path(), str(parts.hostname).rpartition(".")[0], port=parts.port or 9042)
        with cassandra_place(node, parts.path[1:]) as keyspace:
            yield keyspace


def row_at(url: str, folder: Path) -> Record:
    """The row of a child's only transaction, read past the library by the child."""
    with place_at(url, folder) as place:
        return place.row(folder)


def rows_of(database: Path, *tables: str) -> list[list[Record]]:
    """Every record of each of the tables of a SQLite file."""
    with closing(sqlite3.connect(database)) as connection:
        connection.row_factory = sqlite3.Row
        return [[dict(record) for record in connection.execute(f"SELECT * FROM {table}")] for table in tables]
