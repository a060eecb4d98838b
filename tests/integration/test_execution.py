"""One attempt at a step: its context, its budget on threads and under gevent, what a fork changes."""

from __future__ import annotations

import itertools
import logging
import os
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from stacksaga_flask import Engine, ExecutionType, Rejected, Saga, StepContext, read_settings
from stacksaga_flask.clock import SECOND
from tests.support.shop import CARD_REFUSED, UNAVAILABLE, Bench, Order

pytestmark = pytest.mark.varies

ROOT = Path(__file__).parents[2]


def contexts(bench: Bench) -> list[StepContext[Order]]:
    """Collect the context of every step from here on."""
    seen: list[StepContext[Order]] = []
    call = bench.shop.call

    def remember(name: str, context: StepContext[Order]) -> None:
        seen.append(context)
        call(name, context)

    bench.shop.call = remember  # type: ignore[method-assign]
    return seen


def test_a_context_carries_the_facts_of_the_attempt() -> None:
    bench = Bench(step_attempts=2)
    seen = contexts(bench)
    bench.shop.errors["charge"] = [UNAVAILABLE, CARD_REFUSED]
    transaction = bench.engine.run(bench.saga, Order())
    told = [(c.step_name, c.execution_type, c.attempt, c.reason) for c in seen]
    process, revert = ExecutionType.PROCESS, ExecutionType.REVERT
    assert told == [
        ("reserve", process, 1, None),
        ("charge", process, 1, None),
        ("charge", process, 2, None),
        ("charge", revert, 1, "card refused"),
        ("reserve", revert, 1, "card refused"),
    ]
    assert {c.transaction_id for c in seen} == {transaction.transaction_id}
    assert {c.saga_name for c in seen} == {"place-order"}


def test_the_key_is_the_same_for_every_attempt_and_differs_by_step_side_and_transaction() -> None:
    bench = Bench(step_attempts=2)
    seen = contexts(bench)
    bench.shop.errors["charge"] = [UNAVAILABLE, CARD_REFUSED]
    bench.engine.run(bench.saga, Order())
    keys = [context.idempotency_key for context in seen]
    assert keys[1] == keys[2]
    assert len(set(keys)) == 4
    # By hand: a UUIDv5 of step and side in the namespace of the transaction.
    assert keys[0] == str(uuid.uuid5(seen[0].transaction_id, "reserve:PROCESS"))
    assert keys[4] == str(uuid.uuid5(seen[0].transaction_id, "reserve:REVERT"))


def test_remaining_counts_the_budget_down_and_request_options_pass_it_on() -> None:
    bench = Bench(step_budget="8s")
    seen = contexts(bench)
    remaining: list[float] = []

    def during() -> None:
        remaining.append(seen[-1].remaining())
        bench.time.advance(5 * SECOND)
        remaining.append(seen[-1].remaining())
        options = seen[-1].request_options()
        assert options == {"timeout": 3.0, "headers": {"Idempotency-Key": seen[-1].idempotency_key}}
        bench.time.advance(5 * SECOND)
        remaining.append(seen[-1].remaining())
        assert seen[-1].request_options()["timeout"] == 0.001

    bench.shop.during["reserve"] = during
    transaction = bench.engine.run(bench.saga, Order())
    assert remaining == [8.0, 3.0, 0.0]
    assert transaction.completed, "on threads a step that returns late is recorded as what it was"


