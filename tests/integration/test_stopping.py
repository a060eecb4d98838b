"""A process that is told to stop parks its runs, and so does a step that is interrupted from outside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest
from flask import Flask, Response

from stacksaga_flask import Engine, NotStarted, Retryable, RunningStatus, StackSaga, TryoutStatus
from stacksaga_flask.store.contract import TransactionRow
from tests.support.faults import unavailable
from tests.support.shop import CARD_REFUSED, Bench, Order, Shop, place_order_saga

ROOT = Path(__file__).parents[2]


def row_of(bench: Bench, transaction_id: UUID) -> TransactionRow:
    stored = bench.memory.read(transaction_id)
    assert stored is not None
    return stored.row


def is_parked(bench: Bench, row: TransactionRow) -> bool:
    """Whether a retry pointer one window ahead is there, with a watchdog behind it (R1)."""
    assert row.retry is not None
    assert row.watchdog is not None
    opens = bench.engine.node().grid.opens
    assert opens(row.retry) // 60_000_000 == bench.time.wall() // 60_000_000 + 1
    assert opens(row.watchdog) > opens(row.retry)
    return all(bench.memory.has_pointer(path, row.transaction_id) for path in (row.retry, row.watchdog))


def test_a_run_ends_the_step_it_is_in_and_is_parked() -> None:
    bench = Bench()
    bench.shop.during["reserve"] = bench.engine.stop
    transaction = bench.engine.run(bench.saga, Order())
    row = row_of(bench, transaction.transaction_id)
    assert (transaction.status, row.running_status) == (RunningStatus.PROCESS_PAUSED,) * 2
    assert (bench.shop.calls, row.committed_steps) == (["reserve"], ("reserve",))
    assert (row.attempt, row.possibly_done) == (0, False)
    assert is_parked(bench, row)
    assert [tryout.executor for tryout in bench.engine.tryouts(transaction.transaction_id)] == ["reserve"]


def test_a_compensation_is_parked_between_two_reverts() -> None:
    bench = Bench()
    bench.shop.errors["ship"] = [CARD_REFUSED]
    bench.shop.during["refund"] = bench.engine.stop
    transaction = bench.engine.run(bench.saga, Order())
    row = row_of(bench, transaction.transaction_id)
    assert row.running_status is RunningStatus.REVERT_PAUSED
    assert (row.reverts, bench.shop.calls) == (("reserve",), ["reserve", "charge", "ship", "refund"])
    assert is_parked(bench, row)


def test_a_run_whose_last_step_was_under_way_ends() -> None:
    bench = Bench()
    bench.shop.during["ship"] = bench.engine.stop
    assert bench.engine.run(bench.saga, Order()).completed


def test_no_further_attempt_is_made_in_the_process() -> None:
    bench = Bench(step_attempts=3)
    bench.shop.errors["charge"] = [Retryable("busy")] * 3
    bench.shop.during["charge"] = bench.engine.stop
    row = row_of(bench, bench.engine.run(bench.saga, Order()).transaction_id)
    assert bench.shop.calls == ["reserve", "charge"]
    assert (row.attempt, row.possibly_done) == (1, True)
    assert is_parked(bench, row)


def test_a_stop_during_the_wait_for_the_next_attempt_parks_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(step_attempts=3)
    bench.shop.errors["charge"] = [Retryable("busy")] * 3
    sleep = bench.time.sleep

    def stopped_meanwhile(microseconds: int) -> None:
        bench.engine.stop()
        sleep(microseconds)

    monkeypatch.setattr(bench.time, "sleep", stopped_meanwhile)
    row = row_of(bench, bench.engine.run(bench.saga, Order()).transaction_id)
    assert bench.shop.calls == ["reserve", "charge"]
    assert (row.running_status, row.attempt, row.possibly_done) == (RunningStatus.PROCESS_PAUSED, 1, True)
    assert is_parked(bench, row)
    statuses = [tryout.status for tryout in bench.engine.tryouts(row.transaction_id)]
    assert statuses == [TryoutStatus.SUCCEEDED, TryoutStatus.RETRYABLE]


def test_nothing_is_started_any_more_and_what_is_recorded_can_be_found() -> None:
    bench = Bench()
    transaction = bench.engine.run(bench.saga, Order())
    bench.engine.stop()
    for start in (bench.engine.run, bench.engine.start):
        with pytest.raises(NotStarted, match="this process is stopping"):
            start(bench.saga, Order())
    found = bench.engine.find(transaction.transaction_id)
    assert found is not None
    assert found.completed


def test_a_view_of_a_stopping_process_answers_503_and_when_to_repeat() -> None:
    shop = Shop()
    saga = place_order_saga(shop)
    app = Flask("shop")
    app.config.update(STACKSAGA_STORE="memory://", STACKSAGA_CLAIM_TTL="30s")
    stacksaga = StackSaga(app, sagas=[saga])

    @app.post("/orders")
    def orders() -> Response:
        return stacksaga.run(saga, Order())

    engine: Engine = app.extensions["stacksaga"].engine
    engine.stop()
    answer = app.test_client().post("/orders")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "30")
    assert shop.calls == []


def test_draining_waits_for_the_runs_and_gives_up_in_time() -> None:
    bench = Bench()
    drained: list[bool] = []
    bench.shop.during["reserve"] = lambda: drained.append(bench.engine.drain(0.5))
    bench.engine.run(bench.saga, Order())
    drained.append(bench.engine.drain(0.5))
    assert drained == [False, True]


# -- a step that is interrupted --------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt()])
def test_an_interrupted_step_is_parked_as_possibly_done_and_the_interruption_goes_on(error: BaseException) -> None:
    bench = Bench(step_attempts=3)
    bench.shop.errors["charge"] = [error]
    with pytest.raises(type(error)) as raised:
        bench.engine.run(bench.saga, Order())
    assert raised.value is error
    row = row_of(bench, bench.shop.transaction_ids[0])
    assert (row.running_status, row.committed_steps) == (RunningStatus.PROCESS_PAUSED, ("reserve",))
    assert (row.possibly_done, row.attempt) == (True, 1)
    assert is_parked(bench, row)
    *_, tryout = bench.engine.tryouts(row.transaction_id)
    assert tryout.status is TryoutStatus.RETRYABLE
    assert "interrupted by" in str(tryout.error)
    assert "what it did is unknown" in str(tryout.error)
    assert bench.shop.calls == ["reserve", "charge"]


def test_an_interrupted_step_that_cannot_be_recorded_is_left_to_the_watchdog(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(request_timeout="50ms")
    bench.shop.errors["charge"] = [SystemExit(1)]
    bench.shop.during["charge"] = lambda: bench.store.fault("retry", *[unavailable] * 1000)
    with pytest.raises(SystemExit):
        bench.engine.run(bench.saga, Order())
    row = row_of(bench, bench.shop.transaction_ids[0])
    assert row.running_status is RunningStatus.PROCESSING
    assert row.watchdog is not None
    assert bench.memory.has_pointer(row.watchdog, row.transaction_id)
    assert f"transaction_id={row.transaction_id} of place-order is left to its watchdog" in caplog.text


UNDER_GEVENT = """
from gevent import monkey
monkey.patch_all()
import gevent, gevent.event, logging, sys
from stacksaga_flask import Engine, Saga, read_settings
logging.basicConfig(format="%(message)s", stream=sys.stdout)
inside, recording, ids = gevent.event.Event(), gevent.event.Event(), []
saga = Saga("two", payload=dict)

