"""``python -m tests.benchmarks.recovery_sweep URL SERVICE FOLDER``: one whole sweep of a real node.

It tells what came of it, and appends the calls of steps to the file `calls` in the folder.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from uuid import UUID

import msgspec

from stacksaga_flask import Engine
from stacksagad.recovery.observed import Ended
from stacksagad.recovery.sweeper import Sweeper
from stacksagad.recovery.workers import ThreadWorkers
from tests.benchmarks.contender import peak_memory
from tests.benchmarks.recovery_place import Place, recovered_saga


class Swept(msgspec.Struct):
    """What came of a sweep."""

    seconds: float
    outcomes: dict[str, int]
    failures: dict[str, int]
    dropped: int
    start_memory: int
    """In bytes, before anything was opened."""
    peak_memory: int


def main() -> None:
    """Sweep."""
    url, service, folder = sys.argv[1:]
    start = peak_memory()
    calls: list[tuple[str, UUID]] = []
    # Of fifty thousand sagas the calls would be most of the memory.
    file = Path(folder) / "calls"
    saga = recovered_saga(lambda step, transaction_id: calls.append((step, transaction_id)) if file.exists() else None)
    settings = Place(url, service).settings(run_directory=f"{folder}/run")
    engine = Engine(settings, sagas=[saga])
    try:
        swept = _sweep(engine, start)
    finally:
        engine.close()
    if calls:
        with file.open("a") as lines:
            lines.writelines(f"{step} {transaction_id}\n" for step, transaction_id in calls)
    sys.stdout.write(msgspec.json.encode(swept).decode() + "\n")


def _sweep(engine: Engine, start: int) -> Swept:
    workers = ThreadWorkers(engine.settings.concurrency)
    sweeper = Sweeper(engine.node(), engine.reinvoke, workers=workers)
    began = time.perf_counter()
    summary = sweeper.sweep_everything()
    seconds = time.perf_counter() - began
    sweeper.stop()
    if summary.error is not None:
        raise summary.error
    if summary.ended is not Ended.THROUGH:
        raise RuntimeError(f"the sweep ended early: {summary.ended.value}")
    return Swept(
        seconds=seconds,
        outcomes=dict(summary.outcomes),
        failures=dict(summary.failures),
        dropped=summary.dropped,
        start_memory=start,
        peak_memory=peak_memory(),
    )


if __name__ == "__main__":
    main()
