"""``python -m tests.benchmarks.engine_contender threads|gevent DIRECTORY``: the engine as a contender."""

from __future__ import annotations

import sys

if __name__ == "__main__" and sys.argv[1] == "gevent":
    from gevent import monkey

    monkey.patch_all()

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from stacksaga_flask import Engine
from tests.benchmarks.contender import peak_memory, serve
from tests.benchmarks.empty_saga import Order, engine_on, saga


class EngineContender:
    """Callers that share one engine."""

    def __init__(self, engine: Engine, commits: Callable[[], int]) -> None:
        self._engine = engine
        self._commits = commits

    @property
    def commits(self) -> int:
        """How many commits the store has made."""
        return self._commits()

    @contextmanager
    def callers(self, number: int) -> Iterator[Sequence[Callable[[], None]]]:
        """So many callers."""
        yield [self._run] * number

    def _run(self) -> None:
        transaction = self._engine.run(saga, Order())
        if not transaction.completed:
            raise RuntimeError(f"{transaction} did not complete, so its time says nothing")


def main() -> None:
    """Open the engine on a file of its own in the directory, and take turns."""
    workers, directory = sys.argv[1:]
    start = peak_memory()
    with engine_on(Path(directory) / f"{workers}.db") as (engine, store):
        serve(EngineContender(engine, lambda: store.commits), start)


if __name__ == "__main__":
    main()