@saga.step(attempts=3)
def one(order, context):
    ids.append(context.transaction_id)
    inside.set()
    gevent.sleep(60)

@one.revert
def undo(order, context): ...

@saga.pivot
def two(order, context): ...

settings = read_settings({{"STACKSAGA_STORE": "memory://"}}, application_name="shop")
engine = Engine(settings, sagas=[saga])
store = engine.node().store
apply = store.apply

def slowly(*operations):
    if inside.is_set():
        recording.set()
        gevent.sleep({slowly})
    return apply(*operations)

store.apply = slowly
def run():
    try:
        engine.run(saga, {{}})
    except BaseException as error:
        return error

view = gevent.spawn(run)
inside.wait()
{body}
view.join()
row = store.read(ids[0]).row
statuses = [tryout.status.value for tryout in engine.tryouts(row.transaction_id)]
print(len(ids), repr(view.value), row.running_status.value, row.possibly_done, statuses)
print(row.retry is not None and store.has_pointer(row.retry, row.transaction_id))
print(engine.drain(0))
"""


def under_gevent(body: str, *, slowly: int) -> list[str]:
    """Lines that a process of greenlets prints whose recordings take so many seconds."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", UNDER_GEVENT.format(body=body, slowly=slowly)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    ).stdout.splitlines()


