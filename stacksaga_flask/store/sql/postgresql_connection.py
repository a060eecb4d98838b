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
from pg8000.core import IN_TRANSACTION

from stacksaga_flask.store.sql.deadline import seconds_left

IDLE: Final = 60
"""Seconds until the operating system asks a silent server whether it is still there."""
SHARE: Final = 0.9
"""The server waits for a lock for this part of what is left to a call, and so is the first to give up.

It is told again once less than this part is left of what it knows.
"""


class Connection(pg8000.dbapi.Connection):  # type: ignore[misc]  # the driver has no types
    """A connection that remembers what it has prepared, and closes without a word if the server has gone.

    Each statement ends with the call that it is part of, on this side and, within a transaction, on the server.

    Args:
        limit: Seconds that a call may take, as the server was told, and a statement outside of calls.
    """

    def __init__(self, *args: Any, limit: float, **options: Any) -> None:
        self._prepared: dict[str, tuple[Any, ...]] = {}
        self._limit = limit
        self._told = limit
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

    def handle_AUTHENTICATION_REQUEST(  # noqa: N802 - the driver's name
        self, data: bytes, context: Any
    ) -> None:
        """Go on with the log-in, each answer to which may take what is left."""
        self._hurry()
        super().handle_AUTHENTICATION_REQUEST(data, context)

    def end_with_the_call(self) -> None:
        """Let the next statement take no longer than what is left to the call.

        Raises:
            StoreUnavailable: Nothing is.
        """
        left = self._hurry()
        if self._transaction_status != IN_TRANSACTION:
            self._told = self._limit
        elif left < self._told * SHARE:
            # A server that went on waiting after this side had given up would keep its locks meanwhile.
            self.execute_simple("; ".join(f"SET LOCAL {name} = {value}" for name, value in limits(left).items()))
            self._told = left

    def _hurry(self) -> float:
        left = seconds_left(self._limit)
        if self._usock is not None:
            self._usock.settimeout(left)
        return left

    def close(self) -> None:
        """Say good-bye, as far as the server listens."""
        with suppress(pg8000.dbapi.Error, OSError):
            super().close()


class Cursor(pg8000.dbapi.Cursor):  # type: ignore[misc]  # the driver has no types
    """A cursor of such a connection."""

    def execute(self, operation: str, args: Sequence[Any] = (), stream: Any = None) -> None:
        """Run one statement: one with values is prepared."""
        self._c.end_with_the_call()
        if not args:
            super().execute(operation, args, stream)
            return
        self._context = self._c.run_prepared(operation, args)
        rows = self._context.rows
        self._row_iter = None if rows is None else iter(rows)


def limits(seconds: float) -> dict[str, str]:
    """The server's settings for a call to which so many seconds are left.

    It gives up before this side does, and first what waits for a lock, so that the error tells what was waited for.
    """
    milliseconds = seconds * 1000
    statement = (1 + SHARE) / 2 * milliseconds
    # None would be no limit.
    return {
        "lock_timeout": str(max(1, round(SHARE * milliseconds))),
        "statement_timeout": str(max(1, round(statement))),
    }


def connected_socket(host: str, port: int, timeout: float) -> socket.socket:
    """A connected socket.

    Args:
        host: The server's name or address.
        port: Its port.
        timeout: Seconds to wait for the connection outside of calls.

    Raises:
        OSError: The server cannot be reached.
        StoreUnavailable: Nothing is left to the call.
    """
    connected = _connected(host, port, timeout)
    connected.settimeout(seconds_left(timeout))
    # A statement larger than the buffer goes out in parts, none of which is to wait for the last one's receipt.
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, IDLE)
    return connected


def _connected(host: str, port: int, timeout: float) -> socket.socket:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise OSError(f"{host!r} is no host's name ({error})") from error
    failure = OSError(f"{host!r} has no address")
    for *_, address in found:
        tried = _tried(str(address[0]), port, timeout)
        if isinstance(tried, socket.socket):
            return tried
        failure = tried
    raise failure


def _tried(address: str, port: int, timeout: float) -> socket.socket | OSError:
    try:
        return socket.create_connection((address, port), seconds_left(timeout))
    except OSError as error:
        return error