def test_the_logger_carries_transaction_step_and_attempt(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    seen = contexts(bench)
    bench.shop.during["charge"] = lambda: seen[-1].logger.info("charging %s", "4711", extra={"card": "4711"})
    caplog.set_level(logging.INFO)
    transaction = bench.engine.run(bench.saga, Order())
    (record,) = [record for record in caplog.records if record.name == "stacksaga_flask.step"]
    assert record.getMessage().startswith("charging 4711 [place-order/charge PROCESS attempt=1 ")
    facts = vars(record)
    assert facts["transaction_id"] == str(transaction.transaction_id)
    assert (facts["step_name"], facts["attempt"], facts["card"]) == ("charge", 1, "4711")


def test_in_process_attempts_wait_at_random_up_to_a_doubling_bound() -> None:
    waits: list[int] = []
    bench = Bench(step_attempts=3, step_backoff="1s")
    bench.shop.errors["reserve"] = [UNAVAILABLE, UNAVAILABLE, UNAVAILABLE]
    times: list[int] = []
    bench.shop.during["reserve"] = lambda: times.append(bench.time.boot())
    bench.engine.run(bench.saga, Order())
    waits = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert len(waits) == 2
    assert 0 <= waits[0] <= SECOND
    assert 0 <= waits[1] <= 2 * SECOND


def test_what_a_step_returns_is_checked_and_counts_as_an_unexpected_failure() -> None:
    bench = Bench()
    saga: Saga[dict[str, object], None] = Saga("odd", payload=dict)
    done: list[str] = []

    @saga.step
    def odd(payload: dict[str, object], context: StepContext[dict[str, object]]) -> dict[str, object]:
        done.append("odd")
        return {"handle": object()}

    @odd.revert
    def undo(payload: dict[str, object], context: StepContext[dict[str, object]]) -> None:
        done.append("undo")

    bench.engine.register(saga)
    transaction = bench.engine.run(saga, {})
    assert transaction.compensated
    assert done == ["odd", "undo"]
    (first, _) = bench.engine.tryouts(transaction.transaction_id)
    assert "what the step 'odd' left cannot be recorded" in (first.error or "")


def test_a_broken_result_function_does_not_undo_what_is_done(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()

    def broken(payload: dict[str, object]) -> int:
        raise LookupError("no such key")

    saga = Saga("broken-result", payload=dict, result=broken)
    saga.pivot(name="only")(lambda payload, context: None)
    bench.engine.register(saga)
    transaction = bench.engine.run(saga, {})
    assert transaction.completed
    assert transaction.result is None
    assert "its public result could not be made: LookupError" in (transaction.reason or "")
    assert "no such key" in caplog.text


class Odd(Rejected):
    def __init__(self) -> None:
        self.reason = {"code": 402}  # type: ignore[assignment]
        Exception.__init__(self)


class Unreadable(Exception):
    @property
    def response(self) -> object:
        raise LookupError("no response")

    def __str__(self) -> str:
        raise LookupError("no text")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Rejected(ValueError("no money")), "no money"),  # type: ignore[arg-type]
        (Rejected(402), "402"),  # type: ignore[arg-type]
        (Rejected(""), "refused"),
        (Odd(), "{'code': 402}"),
        (Unreadable(), "the step 'charge' failed unexpectedly"),
    ],
)
def test_whatever_a_step_raises_is_an_outcome(error: BaseException, told: str) -> None:
    bench = Bench()
    bench.shop.errors["charge"] = [error]
    transaction = bench.engine.run(bench.saga, Order())
    assert (transaction.compensated, transaction.reason) == (True, told)
    assert bench.shop.calls[-1] == "release"


def test_a_bug_in_a_step_is_logged_with_its_traceback_and_a_frozen_transaction_with_its_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = Bench()
    bench.shop.errors = {"charge": [KeyError("total")], "refund": [Rejected("account closed")]}
    transaction = bench.engine.run(bench.saga, Order())
    bug, frozen = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert bug.exc_info is not None
    assert "place-order/charge PROCESS failed unexpectedly" in bug.getMessage()
    assert "is frozen: the revert of 'charge' was rejected" in frozen.getMessage()
    assert str(transaction.transaction_id) in bug.getMessage()


# -- under gevent ----------------------------------------------------------------------------------------------