def test_a_killed_greenlet_parks_the_step_that_it_was_in() -> None:
    shown = under_gevent("view.kill(block=False)", slowly=0)
    assert shown == ["1 GreenletExit() PROCESS_PAUSED True ['RETRYABLE']", "True", "True"]


def test_a_second_kill_while_the_first_is_recorded_leaves_it_to_the_watchdog_and_the_first_goes_on() -> None:
    body = "view.kill(SystemExit(3), block=False)\nrecording.wait()\nview.kill(block=False)"
    log, *shown = under_gevent(body, slowly=60)
    assert "is left to its watchdog: GreenletExit" in log
    assert shown == ["1 SystemExit(3) PROCESSING False []", "False", "True"]


# -- real processes --------------------------------------------------------------------------------------------

SCRIPT = """
import os, signal, sys, threading
{before}
from stacksaga_flask import Engine, Saga, read_settings
saga = Saga("two", payload=dict)
inside = threading.Event()

@saga.step
def one(order, context):
    inside.set()
    while not os.path.exists(sys.argv[2]):
        threading.Event().wait(0.01)

@one.revert
def undo(order, context): ...

@saga.pivot
def two(order, context): ...

config = {{"STACKSAGA_STORE": "sqlite:///" + sys.argv[1], **{settings}}}
engine = Engine(read_settings(config, application_name="shop"), sagas=[saga])
told = []

def run():
    told.append(engine.run(saga, {{}}))
    print(told[0].transaction_id, told[0].status.value, flush=True)

thread = threading.Thread(target=run)
{body}
"""
IN_A_THREAD = """
thread.start()
inside.wait()
print("inside", flush=True)
while True:
    signal.pause()
"""
IN_THE_MAIN_THREAD = """
threading.Thread(target=lambda: (inside.wait(), print("inside", flush=True)), daemon=True).start()
run()
while True:
    signal.pause()
"""
IDLE = """
print("inside", flush=True)
while True:
    signal.pause()
"""

Child = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def child(tmp_path: Path) -> Child:
    def start(body: str, *, before: str = "", settings: str = "{}") -> subprocess.Popen[str]:
        script = SCRIPT.format(before=before, body=body, settings=settings)
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "shop.db"), str(tmp_path / "go")],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "inside\n"
        return process

    return start


@pytest.mark.parametrize("body", [IN_A_THREAD, IN_THE_MAIN_THREAD])
def test_sigterm_lets_a_plain_process_park_its_run_and_then_ends_it(child: Child, body: str, tmp_path: Path) -> None:
    with child(body) as process:
        process.send_signal(signal.SIGTERM)
        (tmp_path / "go").touch()
        assert process.stdout is not None
        assert process.stdout.readline().split()[1] == "PROCESS_PAUSED"
        assert process.wait(20) == -signal.SIGTERM


def test_sigterm_ends_an_idle_process_at_once(child: Child) -> None:
    with child(IDLE) as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == -signal.SIGTERM


def test_sigterm_ends_a_process_whose_step_outlasts_the_grace(child: Child) -> None:
    with child(IN_A_THREAD, settings='{"STACKSAGA_SHUTDOWN_GRACE": "100ms"}') as process:
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == -signal.SIGTERM


