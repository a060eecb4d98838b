"""What a step costs: sagas of three empty steps a second, against raw sqlite3 doing the same statements."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import TypeAlias

import click
import msgspec

from tests.benchmarks.contender import Measured
from tests.benchmarks.process import ContenderProcess, contender_process
from tests.benchmarks.recording import record
from tests.benchmarks.registry import Report, benchmark
from tests.benchmarks.step_cost_report import CALLERS, RAW, WORKERS, report

FSYNCS_A_ROUND = 20
PAGE = 4096

Processes: TypeAlias = Mapping[str, ContenderProcess]


@benchmark("step-cost")
@click.option(
    "--store", type=click.Choice(["sqlite", "cassandra"]), default="sqlite", show_default=True, help="The event store."
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="How often every contender takes its turns. Reported is the median over the rounds.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    help="Length of one turn: 0.5 on SQLite, where a round has six, and 1 on Cassandra, where it has twelve.",
)
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where to put the files, which are deleted afterwards: the disk counts. The system's temporary directory "
    "by default, which may be in memory.",
)
def step_cost(store: str, rounds: int, seconds: float | None, directory: Path | None) -> Report:
    """Sagas of three empty steps a second, against the raw driver.

    The raw driver does the statements that the store was seen to execute for one saga.

    SQLite: with the same commits (WAL, synchronous=FULL), by 1 and by 16 callers, the engine on threads and on gevent.
    Commits are counted: one caller must make n + 1 for n steps, or the exit code is 1.

    Cassandra: those that went out together do so again, by 1, 16 and 100 callers, both on threads and on gevent. The
    server is the one of STACKSAGA_TEST_CASSANDRA (host:port), or of `python -m tests.services start`, or a new one.
    Round trips are counted at the wire: there must be n + 2 for n steps, or the exit code is 1.
    """
    if store == "cassandra":
        # Its driver is no business of SQLite's contenders.
        from tests.benchmarks.cassandra_step_cost import cassandra_step_cost

        return cassandra_step_cost(rounds, seconds or 1.0, directory)
    return _sqlite_step_cost(rounds, seconds or 0.5, directory)


def _sqlite_step_cost(rounds: int, seconds: float, directory: Path | None) -> Report:
    with tempfile.TemporaryDirectory(prefix="step-cost-", dir=directory) as folder, _contenders(Path(folder)) as found:
        fsyncs = [_fsync_cost(Path(folder))]
        turns = []
        for _ in range(rounds):
            turns.append(_round(found, seconds))
            fsyncs.append(_fsync_cost(Path(folder)))
        memory = {name: process.memory for name, process in found.items()}
    return report("sqlite", seconds, turns, memory, median(fsyncs))


@contextmanager
def _contenders(folder: Path) -> Iterator[Processes]:
    raw_file, recording = folder / "raw.db", folder / "recording"
    recording.write_bytes(msgspec.msgpack.encode(record(raw_file)))
    with ExitStack() as processes:
        started = {
            name: processes.enter_context(contender_process("engine_contender", name, str(folder))) for name in WORKERS
        }
        started[RAW] = processes.enter_context(contender_process("raw_contender", str(recording), str(raw_file)))
        yield started


def _round(processes: Processes, seconds: float) -> dict[str, dict[int, Measured]]:
    """One turn for each contender and number of callers; those that are compared follow one another."""
    turns: dict[str, dict[int, Measured]] = {name: {} for name in processes}
    for callers in CALLERS:
        for name, process in processes.items():
            turns[name][callers] = process.take_turn(callers, seconds)
    return turns


def _fsync_cost(folder: Path) -> float:
    """Median seconds of an fsync after one page was written, as a commit does it."""
    took = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(FSYNCS_A_ROUND):
            file.write(bytes(PAGE))
            began = time.perf_counter()
            os.fsync(file.fileno())
            took.append(time.perf_counter() - began)
    return median(took)
