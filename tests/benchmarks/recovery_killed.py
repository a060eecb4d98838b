"""``python -m tests.benchmarks.recovery_killed URL SERVICE COUNT THEN CALLS``: sagas whose process is killed.

All of them run at once. When the last one is in its second step, the process kills itself.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any
from uuid import UUID

from stacksaga_flask import SystemTime
from stacksaga_flask.store.opening import init_schema
from tests.benchmarks.empty_saga import Order
from tests.benchmarks.recovery_place import STEPS, Place, engine_then, recovered_saga
from tests.support.opening import DEVELOPMENT


class Killed:
    """The participants of sagas that are killed in their second step.

    Args:
        count: How many sagas there are.
        calls: A file that outlives them, of the calls.
    """

    def __init__(self, count: int, calls: Path) -> None:
        self._left = count
        self._lock = threading.Lock()
        self._calls = os.open(calls, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def called(self, step: str, transaction_id: UUID) -> None:
        """A step was called: the second one of the last saga ends the process, and those of the others wait for it."""
        os.write(self._calls, f"{step} {transaction_id}\n".encode())
        if step != STEPS[1]:
            return
        with self._lock:
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)
        threading.Event().wait()


def main() -> None:
    """Run them."""
    url, service, count, then, calls = sys.argv[1:]
    place, number = Place(url, service), int(count)
    saga = recovered_saga(Killed(number, Path(calls)).called)
    init_schema(place.settings(run_directory=""), SystemTime(), DEVELOPMENT)
    threading.excepthook = _fail
    with engine_then(place, saga, int(then)) as engine:
        engine.node()
        threads = [threading.Thread(target=engine.run, args=(saga, Order())) for _ in range(number)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    raise RuntimeError("the sagas ended, and were to be killed in their second step")


def _fail(arguments: Any) -> None:
    sys.excepthook(arguments.exc_type, arguments.exc_value, arguments.exc_traceback)
    os._exit(1)


if __name__ == "__main__":
    main()
