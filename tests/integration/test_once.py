"""What ``--once`` tells of a sweep, on the memory store with a clock that the test moves."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from stacksaga_flask import Engine
from stacksaga_flask.clock import SECOND
from stacksaga_flask.errors import StoreUnavailable
from stacksaga_flask.store.contract import LAST_WINDOW
from stacksaga_flask.store.memory import MemoryStore
from stacksagad.exits import Exit
from stacksagad.once import progress_of, tell_summary
from stacksagad.recovering import Recovering
from tests.support.shop import UNAVAILABLE, Bench, Order

MINUTE = 60 * SECOND


class AwayStore(MemoryStore):
    """A store that does not tell its windows."""

    def windows(self, date: str, *, minimum: int = 0, maximum: int = LAST_WINDOW) -> Iterator[int]:
        raise StoreUnavailable("the store is not there")


class BrokenStore(MemoryStore):
    """A store with a defect."""

    def windows(self, date: str, *, minimum: int = 0, maximum: int = LAST_WINDOW) -> Iterator[int]:
        raise ZeroDivisionError("a defect")


def parked(bench: Bench, store: MemoryStore | None = None) -> tuple[Engine, MemoryStore]:
    """An engine whose store holds two transactions that were parked and are due, in two windows."""
    memory = store or MemoryStore(bench.settings.scope, bench.time)
    engine = Engine(bench.settings, sagas=[bench.saga], open_store=lambda: memory, time_source=bench.time)
    for _ in range(2):
        bench.shop.errors["charge"] = [UNAVAILABLE]
        engine.run(bench.saga, Order())
        bench.time.advance(2 * MINUTE)
    return engine, memory


def table(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_everything_that_became_durable_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    engine, _ = parked(Bench())
    recovering = Recovering(engine, lambda: True)
    recovering.sweep_whole()
    assert tell_summary(recovering, []) is Exit.DONE
    assert table(capsys.readouterr().out) == ["completed 2", "found 2", "everything is durable"]
    assert recovering.progress() == (2, 2)
    assert recovering.busy() == []
    assert "dispatched 2" in recovering.counters()
    assert "in flight 0" in recovering.counters()


def test_a_store_that_went_away_leaves_something(capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench()
    engine, _ = parked(bench, AwayStore(bench.settings.scope, bench.time))
    recovering = Recovering(engine, lambda: True)
    recovering.sweep_whole()
    assert tell_summary(recovering, []) is Exit.LEFT
    assert table(capsys.readouterr().out) == [
        "found 0",
        "left: not everything was looked at, since the event store is away",
        "something was left: run it again",
    ]


def test_a_sweep_that_ended_with_a_defect_leaves_something(capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench()
    engine, _ = parked(bench, BrokenStore(bench.settings.scope, bench.time))
    recovering = Recovering(engine, lambda: True)
    with pytest.raises(ZeroDivisionError):
        recovering.sweep_whole()
    assert tell_summary(recovering, []) is Exit.LEFT
    assert "left: the sweep did not come to its end" in table(capsys.readouterr().out)


def test_a_re_invocation_that_failed_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    engine, memory = parked(Bench())
    recovering = Recovering(engine, lambda: True)

    def fail(*arguments: object, **more: object) -> None:
        raise StoreUnavailable("the store is not there")

    memory.insert_marker = fail  # type: ignore[assignment,method-assign]
    recovering.sweep_whole()
    assert tell_summary(recovering, ["and more"]) is Exit.LEFT
    assert table(capsys.readouterr().out) == [
        "failed with StoreUnavailable 2",
        "found 2",
        "left: 2 transactions failed with StoreUnavailable; see the log",
        "left: 2 buckets, which were not dropped",
        "left: and more",
        "something was left: run it again",
    ]


def test_a_log_is_told_once_a_minute_how_far_it_is(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    engine, _ = parked(bench)
    recovering = Recovering(engine, lambda: True)
    recovering.sweep_whole()
    with caplog.at_level(logging.INFO, "stacksagad"), progress_of(recovering, engine.node().clock) as show:
        told = []
        for _ in range(5):
            bench.time.advance(25 * SECOND)
            show()
            told.append(len(caplog.records))
    assert told == [0, 0, 1, 1, 1]
    assert caplog.messages[0].startswith("2 of 2 windows are swept; ")


def test_nothing_is_taken_by_a_node_that_stops(capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench()
    engine, _ = parked(bench)
    bench.shop.calls.clear()
    recovering = Recovering(engine, lambda: False)
    recovering.sweep_whole()
    assert tell_summary(recovering, []) is Exit.LEFT
    assert bench.shop.calls == []
