"""One contender of a benchmark: runs sagas with some callers at once. It has a process to itself."""

from __future__ import annotations

import resource
import select
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import msgspec

WARM_UP = 30
"""Sagas run before anything is measured."""


class Turn(msgspec.Struct):
    """What a contender is told to do: run sagas for so long."""

    callers: int
    seconds: float


class Measured(msgspec.Struct):
    """What came of a turn."""

    sagas: int
    seconds: float
    """From the first start to the last end, which comes after the turn's time."""
    commits: int

    @property
    def rate(self) -> float:
        """Sagas a second."""
        return self.sagas / self.seconds

    @property
    def commits_a_saga(self) -> float:
        """Commits for each saga."""
        return self.commits / self.sagas


class Memory(msgspec.Struct):
    """Resident memory in bytes."""

    start: int
    """The peak once everything was imported and before anything was opened."""
    peak: int


class Contender(Protocol):
    """Something that runs sagas."""

    @property
    def commits(self) -> int:
        """How many commits it has made; none where a store has none."""

    def callers(self, number: int) -> AbstractContextManager[Sequence[Callable[[], None]]]:
        """So many callers. Each runs one saga whenever it is called, and is called by one thread."""


def peak_memory() -> int:
    """The most memory that was resident so far, in bytes."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not `ru_maxrss`, which begins with that of the process which started this one.
        return int(status.read_text().partition("VmHWM:")[2].split(maxsplit=1)[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def serve(contender: Contender, start: int) -> None:
    """Take the turns that come on standard input, one a line, and answer each; at its end tell the memory."""
    with contender.callers(1) as (run,):
        for _ in range(WARM_UP):
            run()
    _answer(Memory(start=start, peak=peak_memory()))
    while line := _next_line():
        turn = msgspec.json.decode(line, type=Turn)
        with contender.callers(turn.callers) as callers:
            _answer(_take(contender, callers, turn.seconds))
        _answer(Memory(start=start, peak=peak_memory()))


def _next_line() -> str:
    # Reading alone would stop every greenlet, and a driver's signs of life with it.
    select.select([sys.stdin], [], [])
    return sys.stdin.readline()


def _answer(answer: Measured | Memory) -> None:
    sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    sys.stdout.flush()


def _take(contender: Contender, callers: Sequence[Callable[[], None]], seconds: float) -> Measured:
    counts = [0] * len(callers)
    before = contender.commits
    began = time.perf_counter()
    deadline = began + seconds

    def call(number: int) -> None:
        run, count = callers[number], 0
        while time.perf_counter() < deadline:
            run()
            count += 1
        counts[number] = count

    if len(callers) == 1:
        call(0)
    else:
        threads = [threading.Thread(target=call, args=(number,)) for number in range(len(callers))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return Measured(sagas=sum(counts), seconds=time.perf_counter() - began, commits=contender.commits - before)
