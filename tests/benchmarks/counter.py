"""What the directory writer's choice of a bucket costs, against a bare counter and the path that is made of it."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from statistics import median
from typing import Any, Final

import click

from stacksaga_flask.clock import SECOND
from stacksaga_flask.directory.windows import Window, WindowGrid
from stacksaga_flask.directory.writer import DirectoryWriter, PointerKind
from stacksaga_flask.store.contract import Path
from tests.benchmarks.registry import Report, benchmark

THREADS: Final = (1, 16)
WINDOW: Final = Window("2026-12-01", 600)
BUCKET_SIZE: Final = 100
"""Of the writer that is checked: small, so that its threads meet where one bucket ends and the next begins."""


@benchmark("counter")
@click.option(
    "--rounds", type=click.IntRange(min=1), default=10, show_default=True, help="How often. Reported is the median."
)
@click.option(
    "--calls", type=click.IntRange(min=1), default=200_000, show_default=True, help="Calls of a round, of all threads."
)
def counter(rounds: int, calls: int) -> Report:
    """Nanoseconds to choose the bucket of a pointer, by 1 and by 16 threads.

    The floor is a bare counter and the path that is made of its number. That every bucket gets as many pointers as it
    may hold is counted, or the exit code is 1.
    """
    turns = [{threads: _turn(threads, calls) for threads in THREADS} for _ in range(rounds)]
    figures = {
        "rounds": rounds,
        "calls": calls,
        **{
            str(threads): {
                "ns": round(median(turn[threads][0] for turn in turns), 1),
                "floor_ns": round(median(turn[threads][1] for turn in turns), 1),
                # Of the same round, since the machine's load changes from one to the next.
                "of_floor": round(median(turn[threads][0] / turn[threads][1] for turn in turns), 3),
            }
            for threads in THREADS
        },
    }
    return Report(figures=figures, lines=list(_lines(figures)), summary=_summary(figures), broken=list(_broken(calls)))


def _writer(bucket_size: int) -> DirectoryWriter:
    return DirectoryWriter(WindowGrid(interval=60, skew_margin=SECOND), "web-1", bucket_size=bucket_size)


def _turn(threads: int, calls: int) -> tuple[float, float]:
    """Nanoseconds a call of the writer, and of the floor."""
    writer, numbers = _writer(50_000), itertools.count()

    def floor() -> Path:
        return Path(WINDOW.date, WINDOW.window, "web-1", next(numbers))

    return (
        _nanoseconds(lambda: writer.path(WINDOW, PointerKind.WATCHDOG), threads, calls),
        _nanoseconds(floor, threads, calls),
    )


def _nanoseconds(call: Callable[[], Path], threads: int, calls: int) -> float:
    each = -(-calls // threads)

    def run() -> None:
        for _ in range(each):
            call()

    return _in_threads(run, threads) / (each * threads) * 1e9


def _in_threads(run: Callable[[], None], number: int) -> float:
    """Seconds until all are through."""
    threads = [threading.Thread(target=run) for _ in range(number)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return time.perf_counter() - began


def _broken(calls: int) -> Iterator[str]:
    buckets = _filled(_writer(BUCKET_SIZE), calls)
    wrong = {bucket: number for bucket, number in buckets.items() if number != BUCKET_SIZE}
    wrong.pop(max(buckets), None)
    if wrong or max(buckets.values()) > BUCKET_SIZE:
        yield f"of the buckets of {BUCKET_SIZE} pointers these hold more or fewer: {wrong or buckets}"


def _filled(writer: DirectoryWriter, calls: int) -> Counter[int]:
    """How many pointers the buckets have got after calls by many threads."""
    threads = max(THREADS)
    each = -(-calls // threads)
    found: list[list[int]] = []

    def run() -> None:
        found.append([writer.path(WINDOW, PointerKind.RETRY).bucket for _ in range(each)])

    _in_threads(run, threads)
    return Counter(itertools.chain.from_iterable(found))


def _lines(figures: Mapping[str, Any]) -> Iterator[str]:
    yield f"choosing a bucket; median of {figures['rounds']} rounds of {figures['calls']} calls"
    yield f"{'threads':>7} {'ns/call':>8} {'floor':>8} {'of floor':>9}"
    for threads in map(str, THREADS):
        of = figures[threads]
        yield f"{threads:>7} {of['ns']:>8} {of['floor_ns']:>8} {of['of_floor']:>9.2f}"


def _summary(figures: Mapping[str, Any]) -> str:
    return "counter: " + " and ".join(
        f"{figures[str(threads)]['ns']:.0f} ns a call by {threads} ({figures[str(threads)]['of_floor']:.2f} times the "
        f"floor)"
        for threads in THREADS
    )
