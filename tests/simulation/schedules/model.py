"""Those that a model found (V2 to V6), the dead that are found at once, and what else is in play."""

from __future__ import annotations

from random import Random

from stacksaga_flask.clock import SECOND
from tests.simulation.network import Fate
from tests.simulation.participants import Answer
from tests.simulation.plan import Plan
from tests.simulation.schedules.schedule import PROCESS, REVERT, Schedule, comes_over, near
from tests.simulation.script import Becomes, Kill, Leave, On, late, stop, unanswered

_REFUSED = {("charge", PROCESS): (Answer.REFUSED,)}


def _told_to_end(plan: Plan, random: Random) -> Plan:
    return comes_over(
        plan,
        On("web0", "process charge returned", 1, Leave(SECOND)),
        On("retry", "process ship returned", 1, Leave(SECOND, SECOND)),
    )


def _dies_and_is_found(plan: Plan, random: Random) -> Plan:
    return comes_over(
        plan, On("web0", "row PROCESSING", 2, late(near(random, 4), kills=0.001)), finds_dead=True, restore=6
    )


def _finder_dies_too(plan: Plan, random: Random) -> Plan:
    return comes_over(
        plan,
        On("web0", "process charge returned", 1, Kill()),
        On("retry", "process charge", 1, Kill()),
        finds_dead=True,
        restore=6,
    )


def _found_late(plan: Plan, random: Random) -> Plan:
    over = comes_over(
        plan,
        On("web0", "process charge returned", 1, Kill()),
        behaviour={("charge", PROCESS): (Answer.DONE, *[Answer.BUSY] * 5)},
        finds_dead=True,
    )
    return over._replace(found_after=(15 * SECOND, 35 * SECOND))


def _claim_deleted_by_the_dead(plan: Plan, random: Random) -> Plan:
    batch = On("web0", "row PROCESS_COMPLETED", 1, late(near(random, 2), kills=0.001))
    slow = On("retry", "row PROCESSING", 1, Becomes(Fate(10_000, 900_000)))
    return comes_over(plan, batch, slow, finds_dead=True, restore=6)


def _unfreezer_stands_still(plan: Plan, random: Random) -> Plan:
    return comes_over(
        plan,
        On("web", "row REVERT_PAUSED", 1, stop(near(random, 25))),
        behaviour={**_REFUSED, ("reserve", REVERT): (Answer.REFUSED,)},
        hands=((near(random, 6), "restore"), (near(random, 50), "restore")),
        nodes=(0,),
    )


def _late_freeze(plan: Plan, random: Random) -> Plan:
    return comes_over(
        plan,
        On("web0", "row FROZEN", 1, late(near(random, 25), kills=0.001)),
        behaviour={**_REFUSED, ("reserve", REVERT): (Answer.UNASKED,)},
    )


def _late_end_and_takeover(plan: Plan, random: Random, takeover: float) -> Plan:
    return comes_over(
        plan,
        On("web0", "row PROCESS_COMPLETED", 1, late(near(random, 15), kills=0.001)),
        On("retry", "row PROCESSING", 1, late(near(random, takeover))),
        asks=(near(random, 15.5), 1, 1, 1, 1, 1, 1),
    )


def _late_end_and_late_takeover(plan: Plan, random: Random) -> Plan:
    return _late_end_and_takeover(plan, random, 20)


def _late_end_and_slow_takeover(plan: Plan, random: Random) -> Plan:
    return _late_end_and_takeover(plan, random, 6)


def _two_node_zeros(plan: Plan, random: Random) -> Plan:
    slow = [On("retry", "drop tier 2", nth, Becomes(Fate(900_000, 950_000))) for nth in (1, 2)]
    return comes_over(plan, *slow, On("web0", "process charge returned", 1, Kill()))


def _stray_pointer(plan: Plan, random: Random) -> Plan:
    return comes_over(plan, behaviour={("charge", PROCESS): (Answer.BUSY,)}, hands=((near(random, 1), "retry"),))


def _claim_of_unknown_outcome(plan: Plan, random: Random) -> Plan:
    return comes_over(
        plan,
        On("web0", "process charge returned", 1, Kill()),
        On("retry", "take #claim", 1, unanswered()),
    )


def _outage(plan: Plan, random: Random) -> Plan:
    away = (plan.begins + SECOND // 2, plan.begins + SECOND * random.choice((8, 25)))
    return comes_over(plan, at=0.4)._replace(weather=plan.weather._replace(away=away))


SCHEDULES = (
    Schedule("SIGTERM", "a process and the node that goes on with its run are told to end", _told_to_end),
    Schedule("H14", "a process dies with a batch under way, and is found dead at once", _dies_and_is_found),
    Schedule(
        "R18", "a dead process is found after a sweep has gone on with what it left", _found_late, ("all-of-the-dead",)
    ),
    Schedule("M4", "two Node-0s prune at once", _two_node_zeros),
    Schedule("M5", "a retry pointer finds a transaction that has ended", _stray_pointer),
    Schedule("M8", "a claim's outcome is unknown", _claim_of_unknown_outcome),
    Schedule("V2", "who restores stands still between the pointers and the row", _unfreezer_stands_still),
    Schedule("V3", "a freeze batch lands after a takeover", _late_freeze, ("takeover-leaves-frozen-row",)),
    Schedule("V4", "who takes over at once dies as well", _finder_dies_too, ("takeover-not-armed",)),
    Schedule("V5", "a dead owner's last batch deletes the claim of who takes over", _claim_deleted_by_the_dead),
    Schedule(
        "V6", "a dead owner's end shows while a takeover is under way", _late_end_and_late_takeover, ("not-confirmed",)
    ),
    Schedule(
        "V6-told",
        "as V6, and the takeover lands before anybody looks again",
        _late_end_and_slow_takeover,
        ("told-before-it-counts",),
    ),
    Schedule("outage", "the store is away in the middle of a run and of a sweep", _outage),
)