UNDER_GEVENT = """
from gevent import monkey
monkey.patch_all()
import gevent, threading, time
from stacksaga_flask import Engine, Saga, read_settings

done = []
saga = Saga("slow", payload=dict)

@saga.step(budget="0.2s")
def sleeps(payload, context):
    done.append("sleeps")
    {body}

@sleeps.revert
def undo(payload, context):
    done.append("undo")

engine = Engine(read_settings({{"STACKSAGA_STORE": "memory://"}}, application_name="shop"), sagas=[saga])
started = time.monotonic()
transaction = engine.run(saga, {{}})
print(transaction.status.value, done, time.monotonic() - started < 5)
print([(t.status.value, t.error) for t in engine.tryouts(transaction.transaction_id)])
"""


def under_gevent(body: str) -> tuple[str, str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", UNDER_GEVENT.format(body=body)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    return first, second


def test_under_gevent_a_budget_interrupts_the_step_whose_outcome_is_then_unknown() -> None:
    state, tryouts = under_gevent("time.sleep(30)")
    assert state == "PROCESS_PAUSED ['sleeps'] True"
    assert "RETRYABLE" in tryouts
    assert "interrupted after its time budget of 0.2 s" in tryouts


def test_under_gevent_a_step_cannot_catch_the_interruption_as_an_exception_of_its_own() -> None:
    body = "\n    try:\n        time.sleep(30)\n    except Exception:\n        done.append('caught')"
    assert under_gevent(body)[0] == "PROCESS_PAUSED ['sleeps'] True"


def test_under_gevent_a_timeout_of_the_steps_own_is_a_passing_failure() -> None:
    state, tryouts = under_gevent("\n    with gevent.Timeout(0.05):\n        time.sleep(30)")
    assert state == "PROCESS_PAUSED ['sleeps'] True"
    assert "a timeout of the step's own" in tryouts


# -- processes -------------------------------------------------------------------------------------------------


def in_child(work: Callable[[], str], said: Path) -> str:
    """Run something in a forked child and return what it says, by way of a file."""
    pid = os.fork()
    if pid == 0:
        try:
            said.write_text(work())
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    return said.read_text()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_is_another_instance_with_connections_of_its_own(tmp_path: Path) -> None:
    saga: Saga[dict[str, object], None] = Saga("plain", payload=dict)
    saga.pivot(name="only")(lambda payload, context: None)
    settings = read_settings({"STACKSAGA_STORE": f"sqlite:///{tmp_path}/shop.db"}, application_name="shop")
    engine = Engine(settings, sagas=[saga])
    assert engine.run(saga, {}).completed

    def child() -> str:
        return f"{engine.node().instance_id} {engine.run(saga, {}).status.value}"

    instance_id, status = in_child(child, tmp_path / "said").split()
    assert status == "PROCESS_COMPLETED"
    assert instance_id != engine.node().instance_id
    assert engine.run(saga, {}).completed, "the parent's connections still work"


def test_where_no_process_forks_the_import_works_and_the_engine_says_what_it_runs_on() -> None:
    script = (
        "import os, sys, time\n"
        "import flask, mmh3, msgspec, tenacity, durationpy\n"
        "del os.register_at_fork\n"
        "sys.platform = 'win32'\n"
        "import stacksaga_flask\n"
        "settings = stacksaga_flask.read_settings({}, application_name='shop')\n"
        "try: stacksaga_flask.Engine(settings)\n"
        "except stacksaga_flask.UnsupportedPlatform as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("stacksaga_flask runs on Linux, and on macOS for development; this is 'win32'")


def test_importing_the_library_imports_no_driver_and_opens_nothing() -> None:
    script = (
        "import sys, threading, stacksaga_flask\n"
        "drivers = {'sqlalchemy', 'sqlite3', 'cassandra', 'gevent', 'zmq', 'apscheduler', 'supervisor', 'pytest'}\n"
        "print(sorted(drivers & set(sys.modules)), threading.active_count())"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "[] 1\n"
