"""The simulation itself: that it is deterministic, that its checks object, and that every schedule can come up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.checks.all import RULES
from tests.simulation.plants.all import PLANTS
from tests.simulation.plants.plant import planted
from tests.simulation.schedules.all import SCHEDULES
from tests.simulation.seeds import replay, run_seed

ROOT = Path(__file__).parents[2]
SEED_WITH_FAULTS = 12


def test_a_seed_has_the_same_trace_each_time() -> None:
    assert run_seed(SEED_WITH_FAULTS).trace == run_seed(SEED_WITH_FAULTS).trace


def test_a_seed_has_the_same_trace_in_another_process() -> None:
    command = [sys.executable, "-m", "tests.simulation", "--replay", str(SEED_WITH_FAULTS)]
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": str(ROOT)}
    told = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout
    trace = run_seed(SEED_WITH_FAULTS).trace
    assert told.splitlines()[: len(trace)] == trace


def test_two_seeds_have_different_traces() -> None:
    assert run_seed(1).trace != run_seed(2).trace


def test_every_rule_holds_in_the_first_seeds() -> None:
    broken = [result for seed in range(1, 61) if (result := run_seed(seed)).broken is not None]
    assert [(result.name, str(result.broken)) for result in broken] == []


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_rule_holds_in_each_schedule_and_all_of_it_comes_up(name: str) -> None:
    result = replay(SCHEDULES[name])
    assert result.broken is None
    assert [on for on in result.left if not on.optional] == []


@pytest.mark.parametrize(
    ("name", "plant"), [(name, plant) for name, schedule in SCHEDULES.items() for plant in schedule.plants]
)
def test_a_schedule_without_its_fix_breaks_a_rule(name: str, plant: str) -> None:
    with planted(PLANTS[plant]):
        result = replay(SCHEDULES[name])
    assert result.broken is not None
    assert result.broken.rule in {rule.name for rule in RULES}


@pytest.mark.parametrize(
    ("plant", "rule"),
    [
        ("watchdog-first", "R1"),
        ("start-not-closed", "R2"),
        ("dropped-before-the-last-dispatch", "R4"),
        ("dropped-top-down", "R5"),
        ("claim-not-renewed", "R6"),
        ("reverted-in-order", "R8"),
        ("markers-stay", "R9"),
        ("deleted-below-the-insert", "R13"),
    ],
)
def test_a_planted_fault_is_found_by_the_rule_that_it_breaks(plant: str, rule: str) -> None:
    with planted(PLANTS[plant]):
        found = next(result.broken for seed in range(1, 101) if (result := run_seed(seed)).broken is not None)
    assert found.rule == rule


def test_a_planted_fault_is_gone_afterwards() -> None:
    with planted(PLANTS["watchdog-first"]):
        pass
    assert run_seed(1).broken is None


def test_there_are_at_least_fifteen_planted_faults_each_in_a_function_of_production() -> None:
    assert len(PLANTS) >= 15
    for plant in PLANTS.values():
        where = getattr(plant.owner, "__module__", plant.owner.__name__)
        assert where.startswith(("stacksaga_flask", "stacksagad")), plant.name
