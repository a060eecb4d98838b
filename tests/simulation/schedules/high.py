"""H1 to H12, and what grows too old."""

from __future__ import annotations

from random import Random

from stacksaga_flask.clock import SECOND
from tests.simulation.participants import Answer
from tests.simulation.plan import Plan
from tests.simulation.schedules.schedule import PROCESS, REVERT, Schedule, comes_over, near
from tests.simulation.script import Kill, On, late, lost, stop, unanswered

_REFUSED = {("charge", PROCESS): (Answer.REFUSED,)}


def _killed_after_the_end(plan: Plan, random: Random) -> Plan:
    return comes_over(plan, On("web0", "row PROCESS_COMPLETED answered", 1, Kill()), asks=(near(random, 3),))


def _ends(plan: Plan, random: Random) -> Plan:
    return comes_over(plan, asks=(near(random, 3),))


def _claim_nearly_over(plan: Plan, random: Random) -> Plan:
    return comes_over(
        plan,
        On("web0", "process charge returned", 1, Kill()),
        On("retry", "row PROCESSING answered", 1, stop(near(random, 8.5))),
    )


def _two_pointers(plan: Plan, random: Random) -> Plan:
    return comes_over(
        plan,
        On("web0", "row PROCESS_PAUSED", 1, lost()),
        behaviour={("charge", PROCESS): (Answer.BUSY,)},
        restore=6,
    )


def _hung_step(plan: Plan, random: Random) -> Plan:
    return comes_over(
        plan,
        On("web0", "process reserve returned", 1, stop(near(random, 1.5))),
        at=3.9,
        behaviour={("ship", PROCESS): (Answer.LONG,)},
        slowness=1_900_000,
    )


def _long_under_a_claim(plan: Plan, random: Random) -> Plan:
    return comes_over(
        plan,
        On("web0", "process reserve", 1, Kill()),
        On("retry", "process reserve returned", 1, stop(near(random, 11))),
    )


def _armed_and_not_named(plan: Plan, random: Random) -> Plan:
    return comes_over(
        plan,
        On("web0", "process reserve returned", 1, stop(near(random, 5.6))),
        On("web0", "row PROCESSING", 2, unanswered()),
    )


def _retried_while_it_runs(plan: Plan, random: Random) -> Plan:
    return comes_over(
        plan,
        behaviour={("charge", PROCESS): (Answer.LONG,)},
        hands=((near(random, 1), "retry"),),
        restore=6,
    )


def _killed_while_freezing(plan: Plan, random: Random) -> Plan:
    return comes_over(
        plan,
        On("web0", "row FROZEN", 1, late(near(random, 5), kills=0.001)),
        behaviour={**_REFUSED, ("reserve", REVERT): (Answer.REFUSED,)},
        hands=((near(random, 45), "restore"),),
    )


def _weekend(plan: Plan, random: Random) -> Plan:
    return comes_over(
        plan,
        On("web0", "process charge returned", 1, Kill()),
        *(On(f"retry{number}", "*", 1, stop(near(random, 55)), optional=True) for number in range(1, 4)),
        lifetime=45,
        hands=((near(random, 80), "restore"),),
    )


def _four_days(plan: Plan, random: Random) -> Plan:
    days = 100 * 3600
    over = comes_over(
        plan,
        On("web0", "process charge returned", 1, Kill()),
        *(On(f"retry{number}", "*", 1, stop(days), optional=True) for number in range(1, 4)),
        lifetime=9 * 24 * 3600,
        hands=((days + 60, "restore"),),
    )
    return over._replace(faults_end=max(over.faults_end, over.begins + days * SECOND))


def _behind_the_cursor(plan: Plan, random: Random) -> Plan:
    over = comes_over(plan, On("web0", "process charge returned", 1, Kill()), restore=6)
    return over._replace(skews=tuple(-skew for skew in over.skews))


SCHEDULES = (
    Schedule("H1", "a process dies between its terminal batch and the watchdog's deletion", _killed_after_the_end),
    Schedule("H3", "a claim holder stands still until its claim is nearly over", _claim_nearly_over),
    Schedule(
        "H4", "a paused row is lost, and a second retry pointer is registered", _two_pointers, ("superseded-runs",)
    ),
    Schedule("H6", "a step begins shortly before the fence, and one hangs", _hung_step, ("not-armed-again",)),
    Schedule("H6-claim", "a run outlasts its claim", _long_under_a_claim),
    Schedule("H7", "a watchdog is armed anew, and the row that names it is not acknowledged", _armed_and_not_named),
    Schedule("H8", "somebody retries by hand what its starter runs", _retried_while_it_runs, ("starter-not-spared",)),
    Schedule("H9", "a process dies while it freezes, and the batch lands later", _killed_while_freezing),
    Schedule("H10", "nobody sweeps until the transaction is over its lifetime", _weekend, ("lifetime-forgotten",)),
    Schedule("R12", "nobody sweeps for four days", _four_days, ("lookback-forgotten",)),
    Schedule("H11", "a watchdog lies far ahead of the sweepers' cursors", _behind_the_cursor),
    Schedule("H12", "a run ends, and nothing but its history may be left", _ends, ("markers-stay",)),
)
