"""A connection of the driver for PostgreSQL: on a socket of our own, and with statements that are prepared once.

The driver has a server parse each statement again and waits for it three times. A statement that was prepared on its
connection takes one trip, so a step takes five instead of eleven.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import pg8000.dbapi
from pg8000.converters import make_params

IDLE: Final = 60
"""Seconds until the operating system asks a silent server whether it is still there."""


class Connection(pg8000.dbapi.Connection):  # type: ignore[misc]  # the driver has no types
    """A connection that remembers what it has prepared, and closes without a word if the server has gone."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._prepared: dict[str, tuple[Any, ...]] = {}
        super().__init__(*args, **options)
        # The store begins and ends transactions itself.
        self.autocommit = True

    def cursor(self) -> Cursor:
        """A cursor that runs prepared statements."""
        return Cursor(self)

    def run_prepared(self, statement: str, values: Sequence[Any]) -> Any:
        """Run a statement with values; the driver's context has the rows and their number."""
        prepared = self._prepared.get(statement)
        if prepared is None:
            numbered, _ = pg8000.dbapi.convert_paramstyle("format", statement, values)
            prepared = self._prepared[statement] = (*self.prepare_statement(numbered, ()), numbered)
        name, columns, readers, numbered = prepared
        return self.execute_named(name, make_params(self.py_types, values), columns, readers, numbered)

    def close(self) -> None:
        """Say good-bye, as far as the server listens."""
        with suppress(pg8000.dbapi.Error, OSError):
            super().close()


class Cursor(pg8000.dbapi.Cursor):  # type: ignore[misc]  # the driver has no types
    """A cursor of such a connection."""

    def execute(self, operation: str, args: Sequence[Any] = (), stream: Any = None) -> None:
        """Run one statement: one with values is prepared."""
        if not args:
            super().execute(operation, args, stream)
            return
        self._context = self._c.run_prepared(operation, args)
        rows = self._context.rows
        self._row_iter = None if rows is None else iter(rows)


def connected_socket(host: str, port: int, timeout: float) -> socket.socket:
    """A connected socket.

    Args:
        host: The server's name or address.
        port: Its port.
        timeout: Seconds to wait for the connection, and later for each answer.

    Raises:
        OSError: The server cannot be reached.
    """
    try:
        connected = socket.create_connection((host, port), timeout)
    except UnicodeError as error:
        raise OSError(f"{host!r} is no host's name ({error})") from error
    # A statement larger than the buffer goes out in parts, none of which is to wait for the last one's receipt.
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE)
    return connected
