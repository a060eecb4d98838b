"""A contender's process, as seen from the one that gives the turns."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from tests.benchmarks.contender import Measured, Memory, Turn

ROOT = Path(__file__).parents[2]
T = TypeVar("T")


class ContenderProcess:
    """Gives turns to a contender that runs, and remembers its memory."""

    def __init__(self, to: IO[str], answers: IO[str]) -> None:
        self._to = to
        self._answers = answers
        self.memory = self._answer(Memory)

    def take_turn(self, callers: int, seconds: float) -> Measured:
        """Let it run sagas for so long, and say what came of it."""
        self._to.write(msgspec.json.encode(Turn(callers, seconds)).decode() + "\n")
        self._to.flush()
        measured = self._answer(Measured)
        self.memory = self._answer(Memory)
        return measured

    def _answer(self, kind: type[T]) -> T:
        line = self._answers.readline()
        if not line:
            raise RuntimeError("a contender ended before it answered; its error is above")
        return msgspec.json.decode(line, type=kind)


@contextmanager
def contender_process(module: str, *arguments: str) -> Iterator[ContenderProcess]:
    """Start a contender that is warmed up, and end it."""
    command = [sys.executable, "-m", f"tests.benchmarks.{module}", *arguments]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        if process.stdin is None or process.stdout is None:
            raise AssertionError("both were asked for")
        try:
            yield ContenderProcess(process.stdin, process.stdout)
            process.stdin.close()
            process.wait()
        finally:
            process.kill()
