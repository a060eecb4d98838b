"""Transactions as a process leaves them when it is killed: real ones, and any number of others like one of them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple
from uuid import UUID, uuid4

from msgspec.structs import replace

from stacksaga_flask.clock import SECOND
from stacksaga_flask.directory.windows import WindowGrid, start_of_date
from stacksaga_flask.identity import token
from stacksaga_flask.store.contract import (
    Expected,
    Marker,
    Operation,
    Register,
    Store,
    StoredTransaction,
    Tryout,
    WriteTransaction,
)
from stacksaga_flask.store.contract import (
    Path as Pointer,
)
from tests.benchmarks.empty_saga import Order
from tests.benchmarks.process import ROOT
from tests.benchmarks.recovery_place import Place, engine_then, recovered_saga, store_at

AT_ONCE: Final = 100
"""Transactions that are written together."""


class Sample(NamedTuple):
    """One transaction, whole, and where its watchdog lies."""

    stored: StoredTransaction
    path: Pointer
    tryouts: tuple[Tryout, ...]
    markers: tuple[Marker, ...]
    timestamp: int
    """Of the directory's rows (R13)."""


def killed_sagas(place: Place, count: int, *, then: int, calls: Path) -> list[UUID]:
    """Run sagas in a process that is killed when all are in their second step, and say which they were.

    Args:
        place: Where.
        count: How many.
        then: The time that the process believes in.
        calls: A file that is told which steps were called.
    """
    arguments = (place.url, place.service, str(count), str(then), str(calls))
    command = [sys.executable, "-m", "tests.benchmarks.recovery_killed", *arguments]
    ended = subprocess.run(command, cwd=ROOT, check=False, timeout=300).returncode
    if ended != -signal.SIGKILL:
        raise RuntimeError(f"the process of the sagas ended with {ended} before it was killed; its error is above")
    return [UUID(line.split()[1]) for line in calls.read_text().splitlines() if line.startswith("charge ")]


def killed_sample(place: Place, transaction_id: UUID) -> Sample:
    """One of those."""
    with store_at(place) as store:
        return _sample(store, place, transaction_id)


def finished_sample(place: Place, *, then: int) -> Sample:
    """A transaction that has ended, whose pointer is still to be deleted."""
    saga = recovered_saga(lambda step, transaction_id: None)
    with engine_then(place, saga, then) as engine:
        transaction = engine.run(saga, Order())
        return _sample(engine.node().store, place, transaction.transaction_id)


def _sample(store: Store, place: Place, transaction_id: UUID) -> Sample:
    stored = store.read(transaction_id)
    if stored is None or stored.row.watchdog is None:
        raise RuntimeError(f"transaction {transaction_id} has no row, or no watchdog")
    path, settings = stored.row.watchdog, place.settings(run_directory="")
    grid = WindowGrid(interval=settings.window_interval // SECOND, skew_margin=settings.clock_skew_margin)
    tryouts, markers = tuple(store.tryouts(transaction_id)), store.markers(transaction_id)
    return Sample(stored, path, tryouts, markers, grid.insert_timestamp(path))


def fill(place: Place, sample: Sample, count: int) -> list[UUID]:
    """Write transactions like the sample, with their pointers in one bucket, and say which they are."""
    ids = [uuid4() for _ in range(count)]
    rest = iter(ids)
    with store_at(place) as store:
        tiers = frozenset(range(1, 6))
        while some := list(islice(rest, AT_ONCE)):
            store.apply(*_operations(store, sample, some, tiers))
            tiers = frozenset({5})
    return ids


def _operations(store: Store, sample: Sample, ids: Sequence[UUID], tiers: frozenset[int]) -> list[Operation]:
    operations: list[Operation] = []
    for transaction_id in ids:
        operations.append(
            Register(
                path=sample.path,
                transaction_id=transaction_id,
                instance_token=token(sample.path.instance_id),
                tiers=tiers,
                timestamp=sample.timestamp,
                day_timestamp=start_of_date(sample.path.date),
            )
        )
        operations.append(
            WriteTransaction(
                row=replace(sample.stored.row, transaction_id=transaction_id),
                timestamp=sample.stored.written_at,
                expected=Expected.ABSENT,
                tryouts=sample.tryouts,
                markers=sample.markers,
            )
        )
        tiers = frozenset({5})
    return operations
