"""``python -m tests.benchmarks.recovery_raw RECORDING MOST URL SERVICE``: the plain driver re-invokes.

It does what was recorded of one transaction for others. Each line of standard input is such a turn, with its number of
callers, at most MOST.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TypeAlias
from uuid import UUID

import msgspec

from tests.benchmarks.raw_contender import raw_connection
from tests.benchmarks.recovery_place import Place
from tests.benchmarks.replay import Recording, replayer

Caller: TypeAlias = Callable[[UUID], None]


class Turn(msgspec.Struct):
    """What it is told to do."""

    callers: int
    transaction_ids: list[UUID]


class Replayed(msgspec.Struct):
    """What came of a turn."""

    seconds: float


def main() -> None:
    """Take turns."""
    recording, most, url, service = sys.argv[1:]
    place, number = Place(url, service), int(most)
    open_callers = _sqlite if url.startswith("sqlite:") else _cassandra
    with open_callers(Path(recording).read_bytes(), place, number) as callers:
        for line in sys.stdin:
            turn = msgspec.json.decode(line, type=Turn)
            seconds = _all_of(turn.transaction_ids, callers[: turn.callers])
            sys.stdout.write(msgspec.json.encode(Replayed(seconds)).decode() + "\n")
            sys.stdout.flush()


@contextmanager
def _sqlite(recording: bytes, place: Place, number: int) -> Iterator[Sequence[Caller]]:
    """Callers with a connection each: SQLite's busy time-out makes them wait for one another."""
    statements = msgspec.msgpack.decode(recording, type=Recording)
    file = place.url.removeprefix("sqlite:///")
    with ExitStack() as connections:
        opened = [connections.enter_context(closing(raw_connection(file))) for _ in range(number)]
        yield [replayer(statements, connection.cursor().execute) for connection in opened]


@contextmanager
def _cassandra(recording: bytes, place: Place, number: int) -> Iterator[Sequence[Caller]]:
    """Callers that share a session."""
    from stacksaga_flask.store.cassandra.place import read_place
    from tests.benchmarks import cassandra_replay
    from tests.benchmarks.cassandra_raw_contender import raw_cluster

    cluster = raw_cluster(read_place(place.settings()))
    try:
        requests = msgspec.msgpack.decode(recording, type=cassandra_replay.Recording)
        yield [cassandra_replay.replayer(requests, cluster.connect())] * number
    finally:
        cluster.shutdown()


def _all_of(ids: Sequence[UUID], callers: Sequence[Caller]) -> float:
    rest = iter(ids)

    def call(caller: Caller) -> None:
        for transaction_id in rest:
            caller(transaction_id)

    threads = [threading.Thread(target=call, args=(caller,)) for caller in callers]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
