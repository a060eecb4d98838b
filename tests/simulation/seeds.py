"""Running one seed or one schedule, and what it came to."""

from __future__ import annotations

import traceback
from random import Random
from typing import NamedTuple

from tests.simulation.checks.all import RULES
from tests.simulation.checks.rule import Broken
from tests.simulation.course import Course
from tests.simulation.drawing import drawn
from tests.simulation.plan import Plan
from tests.simulation.schedules.all import SCHEDULES
from tests.simulation.schedules.schedule import Schedule, calm
from tests.simulation.script import On
from tests.simulation.standins import without_chance
from tests.simulation.world import World


class Result(NamedTuple):
    """What became of one world.

    Attributes:
        name: The seed or the schedule.
        broken: The first rule that was broken, if one was.
        trace: What happened.
        left: What of its script did not happen.
    """

    name: str
    broken: Broken | None
    trace: list[str]
    left: list[On]


def run_seed(seed: int, *, without: str | None = None) -> Result:
    """Run the world of a seed.

    Args:
        seed: The seed.
        without: A rule that is not checked.
    """
    random = Random(seed)
    with without_chance(random):
        return _run(str(seed), _plan(random), random, without)


def replay(schedule: Schedule) -> Result:
    """Let a schedule come over a calm world."""
    random = Random(0)
    with without_chance(random):
        return _run(schedule.name, schedule.into(calm(), random), random, None)


def _plan(random: Random) -> Plan:
    """A world of the seed's own, or a calm one, over which some of the schedules come."""
    if random.random() < 0.5:
        plan, number = drawn(random), random.randint(0, 1)
    else:
        plan, number = calm(), random.randint(1, 2)
    for schedule in random.sample(list(SCHEDULES.values()), number):
        plan = schedule.into(plan, random)
    return plan


def _run(name: str, plan: Plan, random: Random, without: str | None) -> Result:
    world = World(plan, random, tuple(rule for rule in RULES if rule.name != without))
    Course(world).run()
    broken, crash = world.watch.first, world.scheduler.crash
    if crash is not None:
        lines = "".join(traceback.format_exception(crash)[-3:])
        broken = Broken("CRASH", f"{type(crash).__name__}: {crash}\n{lines}")
    return Result(name, broken, world.trace.lines(), world.script.left)
