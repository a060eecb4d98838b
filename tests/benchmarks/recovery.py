"""What recovery costs: what killed processes left, against the raw driver asking the store for the same."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final, TypeAlias

import click
import msgspec

from stacksaga_flask import SystemTime
from stacksaga_flask.store.opening import init_schema
from tests.benchmarks.process import ROOT
from tests.benchmarks.recovery_filling import (
    Sample,
    fill,
    finished_sample,
    killed_sagas,
    killed_sample,
)
from tests.benchmarks.recovery_idle import idle
from tests.benchmarks.recovery_place import AGO, Place
from tests.benchmarks.recovery_raw import Replayed, Turn
from tests.benchmarks.recovery_recording import record_reinvocation
from tests.benchmarks.recovery_report import KilledRound, PointersSwept, report
from tests.benchmarks.recovery_sweep import Swept
from tests.benchmarks.registry import Report, benchmark
from tests.support.opening import DEVELOPMENT

CALLERS: Final = {"sqlite": (1, 16), "cassandra": (100,)}
"""Of the raw driver: on Cassandra as many as a node has workers, by default. On SQLite that many would only wait for
one another, so fewer are tried, and the fastest count."""
MOST_RAW: Final = 5_000
"""The raw driver has so many pointers of its own before the sweep, and so many after it."""

NewPlace: TypeAlias = Callable[[], Place]
"""An empty place, whose tables are there."""


@benchmark("recovery")
@click.option(
    "--store", type=click.Choice(["sqlite", "cassandra"]), default="sqlite", show_default=True, help="The event store."
)
@click.option(
    "--killed",
    type=click.IntRange(min=1),
    default=500,
    show_default=True,
    help="How many sagas are killed in their second step.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="How often that is done. Reported is the median.",
)
@click.option(
    "--pointers",
    type=click.IntRange(min=1),
    default=50_000,
    show_default=True,
    help="How many pointers of transactions a bucket holds: once of finished ones, once of live ones.",
)
@click.option(
    "--windows",
    type=click.IntRange(min=1),
    default=10_000,
    show_default=True,
    help="How many windows pass between two idle ticks that are compared.",
)
@click.option(
    "--directory",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Where to put the files, which are deleted afterwards: the disk counts. The system's temporary directory "
    "by default, which may be in memory.",
)
def recovery(store: str, killed: int, rounds: int, pointers: int, windows: int, directory: Path | None) -> Report:
    """Recovery of what killed processes left, against the raw driver.

    The raw driver asks the store for what a re-invocation was seen to ask for: on Cassandra by as many callers as a
    node has workers, on SQLite by 1 and by 16, and the faster of the two counts.

    Steps that ran twice are counted: of a saga that was killed in its second step that one must, and no other, or the
    exit code is 1. It is 1 as well if a transaction is not completed, if an idle tick asks the store for more after
    many windows than at first, or if memory grows with the bucket.
    """
    with tempfile.TemporaryDirectory(prefix="recovery-", dir=directory) as name:
        folder = Path(name)
        with (_sqlite if store == "sqlite" else _cassandra)(folder) as new_place:
            bench = _Bench(folder, new_place, CALLERS[store])
            killed_rounds = [bench.killed_round(killed, number) for number in range(rounds)]
            return report(
                store,
                killed_rounds,
                finished=bench.pointers(bench.finished(), pointers),
                live=bench.pointers(bench.live(), pointers),
                idle=idle(new_place(), windows),
            )


@contextmanager
def _sqlite(folder: Path) -> Iterator[NewPlace]:
    """Each place is a file."""
    numbers = count(1)

    def new_place() -> Place:
        return _set_up(Place(f"sqlite:///{folder}/{next(numbers)}.db", "benchmark"))

    yield new_place


@contextmanager
def _cassandra(folder: Path) -> Iterator[NewPlace]:
    """All places are in one keyspace."""
    # Its driver is no business of SQLite's contenders.
    from tests.benchmarks.cassandra_server import benchmark_node, keyspace_on

    numbers = count(1)
    with benchmark_node(folder) as node, keyspace_on(node) as keyspace:
        yield lambda: _set_up(Place(node.url(keyspace), f"benchmark-{next(numbers)}"))


def _set_up(place: Place) -> Place:
    init_schema(place.settings(run_directory=""), SystemTime(), DEVELOPMENT)
    return place


class _Bench:
    """What all parts need.

    Args:
        folder: Where its files are.
        new_place: Makes places in the event store.
        callers: By how many callers the raw driver is tried.
    """

    def __init__(self, folder: Path, new_place: NewPlace, callers: Sequence[int]) -> None:
        self._folder = folder
        self._new_place = new_place
        self._callers = callers
        self._numbers = count(1)

    def killed_round(self, number: int, which: int) -> KilledRound:
        """Sagas that were killed in their second step: the sweep, and the raw driver before or after it."""
        place, folder = self._new_place(), self._new_folder()
        ids = killed_sagas(place, number, then=_then(), calls=folder / "calls")
        with self._raw(killed_sample(place, ids[0])) as raw:
            replayed = [] if which % 2 else raw(number)
            swept = self._sweep(place, folder)
            replayed = replayed or raw(number)
        calls = Counter(tuple(line.split()) for line in (folder / "calls").read_text().splitlines())
        twice = Counter(step for (step, _), times in calls.items() if times > 1)
        return KilledRound(number, swept, min(replayed), dict(twice), most_calls=max(calls.values()))

    def finished(self) -> Sample:
        """A transaction that has ended and whose pointer is there."""
        return finished_sample(self._new_place(), then=_then())

    def live(self) -> Sample:
        """A transaction that was killed in its second step."""
        place, folder = self._new_place(), self._new_folder()
        return killed_sample(place, killed_sagas(place, 1, then=_then(), calls=folder / "calls")[0])

    def pointers(self, sample: Sample, number: int) -> PointersSwept:
        """Many transactions like one: the sweep, and the raw driver before and after it."""
        few, place = min(number, MOST_RAW), self._new_place()
        fill(place, sample, number)
        with self._raw(sample) as raw:
            before = raw(few)
            swept = self._sweep(place, self._new_folder())
            after = raw(few)
        rates = {
            callers: 2 * few / (first + second)
            for callers, first, second in zip(self._callers, before, after, strict=True)
        }
        return PointersSwept(number, swept, rates)

    @contextmanager
    def _raw(self, sample: Sample) -> Iterator[Callable[[int], list[float]]]:
        """The raw driver: the seconds that it needs for so many like the sample, by the numbers of callers."""
        place, recording = self._new_place(), self._new_folder() / "recording"
        recording.write_bytes(record_reinvocation(self._new_place(), sample, place.service))
        with _raw_process(str(recording), str(max(self._callers)), place.url, place.service) as take_turn:
            yield lambda number: [
                take_turn(Turn(callers, fill(place, sample, number))).seconds for callers in self._callers
            ]

    def _sweep(self, place: Place, folder: Path) -> Swept:
        command = [sys.executable, "-m", "tests.benchmarks.recovery_sweep", place.url, place.service, str(folder)]
        done = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE)
        if done.returncode:
            raise click.ClickException("the sweep did not come to its end, so its time says nothing; why is above")
        return msgspec.json.decode(done.stdout, type=Swept)

    def _new_folder(self) -> Path:
        folder = self._folder / f"run-{next(self._numbers)}"
        folder.mkdir()
        return folder


def _then() -> int:
    return SystemTime().wall() - AGO


@contextmanager
def _raw_process(*arguments: str) -> Iterator[Callable[[Turn], Replayed]]:
    command = [sys.executable, "-m", "tests.benchmarks.recovery_raw", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        to, answers = process.stdin, process.stdout
        if to is None or answers is None:
            raise AssertionError("both were asked for")

        def take_turn(turn: Turn) -> Replayed:
            to.write(msgspec.json.encode(turn) + b"\n")
            to.flush()
            line = answers.readline()
            if not line:
                raise click.ClickException("the raw driver ended before it answered; its error is above")
            return msgspec.json.decode(line, type=Replayed)

        try:
            yield take_turn
            to.close()
            process.wait()
        finally:
            process.kill()
