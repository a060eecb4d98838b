"""The circuit of a sweep, and the results that are kept until the store takes them."""

from __future__ import annotations

import threading
from uuid import UUID

from stacksaga_flask.engine.circuit import Circuit
from stacksaga_flask.engine.kept import MOST, Kept
from stacksaga_flask.store.contract import ExecutionType

ONE = UUID(int=1)
CHARGE = ("place-order", "charge", ExecutionType.PROCESS)
REFUND = ("place-order", "charge", ExecutionType.REVERT)


def test_a_circuit_opens_at_the_tenth_failure_of_one_side_of_a_step() -> None:
    circuit = Circuit()
    for _ in range(9):
        circuit.failed(CHARGE)
    assert not circuit.is_open(CHARGE)
    circuit.failed(CHARGE)
    assert circuit.is_open(CHARGE)
    assert not circuit.is_open(REFUND)
    assert circuit.open() == [CHARGE]


def test_a_success_starts_the_count_anew_but_closes_no_open_circuit() -> None:
    circuit = Circuit()
    for _ in range(9):
        circuit.failed(CHARGE)
    circuit.succeeded(CHARGE)
    for _ in range(9):
        circuit.failed(CHARGE)
    assert not circuit.is_open(CHARGE)
    circuit.failed(CHARGE)
    circuit.succeeded(CHARGE)
    assert circuit.is_open(CHARGE)


def test_what_was_not_recorded_is_tried_again_and_the_others_wait() -> None:
    kept = Kept(in_background=False)
    tried: list[str] = []
    answers = {"a": [False, True], "b": [True]}

    def record(name: str) -> bool:
        tried.append(name)
        return answers[name].pop(0)

    assert kept.keep(ONE, lambda: record("a"))
    assert kept.keep(ONE, lambda: record("b"))
    kept.look()
    assert (tried, len(kept)) == (["a"], 2), "the store is away, so the second one would only wait for it too"
    kept.look()
    assert (tried, len(kept)) == (["a", "b", "a"], 0)


def test_a_thread_looks_until_nothing_is_kept() -> None:
    kept = Kept(in_background=True)
    recorded = threading.Event()
    answers = [False, True]

    def record() -> bool:
        if answers.pop(0):
            recorded.set()
            return True
        return False

    assert kept.keep(ONE, record)
    assert recorded.wait(30)
    kept.close()


def test_no_more_is_kept_than_there_is_room_for_and_nothing_once_closed() -> None:
    kept = Kept(in_background=False)
    for _ in range(MOST):
        assert kept.keep(ONE, lambda: True)
    assert not kept.keep(ONE, lambda: True)
    kept.look()
    kept.close()
    assert not kept.keep(ONE, lambda: True)
