"""``python -m tests.benchmarks.raw_contender RECORDING FILE``: plain sqlite3 doing the recorded statements.

One caller has one connection, and so has each of several, as in a plain application: SQLite's busy time-out makes
them wait for one another.
"""

from __future__ import annotations

import sqlite3
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import msgspec

from tests.benchmarks.contender import peak_memory, serve
from tests.benchmarks.replay import Recording, replayer

BUSY_TIMEOUT = 60.0
"""Seconds. SQLite is not fair: of many writers one may wait for long."""


def raw_connection(file: str) -> sqlite3.Connection:
    """A connection as the store's are: WAL, synchronous=FULL."""
    connection = sqlite3.connect(file, timeout=BUSY_TIMEOUT, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


class RawContender:
    """Callers that have a connection each, all on one file."""

    def __init__(self, recording: Recording, file: str) -> None:
        self._recording = recording
        self._file = file
        self._done: list[int] = [0]

    @property
    def commits(self) -> int:
        """How many commits it has made; a saga has them all or was not finished."""
        return sum(self._done) * self._recording.commits

    @contextmanager
    def callers(self, number: int) -> Iterator[Sequence[Callable[[], None]]]:
        """So many callers."""
        done_before = sum(self._done)
        with ExitStack() as connections:
            self._done = [0] * number + [done_before]
            yield [
                self._caller(connections.enter_context(closing(raw_connection(self._file))), n) for n in range(number)
            ]

    def _caller(self, connection: sqlite3.Connection, number: int) -> Callable[[], None]:
        replay = replayer(self._recording, connection.cursor().execute)
        done = self._done

        def run() -> None:
            replay(uuid.uuid4())
            done[number] += 1

        return run


def main() -> None:
    """Take turns."""
    recording, file = sys.argv[1:]
    contender = RawContender(msgspec.msgpack.decode(Path(recording).read_bytes(), type=Recording), file)
    serve(contender, peak_memory())


if __name__ == "__main__":
    main()
