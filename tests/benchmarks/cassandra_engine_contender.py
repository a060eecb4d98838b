"""``python -m tests.benchmarks.cassandra_engine_contender threads|gevent URL``: the engine on Cassandra."""

from __future__ import annotations

import sys

if __name__ == "__main__" and sys.argv[1] == "gevent":
    from gevent import monkey

    monkey.patch_all()

from stacksaga_flask import Engine
from tests.benchmarks.cassandra_server import SCOPE
from tests.benchmarks.contender import peak_memory, serve
from tests.benchmarks.empty_saga import saga
from tests.benchmarks.engine_contender import EngineContender
from tests.support.opening import settings_of


def main() -> None:
    """Open an engine with every setting at its default, and take turns."""
    _, url = sys.argv[1:]
    start = peak_memory()
    engine = Engine(settings_of(url, SCOPE), sagas=[saga])
    try:
        serve(EngineContender(engine, lambda: 0), start)
    finally:
        engine.close()


if __name__ == "__main__":
    main()