def test_the_handler_that_was_there_is_called(child: Child, tmp_path: Path) -> None:
    before = "signal.signal(signal.SIGTERM, lambda number, frame: print('mine', number, flush=True))"
    with child(IN_A_THREAD, before=before) as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == f"mine {signal.SIGTERM.value}\n"
        (tmp_path / "go").touch()
        assert process.stdout.readline().split()[1] == "PROCESS_PAUSED"
        process.kill()


def test_a_handler_that_leaves_at_once_has_to_wait_for_the_runs(child: Child, tmp_path: Path) -> None:
    before = "signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(7))"
    with child(IN_A_THREAD, before=before) as process:
        process.send_signal(signal.SIGTERM)
        (tmp_path / "go").touch()
        assert process.stdout is not None
        assert process.stdout.readline().split()[1] == "PROCESS_PAUSED"
        assert process.wait(20) == 7


def test_a_handler_that_was_put_before_ours_and_calls_it_is_called_and_the_run_is_parked(
    child: Child, tmp_path: Path
) -> None:
    chained = """
ours = signal.getsignal(signal.SIGTERM)
signal.signal(signal.SIGTERM, lambda number, frame: (print("mine", flush=True), ours(number, frame)))
"""
    with child(chained + IN_THE_MAIN_THREAD) as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "mine\n"
        (tmp_path / "go").touch()
        assert process.stdout.readline().split()[1] == "PROCESS_PAUSED"
        assert process.wait(20) == -signal.SIGTERM


# Tells of each signal once our handler is done with it, unless that ended the process.
TELLS = """
ours = signal.getsignal(signal.SIGTERM)
signal.signal(signal.SIGTERM, lambda number, frame: (ours(number, frame), print("told", flush=True)))
"""


def test_a_second_sigterm_does_not_cut_the_wait_for_the_runs_short(child: Child, tmp_path: Path) -> None:
    with child(TELLS + IN_A_THREAD) as process:
        assert process.stdout is not None
        for _ in range(3):
            process.send_signal(signal.SIGTERM)
            assert process.stdout.readline() == "told\n"
        (tmp_path / "go").touch()
        assert process.stdout.readline().split()[1] == "PROCESS_PAUSED"
        assert process.wait(20) == -signal.SIGTERM


FORKS_WHILE_IT_WAITS = """
thread.start()
inside.wait()
print("inside", flush=True)
while not engine._in_flight.stopping:
    threading.Event().wait(0.01)
child = os.fork()
while child == 0:
    threading.Event().wait(0.01)
ended = 0
while not ended:
    # Again and again, since a child forgets what it was sent before it had left the fork.
    os.kill(child, signal.SIGTERM)
    ended, how = os.waitpid(child, os.WNOHANG)
    threading.Event().wait(0.01)
print(how, flush=True)
thread.join()
"""


def test_sigterm_ends_a_child_that_was_forked_while_its_parent_waits_for_its_runs(child: Child, tmp_path: Path) -> None:
    with child(FORKS_WHILE_IT_WAITS) as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == f"{signal.SIGTERM.value}\n"
        (tmp_path / "go").touch()
        assert process.stdout.readline().split()[1] == "PROCESS_PAUSED"


@pytest.mark.parametrize(
    ("before", "settings"),
    [
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", "{}"),
        ("", '{"STACKSAGA_STOP_AT_SIGTERM": False}'),
    ],
)
def test_sigterm_is_left_alone_where_it_is_ignored_or_the_setting_says_so(
    child: Child, before: str, settings: str
) -> None:
    shows = "print(signal.getsignal(signal.SIGTERM).name)\n"
    with child("print('inside', flush=True)\n" + shows, before=before, settings=settings) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == ("SIG_IGN\n" if before else "SIG_DFL\n")


def test_a_child_of_a_fork_is_not_stopping_because_its_parent_is() -> None:
    bench = Bench()
    bench.engine.stop()
    child = os.fork()
    if child == 0:
        os._exit(0 if bench.engine.run(bench.saga, Order()).completed else 1)
    assert os.waitpid(child, 0)[1] == 0
