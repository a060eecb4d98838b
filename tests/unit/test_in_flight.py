"""The runs of a process are counted, in a forked child from nothing, whoever comes first."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import ExitStack

import pytest

from stacksaga_flask.engine.in_flight import InFlight
from stacksaga_flask.errors import NotStarted

RACES = 600


def test_runs_are_counted_while_they_last_and_none_begins_after_the_stop() -> None:
    in_flight = InFlight()
    with in_flight.run(), in_flight.run():
        assert in_flight.runs == 2
        in_flight.stop()
    assert in_flight.runs == 0
    with pytest.raises(NotStarted), in_flight.run():
        pass


def counted_by_two_at_once(in_flight: InFlight) -> int:
    """How many runs are counted when two threads came first at the same time."""
    together, inside, counted = (threading.Barrier(count, timeout=20) for count in (2, 3, 3))

    def run() -> None:
        together.wait()
        with in_flight.run():
            inside.wait()
            counted.wait()

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    inside.wait()
    runs = in_flight.runs
    counted.wait()
    for thread in threads:
        thread.join()
    return runs


def test_the_first_two_runs_of_a_forked_child_are_both_counted() -> None:
    preloaded = [InFlight() for _ in range(RACES)]
    with ExitStack() as runs:
        for in_flight in preloaded:
            runs.enter_context(in_flight.run())
        child = os.fork()
        if child == 0:
            sys.setswitchinterval(1e-6)
            counted = [counted_by_two_at_once(in_flight) for in_flight in preloaded]
            os._exit(0 if counted == [2] * RACES else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert [in_flight.runs for in_flight in preloaded] == [0] * RACES
