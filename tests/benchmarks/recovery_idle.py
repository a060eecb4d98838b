"""What a tick asks of the store that finds nothing: at first, and once many windows were swept and pruned."""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final
from uuid import uuid4

from msgspec import Struct

from stacksaga_flask import Engine, ManualTime, SystemTime
from stacksaga_flask.directory.windows import DAY, Window, WindowGrid, start_of_date
from stacksaga_flask.engine.reinvoke import Reinvocation
from stacksaga_flask.identity import token
from stacksaga_flask.store.contract import Path, Register, Store
from stacksagad.recovery.compactor import Compactor
from stacksagad.recovery.sweeper import Sweeper
from stacksagad.recovery.workers import ThreadWorkers
from tests.benchmarks.recovery_place import Place
from tests.benchmarks.recovery_recording import Watched, watched
from tests.support.recovery_time import StoreElsewhere

AT_ONCE: Final = 100
INSTANCE: Final = "web-1"


class Tick(Struct):
    """One tick."""

    queries: int
    seconds: float


class Idle(Struct):
    """Ticks that found nothing."""

    windows: int
    """How many windows had something before the second pair, and were swept and pruned."""
    ticks: tuple[Tick, Tick]
    """Ordinary ones, one window after the last."""
    walks: tuple[Tick, Tick]
    """Those that walk tiers 1 and 2 whole."""


def idle(place: Place, windows: int) -> Idle:
    """Measure them.

    Args:
        place: An empty one.
        windows: How many windows pass in between, each with a pointer.
    """
    settings, days = place.settings(run_directory=""), windows * 60 * 1_000_000 // DAY + 2
    # At noon, as a tick over midnight reads a second date, and all of it in the past.
    noon = SystemTime().wall() // DAY * DAY - days * DAY - DAY // 2
    clock = ManualTime(noon)
    with watched(place) as seen:
        store: Any = StoreElsewhere(seen.store, clock)
        engine = Engine(settings, open_store=lambda: store, time_source=clock, in_background=False)
        try:
            return _idle(engine, seen, clock, windows)
        finally:
            engine.close()


def _idle(engine: Engine, seen: Watched, clock: ManualTime, windows: int) -> Idle:
    node = engine.node()
    # Nothing is run, so that what is left is the directory's.
    done = Reinvocation(True, "completed")
    workers = ThreadWorkers(engine.settings.concurrency)
    sweeper = Sweeper(node, lambda transaction_id, found: done, workers=workers)
    compactor = Compactor(node)

    def tick(*, walk: bool) -> Tick:
        clock.advance(engine.settings.window_interval)
        seen.forget()
        began = time.perf_counter()
        summary = sweeper.tick(walk=walk)
        took = time.perf_counter() - began
        if summary.error is not None:
            raise summary.error
        if summary.visited:
            raise RuntimeError(f"a tick that was to be idle visited {summary.visited} windows")
        return Tick(seen.queries, took)

    walk_first, tick_first = tick(walk=True), tick(walk=False)
    first = clock.wall()
    _fill(seen.store, node.grid, [node.grid.ahead(first, ahead) for ahead in range(1, windows + 1)])
    passed = first + windows * engine.settings.window_interval
    # The next noon, so that the windows are old enough to be pruned.
    clock.advance((passed // DAY + 1) * DAY + DAY // 2 - first)
    swept = sweeper.sweep_everything()
    if swept.dropped != windows:
        raise RuntimeError(f"{swept.dropped} buckets were dropped of {windows}: {swept}")
    sweeper.sweep_everything()
    compactor.tick(walk=True)
    walk_then, tick_then = tick(walk=True), tick(walk=False)
    sweeper.stop()
    return Idle(windows=windows, ticks=(tick_first, tick_then), walks=(walk_first, walk_then))


def _fill(store: Store, grid: WindowGrid, windows: Iterable[Window]) -> None:
    """A pointer in each window, as a process leaves them that runs all the time."""
    rest = iter(windows)
    while some := list(islice(rest, AT_ONCE)):
        store.apply(*(_pointer_in(window, grid) for window in some))


def _pointer_in(window: Window, grid: WindowGrid) -> Register:
    return Register(
        path=Path(*window, INSTANCE, 0),
        transaction_id=uuid4(),
        instance_token=token(INSTANCE),
        tiers=frozenset(range(1, 6)),
        timestamp=grid.insert_timestamp(window),
        day_timestamp=start_of_date(window.date),
    )
